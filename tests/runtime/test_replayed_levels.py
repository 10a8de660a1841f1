"""Level replay in the rounds of the device runtime."""

import functools

import functional_fakes
import jax
import numpy as np
import population_helpers
import pytest
import run_helpers

import ftwax
from ftwax.replay import level_replay
from ftwax.runtime import prepare
from ftwax.runtime.device import train

CONFIG = level_replay.LevelReplayConfig(num_levels=8, replay_probability=1.0)


@functools.cache
def _make_loop():
  parts = prepare.prepare(
    population_helpers.make_experiment(level_replay=CONFIG)
  )
  return train.make_loop(parts)


@pytest.fixture(scope='module')
def rounds():
  """The state at the start of a round, after an iteration, and of the next."""
  loop = _make_loop()
  start = jax.jit(loop.init)(jax.random.PRNGKey(0))
  played, _ = jax.jit(functools.partial(loop.call, 1))(start)
  return start, played, jax.jit(loop.begin_round)(played)


def _assert_played(state):
  """Asserts that the games of a round are those of its levels."""
  next_keys = jax.vmap(jax.random.split)(state.levels.playing)[:, 0]
  np.testing.assert_array_equal(state.rollout.environment.games.key, next_keys)


def test_games_start_from_the_levels(rounds):
  start, _, following = rounds
  _assert_played(start)
  _assert_played(following)
  assert (np.asarray(start.levels.slots) == CONFIG.num_levels).all()


def test_levels_are_scored_by_td_errors(rounds):
  """Recomputed game by game, from what the members saw."""
  start, played, _ = rounds
  loop = _make_loop()
  _, (trajectories, _) = jax.jit(loop.act)(start.training, start.rollout)
  reward, discount, values, moved = [
    np.concatenate(np.asarray(leaf)[:, :-1])  # [R * T, N, M]
    for leaf in (
      trajectories.timestep.reward,
      trajectories.timestep.discount,
      trajectories.value,
      trajectories.timestep.step_type != 0,
    )
  ]
  routes = start.rollout.environment.match.routes
  num_games, num_players = routes.seats.shape
  errors, counts = np.zeros(num_games), np.zeros(num_games)
  gamma = np.asarray(start.training.hyperparameters.discount)
  weights = np.asarray(start.training.internal_rewards)[:, 0]
  num_steps, num_members, num_rows = values.shape
  for row, seat in enumerate(np.asarray(routes.order)):
    member, own = divmod(row, num_rows)
    for t in range(1, num_steps):
      if moved[t, member, own]:
        target = (
          weights[member] * reward[t, member, own]
          + gamma[member] * discount[t, member, own] * values[t, member, own]
        )
        errors[seat // num_players] += abs(target - values[t - 1, member, own])
        counts[seat // num_players] += 1
  assert num_members * num_rows == routes.order.size
  np.testing.assert_allclose(played.levels.errors, errors, rtol=1e-4)
  np.testing.assert_array_equal(played.levels.num_errors, counts)


def test_the_next_round_plays_the_levels_again(rounds):
  start, played, following = rounds
  scores = np.asarray(played.levels.errors / played.levels.num_errors)
  num_games = len(scores)
  best = np.argsort(-scores)
  np.testing.assert_allclose(following.levels.scores[:num_games], scores[best])
  np.testing.assert_array_equal(
    following.levels.keys[:num_games], np.asarray(start.levels.playing)[best]
  )
  assert set(np.asarray(following.levels.slots)) == set(range(num_games))


@pytest.mark.parametrize('runtime', ['local', 'distributed'])
def test_other_runtimes_refuse_it(tmp_path, runtime):
  experiment = population_helpers.make_experiment(level_replay=CONFIG)
  with pytest.raises(ValueError, match="level_replay .* runtime='device'"):
    run_helpers.make_run(runtime, tmp_path)(experiment)
  assert not (tmp_path / 'run').exists()


def test_an_environment_of_one_player_is_refused():
  with pytest.raises(ValueError, match='level_replay must be None for'):
    ftwax.make_train(
      run_helpers.make_experiment(
        run_helpers.FEED_FORWARD,
        functional_fakes.make_matching(),
        level_replay=CONFIG,
      )
    )
