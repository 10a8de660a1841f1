"""The whole agent on catch: speed, shares of its parts, and a rival.

    uv run benchmarks/loop.py

The rival is acme 0.4.0's IMPALA with the same sizes, in its own environment
(see rivals/); both run alternately. `--no-rival` leaves it out. `--calls` only
counts calls of functions of ours.
"""

import argparse
import collections
import os
import statistics
import sys
import time

import common
import gymnasium
import jax
import numpy as np
import parts
import python_catch

import ftwax
from ftwax.agents import impala
from ftwax.environments import (
  game_vectors,
  gymnasium_adapter,
)
from ftwax.population import seating
from ftwax.runtime import experiment
from ftwax.runtime.local import arena, game_loop, members

_WARM_UP_UPDATES = 5
_NUM_ENVIRONMENTS = (1, 8, 32)

# The rival with its contemporary version of JAX, and with ours.
_RIVALS = {
  'JAX 0.4.13': (),
  'JAX 0.6.2': (
    'jax==0.6.2',
    'jaxlib==0.6.2',
    'ml-dtypes<0.6',
    'numpy<2',
    'dm-haiku==0.0.17',
    'chex==0.1.90',
    'distrax==0.1.5',
    'optax==0.2.8',
    'rlax==0.1.7',
    'flax==0.10.7',
  ),
}
_PARTS = ('environment', 'act', 'adder', 'sample', 'update', 'variables')


def make_cart_pole(seed):
  """Makes Gymnasium's CartPole."""
  made = gymnasium.make('CartPole-v1')
  return gymnasium_adapter.GymnasiumEnvironment(made, seed)


def make_arena(num_environments, make=python_catch.Catch):
  """Makes an arena of validated catch, as in the local runtime."""
  made = game_vectors.make_games(make, range(num_environments), 'test')
  made_seating = seating.make_seating(made.spec.teams, 1, num_environments)
  return arena.Arena(made, made_seating, (), jax.random.PRNGKey(0))


def time_parts(agent, environment):
  """Makes the agent's clock count the time of every part of the loop."""
  wrap = agent.clock.wrap
  wrap(environment, 'step', 'environment')
  wrap(agent.actor, 'select_action', 'act_and_add')
  wrap(agent.actor, 'update', 'variables')
  wrap(agent.adder, 'add_timestep', 'adder')
  wrap(agent.adder, 'add_choice', 'add_choice')
  step = agent.learner.step

  def step_and_wait():  # Else waiting counts elsewhere.
    step()
    jax.block_until_ready(agent.learner.state)

  agent.learner.step = step_and_wait
  wrap(agent.learner, 'step', 'learner')


def shares(seconds, total):
  """Returns the share of each part, by name."""
  seconds = dict(seconds)
  seconds['act'] = seconds['act_and_add'] - seconds['add_choice']
  seconds['adder'] += seconds['add_choice']
  seconds['update'] = seconds['learner'] - seconds['sample']
  return {part: seconds[part] / total for part in _PARTS}


def run(seconds, num_environments):
  """Acts and learns for `seconds`; returns steps/s, shares and mean return."""
  environment = make_arena(num_environments)
  config = impala.IMPALAConfig.atari_paper(batch_size=16)
  agent = parts.Agent(environment.spec.environment, config, num_environments)
  time_parts(agent, environment)
  made = experiment.ExperimentConfig(
    agent=config,
    environment=python_catch.Catch,
    max_num_actor_steps=10**9,
  )
  seats = np.zeros((num_environments, 1), np.int32)
  loop = game_loop.play_rounds(
    environment,
    members.Actors([agent.actor], [agent.adder]),
    lambda: (seats, ()),
    made,
  )
  returns = collections.deque(maxlen=100)
  num_steps = num_updates = 0
  start = None
  for tick in loop:
    num_steps += tick.num_steps
    returns.extend(result.returns.sum() for result in tick.results)
    while num_updates < agent.adder.num_items // config.batch_size:
      agent.learner.step()
      num_updates += 1
    if start is None:
      if num_updates >= _WARM_UP_UPDATES:
        start, num_steps = time.perf_counter(), 0
        agent.clock.seconds.clear()
    elif time.perf_counter() - start > seconds:
      break
  elapsed = time.perf_counter() - start
  agent.close()
  return (
    num_steps / elapsed,
    shares(agent.clock.seconds, elapsed),
    float(np.mean(returns)),
  )


def count_calls(num_ticks=400, num_environments=8):
  """Returns the calls of functions of ours in a step of eight CartPoles."""
  environment = make_arena(num_environments, make_cart_pole)
  config = impala.IMPALAConfig(hidden_size=32, batch_size=num_environments)
  agent = parts.Agent(environment.spec.environment, config, num_environments)
  made = experiment.ExperimentConfig(
    agent=config, environment=make_cart_pole, max_num_actor_steps=10**9
  )
  loop = game_loop.play_rounds(
    environment,
    members.Actors([agent.actor], [agent.adder]),
    lambda: (np.zeros((num_environments, 1), np.int32), ()),
    made,
  )
  room = os.path.dirname(ftwax.__file__)
  num_calls = num_updates = 0

  def count(frame, event, argument):
    del argument
    nonlocal num_calls
    num_calls += event == 'call' and frame.f_code.co_filename.startswith(room)

  for tick in range(num_ticks + 60):
    if tick >= 60:  # After compilation.
      sys.setprofile(count)
    next(loop)
    sys.setprofile(None)
    while num_updates < agent.adder.num_items // config.batch_size:
      agent.learner.step()
      num_updates += 1
  agent.close()
  return num_calls / num_ticks


def print_ratios(ours, rivals):
  """Prints the ratio of our median speed to that of each rival."""
  rows = []
  for num_environments, speeds in ours.items():
    speed = statistics.median(speeds)
    ratios = [speed / statistics.median(theirs) for theirs in rivals.values()]
    rows.append(
      [num_environments, f'{speed:,.0f}', *map('{:.1f}'.format, ratios)]
    )
  header = [
    f'x {name} ({statistics.median(theirs):,.0f} steps/s)'
    for name, theirs in rivals.items()
  ]
  common.print_table(
    "Ratios to acme 0.4.0's IMPALA, one environment, same run",
    ['environments', 'steps/s', *header],
    rows,
  )


def main():
  """Prints our speeds, and then the ratios to the rival."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--seconds', type=float, default=20.0)
  parser.add_argument('--rounds', type=int, default=3)
  parser.add_argument('--no-rival', action='store_true')
  parser.add_argument('--calls', action='store_true')
  args = parser.parse_args()
  if args.calls:
    print(f'{count_calls():.0f} calls in a step of eight CartPoles')
    return
  print(common.machine_line())
  ours, rivals = collections.defaultdict(list), collections.defaultdict(list)
  rows = []
  for _ in range(args.rounds):
    for num_environments in _NUM_ENVIRONMENTS:
      speed, share, mean_return = run(args.seconds, num_environments)
      ours[num_environments].append(speed)
      percentages = [f'{100 * share[part]:.0f}%' for part in _PARTS]
      rows.append(
        [num_environments, f'{speed:,.0f}', *percentages, f'{mean_return:.2f}']
      )
    for name, overrides in () if args.no_rival else _RIVALS.items():
      result = common.run_rival('acme_impala_catch.py', args.seconds, overrides)
      rivals[name].append(result['env_steps_per_second'])
  common.print_table(
    'Acting and learning on catch: MLP 64, LSTM 256, T = 20, B = 16',
    ['environments', 'steps/s', *_PARTS, 'return'],
    rows,
  )
  if rivals:
    print_ratios(ours, rivals)


if __name__ == '__main__':
  main()
