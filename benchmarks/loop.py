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
import python_catch

import ftwax
from ftwax import types
from ftwax.agents import impala
from ftwax.environments import gymnasium_adapter
from ftwax.runtime import experiment, prepare, sharding
from ftwax.runtime.local import acting, arena, learning

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
_PARTS = ('environment', 'act', 'update')


def make_cart_pole(seed):
  """Makes Gymnasium's CartPole."""
  made = gymnasium.make('CartPole-v1')
  return gymnasium_adapter.GymnasiumEnvironment(made, seed)


class Loop:
  """The iteration of a local run, without its records.

  Attributes:
    clock: seconds of its parts.
    returns: those of the last hundred episodes.
  """

  def __init__(self, make, num_environments, **options):
    """Makes games, actors and learner."""
    config = impala.IMPALAConfig.atari_paper(**options)
    made = experiment.ExperimentConfig(
      agent=config,
      environment=make,
      num_environments=num_environments,
      max_num_actor_steps=10**9,
    )
    self._parts = prepare.prepare(made)
    self._rows = max(num_environments, config.batch_size)
    self._batch_size = config.batch_size
    seeds = range(num_environments)
    self.games = arena.Arena(
      self._parts.make_games(seeds, 'test'), self._parts.seating
    )
    self.actors = acting.Actors(self._parts.policy, self.games)
    seats = np.zeros((num_environments, 1), np.int32)
    self.actors.begin(jax.random.PRNGKey(0), seats)
    mesh = sharding.make_mesh(None)
    self.learner = learning.Learner(self._parts, 1, mesh, None)
    self.members = self.learner.init(jax.random.PRNGKey(0))
    self.num_updates = 0
    self.clock = common.Clock()
    self.returns = collections.deque(maxlen=100)

  def iterate(self):
    """Acts and learns; returns the number of actions."""
    arrays = acting.make_arrays(self._parts.replays.template, 1, self._rows)
    variables = acting.put(types.actor_variables(self.members))
    num_steps = 0
    for into in acting.batches(arrays, self.games.num_environments):
      for _ in self.actors.rollout(variables, into):
        pass
      num_steps += self.actors.num_steps
    self.note_returns(arrays.timestep)
    self.learner.insert(arrays, self.num_updates)
    while self.learner.num_queued >= self._batch_size:
      self.update()
    return num_steps

  def note_returns(self, timestep):
    """Keeps the rewards at the ends of episodes: catch pays there alone."""
    ends = timestep.step_type[1:] == types.LAST
    self.returns.extend(timestep.reward[1:][ends])

  def update(self):
    """Does an update and waits for it, else waiting counts elsewhere."""
    self.members, _, _ = self.learner.update(self.members)
    jax.block_until_ready(self.members)
    self.num_updates += 1

  def time_parts(self):
    """Makes the clock count the time of every part."""
    self.clock.wrap(self.games, 'step', 'environment')
    self.clock.wrap(self.actors, '_act', 'act')
    self.clock.wrap(self, 'update', 'update')


def run(seconds, num_environments):
  """Acts and learns for `seconds`; returns steps/s, shares and mean return."""
  loop = Loop(python_catch.Catch, num_environments, batch_size=16)
  loop.time_parts()
  while loop.num_updates < _WARM_UP_UPDATES:
    loop.iterate()
  loop.clock.seconds.clear()
  start, num_steps = time.perf_counter(), 0
  while time.perf_counter() - start < seconds:
    num_steps += loop.iterate()
  elapsed = time.perf_counter() - start
  shares = {part: loop.clock.seconds[part] / elapsed for part in _PARTS}
  return num_steps / elapsed, shares, float(np.mean(loop.returns))


def count_calls(num_iterations=20, num_environments=8):
  """Returns the calls of functions of ours in a step of eight CartPoles."""
  loop = Loop(
    make_cart_pole,
    num_environments,
    hidden_size=32,
    batch_size=num_environments,
  )
  room = os.path.dirname(ftwax.__file__)
  num_calls = 0

  def count(frame, event, argument):
    del argument
    nonlocal num_calls
    num_calls += event == 'call' and frame.f_code.co_filename.startswith(room)

  for _ in range(3):  # They compile.
    loop.iterate()
  sys.setprofile(count)
  for _ in range(num_iterations):
    loop.iterate()
  sys.setprofile(None)
  return num_calls / num_iterations / impala.IMPALAConfig.sequence_length


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
