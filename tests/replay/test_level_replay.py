"""Prioritized level replay: scores, draws and what the buffer keeps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.replay import level_replay

CONFIG = level_replay.LevelReplayConfig(num_levels=6, replay_probability=1.0)
NUM_GAMES = 4

_draw = jax.jit(level_replay.draw, static_argnums=2)


def _play(state, errors):
  """Adds two errors in each game, whose mean is the one given."""
  return level_replay.add_errors(
    state,
    jnp.arange(NUM_GAMES),
    jnp.array([errors, -np.array(errors)]),
    jnp.ones((2, NUM_GAMES)),
  )


def _start(key, config=CONFIG):
  return _draw(key, level_replay.init(config, NUM_GAMES), config)


def test_levels_are_new_while_the_buffer_is_empty(key):
  state = _start(key)
  np.testing.assert_array_equal(state.slots, CONFIG.num_levels)
  assert len(np.unique(state.playing, axis=0)) == NUM_GAMES


def test_played_levels_are_scored_and_played_again(key):
  first = _start(key)
  state = _draw(key, _play(first, [3.0, 1.0, 4.0, 2.0]), CONFIG)
  np.testing.assert_array_equal(
    state.scores, [4.0, 3.0, 2.0, 1.0, -np.inf, -np.inf]
  )
  np.testing.assert_array_equal(
    state.keys[:4], np.asarray(first.playing)[[2, 0, 3, 1]]
  )
  # All four that are in the buffer, each once.
  np.testing.assert_array_equal(np.sort(state.slots), [0, 1, 2, 3])
  np.testing.assert_array_equal(state.playing, state.keys[state.slots])


def test_a_level_that_is_played_again_gets_a_new_score(key):
  state = _draw(key, _play(_start(key), [3.0, 1.0, 4.0, 2.0]), CONFIG)
  easy = np.asarray(state.playing)[np.argmin(state.slots)]
  errors = np.where(np.asarray(state.slots) == 0, 0.5, 5.0)
  state = _draw(key, _play(state, errors), CONFIG)
  np.testing.assert_array_equal(state.scores[:4], [5.0, 5.0, 5.0, 0.5])
  np.testing.assert_array_equal(state.keys[3], easy)
  assert len(np.unique(state.keys[:4], axis=0)) == 4


def test_the_buffer_keeps_the_levels_with_the_largest_scores(key):
  config = dataclasses.replace(CONFIG, replay_probability=0.0)
  state = _start(key, config)
  for errors in ([3.0, 1.0, 4.0, 2.0], [2.5, 9.0, 0.5, 0.1]):
    state = _draw(key, _play(state, errors), config)
  np.testing.assert_array_equal(state.scores, [9.0, 4.0, 3.0, 2.5, 2.0, 1.0])


@pytest.mark.parametrize('staleness', [0.0, 1.0])
def test_levels_are_drawn_by_rank_and_age(key, staleness):
  """Weights are 1, 1/2, ... of ranks at a temperature of 1, or of ages."""
  config = dataclasses.replace(CONFIG, temperature=1.0, staleness=staleness)
  state = level_replay.init(config, 1)._replace(
    scores=jnp.array([8.0, 4.0, 2.0, 1.0, -jnp.inf, -jnp.inf]),
    drawn_at=jnp.array([3, 9, 8, 5, 0, 0]),
    num_draws=jnp.int32(10),
  )
  slots = jax.vmap(lambda key: _draw(key, state, config).slots[0])(
    jax.random.split(key, 4000)
  )
  shares = np.bincount(slots, minlength=6)[:6] / 4000
  weights = np.array([1, 1 / 2, 1 / 3, 1 / 4, 0, 0])
  if staleness:
    weights = np.array([7, 1, 2, 5, 0, 0])
  np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.03)


def test_more_games_than_levels_are_new_ones(key):
  config = dataclasses.replace(CONFIG, num_levels=2)
  state = _draw(key, _play(_start(key, config), [3.0, 1.0, 4.0, 2.0]), config)
  assert sorted(np.asarray(state.slots).tolist()) == [0, 1, 2, 2]


@pytest.mark.parametrize(
  'field, value',
  [('num_levels', 0), ('temperature', 0.0), ('staleness', 1.5)],
)
def test_values_out_of_range_are_told(field, value):
  with pytest.raises(ValueError, match=rf'{field} \({value}\) must be'):
    level_replay.LevelReplayConfig(**{field: value})
