"""Speed of environments, in steps per second summed over players.

    uv run benchmarks/environments.py

Measures the built-in capture the flag with 64 games of two against two in one
`lax.scan`, with random and with scripted actions; and stepped from Python, as
in the local and distributed runtimes: one game, and 32 games in one compiled
call. PettingZoo's games are measured if they are installed.
"""

import functools

import common
import jax
import jax.numpy as jnp
import numpy as np

from ftwax.environments import (
  capture_the_flag,
  compiled_games,
  functional,
  game_vectors,
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
  """Returns player steps per second of `_NUM_GAMES` games in a scan.

  Args:
    game: a functional game.
    choose: `(key, states of the games) -> actions` [num_games, P].
  """
  vector = functional.vectorize(game, _NUM_GAMES)

  def step(carry, _):
    key, state, _ = carry
    key, action_key = jax.random.split(key)
    action = choose(action_key, state.state)
    return (key, *vector.step(state, action)), None

  # The carry holds the whole timestep, so that XLA cannot skip any of it.
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
  """Returns player steps per second of capture the flag, random actions."""
  game = capture_the_flag.make(config)

  def choose(key, state):
    return random_actions(key, game.spec, state.cell.shape)

  return measure_vector(game, choose)


def measure_scripted(strength):
  """Returns player steps per second of capture the flag, scripted actions."""
  config = capture_the_flag.CaptureTheFlagConfig()
  script = opponents.make_script(strength, config)

  def play_one(key, state):
    keys = jax.random.split(key, config.num_players)
    players = jnp.arange(config.num_players)
    return jax.vmap(script, in_axes=(0, None, 0))(keys, state, players)

  play = jax.vmap(play_one)

  def choose(key, state):
    return play(jax.random.split(key, _NUM_GAMES), state)

  return measure_vector(capture_the_flag.make(config), choose)


def measure_host(make_vector):
  """Returns player steps per second of a game vector; None if not installed."""
  try:
    vector = make_vector()
  except ImportError as error:
    print(f'left out: {error}')
    return None
  generator = np.random.default_rng(0)
  num_rows = vector.num_games * vector.spec.num_players
  num_choices = jax.tree.map(
    lambda leaf: leaf.num_values, vector.spec.environment.actions
  )

  vector.reset()

  def call():
    for _ in range(_NUM_STEPS):
      vector.step(
        jax.tree.map(
          lambda num: generator.integers(num, size=num_rows), num_choices
        )
      )

  seconds = common.measure(call, seconds=_SECONDS, warmup=1).median
  vector.close()
  return _NUM_STEPS * num_rows / seconds


def make_one(make_game):
  """Returns a vector of a single Python game."""
  return game_vectors.TeamGames([make_game()], 'game')


def make_compiled(num_games):
  """Returns a vector of capture the flag, stepped by one compiled call."""
  return compiled_games.CompiledGames(
    capture_the_flag.make(), num_games, seed=0, name='game'
  )


def make_spread():
  """Makes a small game with PettingZoo's interface."""
  from mpe2 import simple_spread_v3

  env = simple_spread_v3.parallel_env(N=3)
  return pettingzoo_adapter.PettingZooGame(env, teams=(0, 0, 0), seed=0)


def main():
  """Measures and prints."""
  make_config = capture_the_flag.CaptureTheFlagConfig
  calls = {
    'features, random': lambda: measure_random(make_config()),
    'features, random, 4v4': lambda: measure_random(make_config(team_size=4)),
    'rgb 42x42, random': lambda: measure_random(make_config(observation='rgb')),
    **{
      f'features, {strength}': functools.partial(measure_scripted, strength)
      for strength in opponents.STRENGTHS
    },
    **{
      f'features, {num_games} on the host': functools.partial(
        measure_host, functools.partial(make_compiled, num_games)
      )
      for num_games in (1, _NUM_HOST_GAMES)
    },
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
