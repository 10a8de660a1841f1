"""Speed of environments on the host: one by one, in vectors, in processes.

    uv run --with stable-baselines3 --with envpool benchmarks/stepping.py

Steps per second of Atari's Pong, CartPole and a simulator that sleeps 5 ms,
summed over environments. `one by one` is an experiment's factory of single
environments; ours are all validated, as in runs. The rivals are the vectors of
Stable-Baselines3 and EnvPool, left out if they are not installed. CartPole is
not stepped in processes, which are too slow for it. All ways take turns, and
ratios are medians over rounds, since the machine may be shared. The `acting`
lines also select actions with IMPALA's LSTM of 256 units, in one call for all
environments or one call for each. Transfers are the number of arrays that JAX
sends to the device plus those fetched, per step of all environments.
"""

import argparse
import contextlib
import functools
import importlib.util
import os
import statistics
import sys
import tempfile
import time

import common
import dm_env
import gymnasium
import jax
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.agents import impala
from ftwax.agents.actor_critic import acting
from ftwax.environments import (
  atari,
  atari_vector,
  game_vectors,
  gymnasium_adapter,
  process_games,
  specified,
  vector,
)

_TIMEOUT_S = 60.0


class Sleeper(specified.Specified, dm_env.Environment):
  """A simulator whose steps sleep for 5 ms."""

  def __init__(self, seed):
    del seed
    observation = specs.BoundedArray((8,), np.float32, -1.0, 1.0)
    super().__init__(specified.make_spec(observation, 2))
    self._num_steps = 0

  def reset(self):
    """Starts an episode."""
    return dm_env.restart(np.zeros(8, np.float32))

  def step(self, action):
    """Sleeps; every 201st step starts an episode."""
    del action
    self._num_steps += 1
    if self._num_steps % 201 == 0:
      return self.reset()
    time.sleep(0.005)
    end = dm_env.truncation if self._num_steps % 201 == 200 else None
    return (end or dm_env.transition)(0.0, np.zeros(8, np.float32))


def make_cart_pole(seed):
  """Makes Gymnasium's CartPole."""
  made = gymnasium.make('CartPole-v1')
  return gymnasium_adapter.GymnasiumEnvironment(made, seed)


def make_cart_poles(mode, num_environments, seed):
  """Makes Gymnasium's vector of CartPoles."""
  made = gymnasium.make_vec(
    'CartPole-v1', num_environments, vectorization_mode=mode
  )
  return gymnasium_adapter.GymnasiumVectorEnvironment(made, seed)


def make_pong(seed):
  """Makes Pong with gray 84 x 84 frames."""
  return atari.make('pong', seed=seed)


def make_pongs(num_environments, seed):
  """Makes ale-py's vector of Pong."""
  return atari_vector.make('pong', num_environments=num_environments, seed=seed)


SINGLE = {'pong': make_pong, 'cart_pole': make_cart_pole, 'sleep': Sleeper}
VECTORS = {
  'pong': {"ale-py's vector, threads": make_pongs},
  'cart_pole': {
    "Gymnasium's vector, sync": functools.partial(make_cart_poles, 'sync'),
    'vector written as one': functools.partial(
      make_cart_poles, 'vector_entry_point'
    ),
  },
  'sleep': {},
}


# The same for the rivals: gray frames of 84 x 84, sticky actions, no-ops.
def make_gymnasium_pong():
  """Makes Gymnasium's Pong like ours."""
  import ale_py

  gymnasium.register_envs(ale_py)
  made = gymnasium.make(
    'ALE/Pong-v5', frameskip=1, repeat_action_probability=0.25
  )
  return gymnasium.wrappers.AtariPreprocessing(made, noop_max=30)


class GymnasiumSleeper(gymnasium.Env):
  """The simulator that sleeps, with Gymnasium's interface."""

  observation_space = gymnasium.spaces.Box(-1.0, 1.0, (8,), np.float32)
  action_space = gymnasium.spaces.Discrete(2)
  _num_steps = 0

  def reset(self, *, seed=None, options=None):
    """Starts an episode."""
    super().reset(seed=seed)
    return np.zeros(8, np.float32), {}

  def step(self, action):
    """Sleeps; every 200th step ends an episode."""
    time.sleep(0.005)
    self._num_steps += 1
    return np.zeros(8, np.float32), 0.0, False, self._num_steps % 200 == 0, {}


GYMNASIUM = {
  'pong': make_gymnasium_pong,
  'cart_pole': functools.partial(gymnasium.make, 'CartPole-v1'),
  'sleep': GymnasiumSleeper,
}
ENVPOOL = {
  'pong': (
    'Pong-v5',
    {'stack_num': 1, 'repeat_action_probability': 0.25, 'noop_max': 30},
  ),
  'cart_pole': ('CartPole-v1', {}),
}


class Ours:
  """Games that are stepped with random actions."""

  def __init__(self, made):
    """Takes ownership of the games."""
    self._games = made
    self._random = np.random.default_rng(0)
    self._games.reset()

  def measure(self, seconds):
    """Returns steps per second of all environments."""
    num = self._games.num_games
    num_actions = self._games.spec.environment.actions.num_values
    actions = self._random.integers(0, num_actions, (1000, num), np.int32)
    start = time.perf_counter()
    steps = 0
    while (elapsed := time.perf_counter() - start) < seconds:
      self._games.step(actions[steps % 1000])
      steps += 1
    return steps * num / elapsed

  def close(self):
    """Closes the games."""
    self._games.close()


class Rival:
  """A vector of another library."""

  def __init__(self, made, num_actions, num_environments):
    """Takes ownership of the vector."""
    self._made = made
    self._shape = 1000, num_environments
    self._actions = np.random.default_rng(0).integers(
      0, num_actions, self._shape, np.int32
    )
    self._made.reset()

  def measure(self, seconds):
    """Returns steps per second of all environments."""
    start = time.perf_counter()
    steps = 0
    while (elapsed := time.perf_counter() - start) < seconds:
      self._made.step(self._actions[steps % 1000])
      steps += 1
    return steps * self._shape[1] / elapsed

  def close(self):
    """Closes the environments."""
    self._made.close()


def make_rivals(task, num_environments):
  """Returns vectors of the libraries that are installed, by name."""
  made = {}
  if importlib.util.find_spec('stable_baselines3'):
    from stable_baselines3.common import vec_env

    factories = [GYMNASIUM[task]] * num_environments
    made["SB3's DummyVecEnv"] = vec_env.DummyVecEnv(factories)
    if task != 'cart_pole':
      made["SB3's SubprocVecEnv"] = vec_env.SubprocVecEnv(
        factories, start_method='forkserver'
      )
  if importlib.util.find_spec('envpool') and task in ENVPOOL:
    # Its conversion to XLA, which it does without, does not know today's JAX.
    sys.modules['envpool.python.lax'] = None
    import envpool

    name, settings = ENVPOOL[task]
    made['EnvPool'] = envpool.make_gym(
      name, num_envs=num_environments, **settings
    )
  num_actions = 6 if task == 'pong' else 2
  return {
    name: Rival(each, num_actions, num_environments)
    for name, each in made.items()
  }


def make_ways(task, options):
  """Returns the ways to step a task, by name; the first is the baseline."""
  seeds = range(options.num_environments)
  single = SINGLE[task]
  ways = {'one by one': Ours(game_vectors.make_games(single, seeds, task))}
  for name, make in VECTORS[task].items():
    factory = vector.VectorFactory(make)
    ways[name] = Ours(game_vectors.make_games(factory, seeds, task))
  for num in () if task == 'cart_pole' else options.num_processes:
    ways[f'{num} processes'] = Ours(
      process_games.ProcessGames(single, seeds, task, num, _TIMEOUT_S)
    )
  return ways | make_rivals(task, options.num_environments)


def measure(ways, options):
  """Returns the rates of all rounds, in which ways take turns, by name."""
  rates = {name: [] for name in ways}
  for way in ways.values():
    way.measure(options.seconds / 4)
  for index in range(options.num_rounds):
    names = list(ways)
    for name in names if index % 2 == 0 else reversed(names):
      rates[name].append(ways[name].measure(options.seconds))
  return rates


def rows_of(task, rates):
  """Returns rows of the table: median rates, and ratios to the first way."""
  base = next(iter(rates.values()))
  rows = []
  for name, each in rates.items():
    ratios = [rate / first for rate, first in zip(each, base, strict=True)]
    low, high = min(ratios), max(ratios)
    rows.append([
      task,
      name,
      f'{statistics.median(each):,.0f}',
      f'{statistics.median(ratios):.2f}',
      f'{low:.2f} to {high:.2f}',
    ])  # fmt: skip
  return rows


class Acting:
  """Games, and a policy that acts on `rows_per_call` of them at a time."""

  def __init__(self, made, rows_per_call):
    """Takes ownership of the games; prepares the policy."""
    spec = made.spec.environment
    config = impala.IMPALAConfig.atari_paper()
    network = config.make_network(spec)
    core = acting.make_actor_core(network, spec)
    key = jax.random.PRNGKey(0)
    self._variables = jax.device_put(
      types.ActorVariables(
        params=network.init(key),
        hyperparameters=config.sample_hyperparameters(key),
        internal_rewards=np.ones(1, np.float32),
        steps=np.int32(0),
      )
    )
    self._select = jax.jit(core.select_action)
    self._rows = [
      slice(start, start + rows_per_call)
      for start in range(0, made.num_games, rows_per_call)
    ]
    self._states = [core.init(key, rows_per_call) for _ in self._rows]
    self._games = made
    self._timestep = made.reset()
    self.num_fetched = 0

  def step(self):
    """Selects actions for all environments and steps them."""
    actions = []
    for index, rows in enumerate(self._rows):
      timestep = jax.tree.map(
        lambda leaf, rows=rows: leaf[rows], self._timestep
      )
      action, self._states[index] = self._select(
        self._variables, timestep, self._states[index]
      )
      actions.append(np.asarray(action))
      self.num_fetched += 1
    self._timestep = self._games.step(np.concatenate(actions))

  def measure(self, seconds):
    """Returns steps per second of all environments."""
    start = time.perf_counter()
    steps = 0
    while (elapsed := time.perf_counter() - start) < seconds:
      self.step()
      steps += 1
    return steps * self._games.num_games / elapsed

  def count_transfers(self, num_steps=10):
    """Returns arrays sent to the device plus those fetched, per step of all."""
    self.step()
    self.num_fetched = 0
    with _captured_log() as log, jax.transfer_guard_host_to_device('log'):
      for _ in range(num_steps):
        self.step()
      num_sent = log().count('host-to-device transfer')
    return f'{num_sent / num_steps:g} + {self.num_fetched / num_steps:g}'

  def close(self):
    """Closes the games."""
    self._games.close()


@contextlib.contextmanager
def _captured_log():
  """Yields a function that returns what was written to standard error."""
  with tempfile.TemporaryFile() as file:
    saved = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
      yield lambda: os.pread(file.fileno(), 2**20, 0).decode()
    finally:
      os.dup2(saved, 2)
      os.close(saved)


def main():
  """Measures and prints."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--num_environments', type=int, default=8)
  parser.add_argument('--num_processes', type=int, nargs='*', default=[8])
  parser.add_argument('--num_rounds', type=int, default=5)
  parser.add_argument('--seconds', type=float, default=1.5)
  parser.add_argument('--tasks', nargs='*', default=list(SINGLE))
  options = parser.parse_args()
  print(common.machine_line())
  rows = []
  for task in options.tasks:
    for make in (make_ways, make_acting_ways):
      with contextlib.ExitStack() as stack:
        ways = make(task, options)
        for way in ways.values():
          stack.callback(way.close)
        transfers = [
          way.count_transfers() if isinstance(way, Acting) else ''
          for way in ways.values()
        ]
        rates = measure(ways, options)
      rows += [
        [*row, counted]
        for row, counted in zip(rows_of(task, rates), transfers, strict=True)
      ]
  common.print_table(
    f'{options.num_environments} environments, stepped together',
    ['task', 'way', 'steps/s', 'ratio', 'of rounds', 'transfers'],
    rows,
  )


def make_acting_ways(task, options):
  """Returns the ways to act in a task and step it, by name."""
  seeds = range(options.num_environments)
  num_rows = len(seeds)
  make = functools.partial(game_vectors.make_games, seeds=seeds, name=task)
  ways = {
    'acting, a call each': Acting(make(SINGLE[task]), 1),
    'acting, one call': Acting(make(SINGLE[task]), num_rows),
  }
  for name, make_vector in VECTORS[task].items():
    factory = vector.VectorFactory(make_vector)
    ways[f'acting, one call, {name}'] = Acting(make(factory), num_rows)
  return ways


if __name__ == '__main__':
  main()
