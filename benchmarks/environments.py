"""How many steps a second environments take, all players counted.

    uv run benchmarks/environments.py

The built-in capture the flag, 64 games of two against two in one `lax.scan`,
under random actions and under scripted ones; and on the host, as runtimes with
a replay server play it: one game, 32 of them one after the other, and 32 with
one compiled call. Games of Melting Pot and PettingZoo are measured where they
are installed.
"""

import functools

import common
import jax
import numpy as np

from ftwax.environments import (
  capture_the_flag,
  functional,
  game_vectors,
  games,
  meltingpot_paintball,
  pettingzoo_adapter,
)
from ftwax.environments.capture_the_flag import opponents

_SECONDS = 5.0
_NUM_GAMES = 64
_NUM_HOST_GAMES = 32
_NUM_STEPS = 100


def random_actions(key, spec, shape):
  """Draws an action for every part of `spec`, int32 [*shape]."""
  leaves, structure = jax.tree.flatten(spec.actions)
  keys = jax.random.split(key, len(leaves))
  return structure.unflatten([
    jax.random.randint(part_key, shape, 0, leaf.num_values)
    for part_key, leaf in zip(keys, leaves, strict=True)
  ])  # fmt: skip


def measure_vector(game, choose):
  """Measures player steps a second of `_NUM_GAMES` games in a scan.

  Args:
    game: a functional game.
    choose: (key, states of the games) -> actions [games, P].
  """
  vector = functional.vectorize(game, _NUM_GAMES)

  def step(carry, _):
    key, state, _ = carry
    key, action_key = jax.random.split(key)
    action = choose(action_key, state.state)
    return (key, *vector.step(state, action)), None

  # The whole timestep is carried along, so that none of it is left out.
  run = jax.jit(
    lambda carry: jax.lax.scan(step, carry, length=_NUM_STEPS)[0],
    donate_argnums=0,
  )
  key = jax.random.PRNGKey(0)
  carry = (jax.random.PRNGKey(1), *jax.jit(vector.reset)(key))

  def call():
    nonlocal carry
    carry = jax.block_until_ready(run(carry))

  seconds = common.measure(call, seconds=_SECONDS).median
  return _NUM_STEPS * _NUM_GAMES * len(game.teams) / seconds


def measure_random(config):
  """Measures capture the flag under random actions."""
  game = capture_the_flag.make(config)

  def choose(key, state):
    return random_actions(key, game.spec, state.cell.shape)

  return measure_vector(game, choose)


def measure_scripted(strength):
  """Measures capture the flag when scripts play all seats."""
  config = capture_the_flag.CaptureTheFlagConfig()
  script = opponents.make_script(strength, config)
  play = jax.vmap(opponents.play_all(script, config))

  def choose(key, state):
    return play(jax.random.split(key, _NUM_GAMES), state)

  return measure_vector(capture_the_flag.make(config), choose)


def measure_host(make_vector):
  """Measures player steps a second of a vector of games, None if it cannot."""
  try:
    vector = make_vector()
  except ImportError as error:
    print(f'left out: {error}')
    return None
  generator = np.random.default_rng(0)
  shape = vector.num_games, len(vector.spec.teams)
  num_choices = jax.tree.map(
    lambda leaf: leaf.num_values, vector.spec.environment.actions
  )

  def call():
    for _ in range(_NUM_STEPS):
      vector.step(
        jax.tree.map(
          lambda num: generator.integers(num, size=shape), num_choices
        )
      )

  seconds = common.measure(call, seconds=_SECONDS, warmup=1).median
  vector.close()
  return _NUM_STEPS * shape[0] * shape[1] / seconds


def make_one(make_game):
  """Returns a vector of one game of Python."""
  return game_vectors.HostGameVector([make_game()])


def make_one_by_one():
  """Returns capture the flag in JAX, games stepped one after the other."""
  game = capture_the_flag.make()
  return game_vectors.HostGameVector(
    [games.DmGame(game, seed) for seed in range(_NUM_HOST_GAMES)]
  )


def make_compiled():
  """Returns the same games, stepped by one compiled call."""
  return game_vectors.CompiledGameVector(
    capture_the_flag.make(), _NUM_HOST_GAMES, seed=0
  )


def make_spread():
  """Makes a small game of PettingZoo's family."""
  from mpe2 import simple_spread_v3

  env = simple_spread_v3.parallel_env(N=3)
  return pettingzoo_adapter.PettingZooGame(env, teams=(0, 0, 0), seed=0)


def main():
  """Measures and prints."""
  make_config = capture_the_flag.CaptureTheFlagConfig
  small = functools.partial(
    meltingpot_paintball.make_paintball, 0, num_steps=300
  )
  calls = {
    'features, random': lambda: measure_random(make_config()),
    'features, random, 4v4': lambda: measure_random(make_config(team_size=4)),
    'rgb 42x42, random': lambda: measure_random(make_config(observation='rgb')),
    **{
      f'features, {strength}': functools.partial(measure_scripted, strength)
      for strength in opponents.STRENGTHS
    },
    'features, one on the host': lambda: measure_host(
      lambda: make_one(lambda: games.DmGame(capture_the_flag.make(), seed=0))
    ),
    'features, 32 one by one': lambda: measure_host(make_one_by_one),
    'features, 32 by one call': lambda: measure_host(make_compiled),
    'Melting Pot, own map': lambda: measure_host(lambda: make_one(small)),
    'Melting Pot, drawn map': lambda: measure_host(
      lambda: make_one(
        functools.partial(small, ascii_map=meltingpot_paintball.draw_map(0))
      )
    ),
    'PettingZoo, simple_spread': lambda: measure_host(
      lambda: make_one(make_spread)
    ),
  }
  measured = {name: call() for name, call in calls.items()}
  rows = [(name, f'{value:,.0f}') for name, value in measured.items() if value]
  print(common.machine_line())
  common.print_table(
    f'capture the flag, {_NUM_GAMES} games: player steps a second',
    ('what', 'steps/s'),
    rows,
  )


if __name__ == '__main__':
  main()
