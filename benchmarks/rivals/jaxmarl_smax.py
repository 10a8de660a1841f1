# /// script
# requires-python = "==3.13.*"
# dependencies = [
#   "distrax==0.1.9", "flax==0.12.12", "hydra-core==1.3.2", "jax==0.12.0.1",
#   "jaxmarl==0.2.0", "optax==0.2.8", "pyyaml",
# ]
#
# [tool.uv]
# exclude-newer = "2026-11-14T00:00:00Z"
# ///
"""The rival: JaxMARL's IPPO and MAPPO on SMAX, with a GRU and its settings.

Its two programs are imported from a clone as they are, since no package has
them. wandb, which they log to, is replaced by a list. Each row is of an update:
steps of the game, and return and share of won games among those that ended.
Seeds are trained one after another by one compiled function, and CPU seconds
are those of all seeds but the first.
"""

import argparse
import json
import pathlib
import resource
import sys
import types

import numpy as np
import yaml

PROGRAMS = {
  'ippo': ('IPPO', 'ippo_rnn_smax', 'ippo_rnn_smax'),
  'mappo': ('MAPPO', 'mappo_rnn_smax', 'mappo_homogenous_rnn_smax'),
}


def cpu_seconds():
  used = resource.getrusage(resource.RUSAGE_SELF)
  return used.ru_utime + used.ru_stime


def main():
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--jaxmarl', required=True, help='path of a clone')
  parser.add_argument('--agent', choices=PROGRAMS, required=True)
  parser.add_argument('--task', default='3m')
  parser.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2])
  parser.add_argument('--num_steps', type=int, default=600_000)
  args = parser.parse_args()
  folder, program, settings = PROGRAMS[args.agent]
  directory = pathlib.Path(args.jaxmarl) / 'baselines' / folder
  rows = []
  sys.modules['wandb'] = types.SimpleNamespace(log=rows.append)
  sys.path.insert(0, str(directory))
  module = __import__(program)
  import jax

  config = yaml.safe_load((directory / f'config/{settings}.yaml').read_text())
  config.update(TOTAL_TIMESTEPS=args.num_steps, MAP_NAME=args.task)
  train = jax.jit(module.make_train(config))
  curves, seconds = [], []
  for seed in args.seeds:
    rows.clear()
    before = cpu_seconds()
    jax.block_until_ready(train(jax.random.PRNGKey(seed)))
    jax.effects_barrier()
    seconds.append(cpu_seconds() - before)
    per_update = config['NUM_ENVS'] * config['NUM_STEPS']
    ordered = sorted(rows, key=lambda row: int(row['env_step']))
    curves.append(
      [
        [
          int(row['env_step']) + per_update,
          float(row['returns']),
          float(row['win_rate']),
        ]
        for row in ordered
      ]
    )
    print(seed, curves[-1][-1], seconds[-1], file=sys.stderr, flush=True)
  result = {'seeds': args.seeds, 'curves': curves}
  if len(seconds) > 1:
    result['cpu_seconds'] = float(np.mean(seconds[1:]))
  print(json.dumps(result))


if __name__ == '__main__':
  main()
