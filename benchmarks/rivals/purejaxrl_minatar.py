# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "distrax==0.1.9", "flax==0.12.12", "gymnax==0.0.9", "jax==0.12.0.1",
#   "numpy", "optax==0.2.8",
# ]
#
# [tool.uv]
# exclude-newer = "2026-11-14T00:00:00Z"
# ///
"""The rival: PureJaxRL's PPO on MinAtar, with the settings of its example.

    uv run --script benchmarks/rivals/purejaxrl_minatar.py --purejaxrl=PATH \
      --task=Asterix-MinAtar

Its `ppo.py` is imported from a clone as it is. The score is the mean return of
the last 100 training episodes, and the curve that of the episodes which ended
in each twentieth of the steps.
"""

import argparse
import importlib
import json
import pathlib
import sys
import time
import types

import jax
import numpy as np

# `examples/brax_minatar.ipynb`.
SETTINGS = {
  'LR': 5e-3,
  'NUM_ENVS': 64,
  'NUM_STEPS': 128,
  'UPDATE_EPOCHS': 4,
  'NUM_MINIBATCHES': 8,
  'GAMMA': 0.99,
  'GAE_LAMBDA': 0.95,
  'CLIP_EPS': 0.2,
  'ENT_COEF': 0.01,
  'VF_COEF': 0.5,
  'MAX_GRAD_NORM': 0.5,
  'ACTIVATION': 'relu',
  'ANNEAL_LR': True,
}
NUM_PARTS = 20


def import_purejaxrl(path, file):
  """Imports a module of PureJaxRL from a clone."""
  # Its wrappers import what only its other programs use.
  unused = {
    'brax': {'envs': None},
    'brax.envs': {},
    'brax.envs.wrappers': {},
    'brax.envs.wrappers.training': {
      'EpisodeWrapper': None,
      'AutoResetWrapper': None,
    },
    'navix': {},
  }
  for name, contents in unused.items():
    module = types.ModuleType(name)
    vars(module).update(contents)
    sys.modules.setdefault(name, module)
  sys.path.insert(0, str(pathlib.Path(path) / 'purejaxrl'))
  return importlib.import_module(file)


def main():
  """Trains one seed and prints its result."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--purejaxrl', required=True, help='path of a clone')
  parser.add_argument('--task', required=True)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--num_steps', type=int, default=10_000_000)
  args = parser.parse_args()
  settings = {
    **SETTINGS,
    'ENV_NAME': args.task,
    'TOTAL_TIMESTEPS': args.num_steps,
  }
  train = jax.jit(import_purejaxrl(args.purejaxrl, 'ppo').make_train(settings))
  key = jax.random.PRNGKey(args.seed)
  train = train.lower(key).compile()
  before = time.process_time()
  ended = jax.device_get(train(key)['metrics'])
  seconds = time.process_time() - before
  returns = [
    values[is_end]
    for values, is_end in zip(
      np.array_split(ended['returned_episode_returns'], NUM_PARTS),
      np.array_split(ended['returned_episode'], NUM_PARTS),
      strict=True,
    )
  ]
  curve = [round(float(part.mean()), 3) for part in returns if len(part)]
  last = float(np.concatenate(returns)[-100:].mean())
  result = {'score': last, 'curve': curve, 'cpu_seconds': round(seconds)}
  print(json.dumps(result))


if __name__ == '__main__':
  main()
