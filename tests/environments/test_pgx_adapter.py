"""Games in which players take turns: pgx's interface, by a fake and by pgx."""

import json
import pathlib
from typing import NamedTuple

import game_trees
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import types
from ftwax.environments import compiled_games, pgx_adapter
from ftwax.population import players


class Stones(NamedTuple):
  """State of a game of three stones, of which the last one wins."""

  current_player: jax.Array
  left: jax.Array
  rewards: jax.Array
  terminated: jax.Array
  truncated: jax.Array
  legal_action_mask: jax.Array

  def replace(self, **fields):
    return self._replace(**fields)


class FakePgx:
  """Players take one or two stones by turns; illegal moves lose, as in pgx."""

  num_players, num_actions = 2, 2

  def init(self, key):
    first = jax.random.bernoulli(key).astype(jnp.int32)
    no, yes = jnp.bool_(False), jnp.bool_([True, True])
    return Stones(first, jnp.int32(3), jnp.zeros(2), no, no, yes)

  def step(self, state, action, key):
    del key
    mover, left = state.current_player, state.left - action - 1
    is_illegal = ~state.legal_action_mask[action]
    is_over = is_illegal | (left == 0)
    wins = jnp.where(is_illegal, -1.0, jnp.where(left == 0, 1.0, 0.0))
    return Stones(
      1 - mover,
      left,
      jnp.full(2, -wins).at[mover].set(wins),
      is_over,
      state.truncated,
      (jnp.arange(2) < left) | is_over,  # All at the end, as in pgx.
    )

  def _observe(self, state, player):
    return jnp.stack([state.left, player])


@pytest.fixture
def game():
  return pgx_adapter.from_pgx(FakePgx())


def _play(game, key, moves):
  """Plays moves of whose turn it is; returns the seat that began, and steps."""
  state, timestep = game.reset(key)
  first, seat, steps = int(state.state.current_player), None, []
  for move in moves:
    seat = int(state.state.current_player)
    action = jnp.zeros(2, jnp.int32).at[seat].set(move)
    state, timestep = game.step(state, action)
    steps.append(timestep)
  return first, state, steps


def test_a_seat_whose_turn_it_is_not_is_absent(game, key):
  state, timestep = game.reset(key)
  mover = int(state.state.current_player)
  seen = timestep.observation
  np.testing.assert_array_equal(seen['action_mask'][mover], [1, 1])
  np.testing.assert_array_equal(seen['board'], [[3, 0], [3, 1]])
  first, _, steps = _play(game, key, [0, 0, 0])
  own, other = [
    [int(one.step_type[seat]) for one in (timestep, *steps)]
    for seat in (first, 1 - first)
  ]
  assert own == [types.FIRST, types.ABSENT, types.MID, types.LAST]
  assert other == [types.ABSENT, types.FIRST, types.ABSENT, types.LAST]


def test_the_end_rewards_both_seats_at_one_step(game, key):
  first, state, steps = _play(game, key, [0, 1])
  np.testing.assert_array_equal(steps[0].reward, [0.0, 0.0])
  np.testing.assert_array_equal(steps[0].discount, [1.0, 1.0])
  np.testing.assert_array_equal(steps[1].step_type, [types.LAST] * 2)
  np.testing.assert_array_equal(steps[1].discount, [0.0, 0.0])
  # The loser moved one step earlier, and gets its reward while it waits.
  expected = [-1.0, 1.0] if first == 0 else [1.0, -1.0]
  np.testing.assert_array_equal(steps[1].reward, expected)
  np.testing.assert_array_equal(game.outcome(state), expected)


def test_illegal_moves_lose(game, key):
  first, _, steps = _play(game, key, [1, 1])
  assert steps[1].reward[1 - first] == -1.0 and steps[1].reward[first] == 1.0
  assert steps[1].step_type[0] == types.LAST


def test_the_script_takes_a_win(game, key):
  first, state, _ = _play(game, key, [0])
  look_ahead = game.scripts['look_ahead']
  assert look_ahead(key, state, 1 - first) == 1  # Both stones.


def test_random_players_are_legal(game, key):
  games = compiled_games.CompiledGames(game, 50, 0, 'stones')
  player = players.uniform(game.spec.actions)
  state, timestep = player.init(key, 100), games.reset()
  act, ended = jax.jit(player.act), 0
  for _ in range(6):
    mask = timestep.observation['action_mask']
    action, state = act(None, jnp.arange(100), timestep, state)
    decides = timestep.step_type < types.LAST
    assert mask[np.arange(100), action][decides].all()
    timestep = games.step(action)
    is_last = timestep.step_type == types.LAST
    ended += is_last.sum()
    assert (np.abs(timestep.reward) == is_last).all()
  assert ended >= 100


@pytest.mark.parametrize(
  ('name', 'rewards'),
  [
    pytest.param('kuhn_poker', {1, 2}, marks=pytest.mark.ci),
    pytest.param(
      'leduc_holdem', {0, 1, 3, 5, 7, 9, 11, 13}, marks=pytest.mark.ci
    ),
    ('tic_tac_toe', {0, 1}),
    pytest.param('connect_four', {0, 1}, marks=pytest.mark.ci),
  ],
)
def test_games_of_pgx_play(name, rewards, key):
  pytest.importorskip('pgx', reason='the extra envs is not there')
  game = pgx_adapter.make(name)
  games = compiled_games.CompiledGames(game, 64, 0, name)
  player = players.uniform(game.spec.actions)
  state, timestep = player.init(key, 128), games.reset()
  act, seen = jax.jit(player.act), set()
  for _ in range(50):
    action, state = act(None, jnp.arange(128), timestep, state)
    timestep = games.step(action)
    reward = timestep.reward.reshape(64, 2)
    is_last = timestep.step_type[::2] == types.LAST
    np.testing.assert_array_equal(reward.sum(axis=1), 0.0)
    assert (reward[~is_last] == 0.0).all()
    seen |= set(np.abs(reward[is_last, 0]).tolist())
    games.outcomes(np.flatnonzero(is_last))
  assert seen <= rewards and 1.0 in seen
  first = jax.tree.map(lambda leaf: leaf[0], games.state)
  assert jax.jit(game.display.render)(first).dtype == jnp.uint8


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'in_open_spiel'),
  [('kuhn_poker', 'kuhn_poker'), ('leduc_holdem', 'leduc_poker')],
)
def test_exact_values_are_those_of_open_spiel(name, in_open_spiel):
  pytest.importorskip('pgx', reason='the extra envs is not there')
  # Made by record_open_spiel.py.
  path = pathlib.Path(__file__).parents[1] / 'population' / 'open_spiel.json'
  records = json.loads(path.read_text())['exploitability_of_uniform']
  game, copies = pgx_adapter.make(name), game_trees.COPIES[name]
  value = game_trees.value(game, copies, game_trees.uniform())
  np.testing.assert_allclose(value, records[in_open_spiel], rtol=1e-6)
  equal = game_trees.value(
    game, copies, game_trees.uniform(), game_trees.uniform()
  )
  np.testing.assert_allclose(equal, 0.0, atol=1e-9)


def test_unknown_games_are_told(monkeypatch):
  pytest.importorskip('pgx', reason='the extra envs is not there')
  with pytest.raises(ValueError, match=r"name \('poker'\) must be the name of"):
    pgx_adapter.make('poker')
