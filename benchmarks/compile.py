"""Time to compile each agent's call on the device, by stage.

    uv run benchmarks/compile.py

Agents learn from 84x84 pixels of catch, with T = 20, B = 8 and 64 units; FTW
with all of its parts (RPTH, a DNC of 16 slots, both auxiliary tasks), alone and
as a population of four. Columns are the seconds of the processor to trace, to
lower and to compile. Exits with status 1 if any agent takes more than `--limit`
to compile.
"""

import argparse
import functools
import itertools
import os
import time

os.environ['JAX_ENABLE_COMPILATION_CACHE'] = 'false'

import common  # noqa: E402
import jax  # noqa: E402

from ftwax import compilation  # noqa: E402
from ftwax.agents import a2c, ftw, impala, ppo, unreal  # noqa: E402
from ftwax.environments import catch, pixels  # noqa: E402
from ftwax.networks.dnc import interfaces  # noqa: E402
from ftwax.population import population_config  # noqa: E402
from ftwax.runtime import experiment, prepare  # noqa: E402
from ftwax.runtime.device import train  # noqa: E402

_SIZE, _T, _B = 64, 20, 8


def make_environment(seed: int):
  """Returns catch as images."""
  del seed
  return pixels.make(catch.make(12, 12))


def make_config(name: str):
  """Returns the module of an agent and its config."""
  sizes = {'sequence_length': _T, 'batch_size': _B}
  if name.startswith('ftw'):
    core = 'lstm' if name == 'ftw_lstm' else 'rpth_dnc'
    tasks = {'use_pixel_control': True, 'use_reward_prediction': True}
    made = ftw.FTWConfig(
      core=core,
      memory=interfaces.MemoryConfig(num_slots=16),
      crop_size=(80, 80),
      **tasks,
      **sizes,
    )
    return ftw, made.with_size(_SIZE)
  agents = {'impala': impala, 'a2c': a2c, 'ppo': ppo, 'unreal': unreal}
  configs = {
    'impala': impala.IMPALAConfig,
    'a2c': a2c.A2CConfig,
    'ppo': ppo.PPOConfig,
    'unreal': unreal.UNREALConfig,
  }
  own = {'crop_size': (80, 80)} if name == 'unreal' else {}
  return agents[name], configs[name](hidden_size=_SIZE, **sizes, **own)


def measure(name: str, num_members: int) -> tuple[float, float, float]:
  """Returns the seconds of the processor to trace, lower and compile."""
  agent, config = make_config(name)
  made = experiment.ExperimentConfig(
    name='compile',
    agent=config,
    environment=make_environment,
    max_num_actor_steps=10_000,
    num_environments=_B * num_members,
    population=population_config.PopulationConfig(
      num_members=num_members, exploits=num_members > 1
    ),
  )
  parts = prepare.prepare(made)
  loop = train.make_loop(parts)
  state = jax.eval_shape(loop.init, jax.random.PRNGKey(0))
  num_iterations = loop.sizes.iterations_per_call(
    loop.sizes.iterations_per_round(parts.experiment.steps_per_round),
    parts.experiment.max_num_actor_steps,
  )
  call = functools.partial(loop.call, num_iterations)
  times = [time.process_time()]
  traced = compilation.jit(call, donate_argnums=0).trace(state)
  times.append(time.process_time())
  lowered = traced.lower()
  times.append(time.process_time())
  lowered.compile()
  times.append(time.process_time())
  trace, lower, compiling = (
    end - start for start, end in itertools.pairwise(times)
  )
  return trace, lower, compiling


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  agents = ['impala', 'a2c', 'ppo', 'unreal', 'ftw_lstm', 'ftw']
  parser.add_argument('--agents', nargs='+', default=agents)
  parser.add_argument('--limit', type=float, default=120.0)
  arguments = parser.parse_args()
  rows, longest = [], 0.0
  for name in arguments.agents:
    for num_members in (1, 4) if name == 'ftw' else (1,):
      seconds = measure(name, num_members)
      longest = max(longest, seconds[-1])
      rows.append((name, num_members, *(f'{s:.1f}' for s in seconds)))
  common.print_table(
    "An agent's call on the device, catch from 84x84 pixels, seconds of the"
    ' processor',
    ('agent', 'members', 'trace', 'lower', 'compile'),
    rows,
  )
  raise SystemExit(int(longest > arguments.limit))


if __name__ == '__main__':
  main()
