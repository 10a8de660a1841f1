"""Games between members and scripted players."""

import functools

import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import types
from ftwax.agents import impala
from ftwax.agents.actor_critic import acting
from ftwax.runtime.device import tournament

EPISODE_LENGTH = 5
NUM_MEMBERS = 2


@pytest.fixture(scope='module')
def game():
  return functional_fakes.make_team_matching(2, EPISODE_LENGTH)


@pytest.fixture(scope='module')
def actor_and_variables(game):
  config = impala.IMPALAConfig(hidden_size=4, vector_hidden_sizes=(4,))
  network = impala.make_network(game.spec, config)
  keys = jax.random.split(jax.random.PRNGKey(0), NUM_MEMBERS)
  variables = types.ActorVariables(
    params=jax.vmap(network.init)(keys),
    hyperparameters=jax.vmap(config.sample_hyperparameters)(keys),
    internal_rewards=jnp.ones((NUM_MEMBERS, 1)),
    steps=jnp.zeros((NUM_MEMBERS,), jnp.int32),
  )
  return acting.make_actor_core(network, game.spec), variables


def _knows(key, state, player):
  """Names the sign that the player is shown."""
  del key
  return state.players.sign[player]


def _is_wrong(key, state, player):
  del key
  return 1 - state.players.sign[player]


def test_the_one_who_knows_beats_the_others(game, actor_and_variables):
  actor, variables = actor_and_variables
  scripts = {'knows': _knows, 'is_wrong': _is_wrong}
  results = tournament.round_robin(
    jax.random.PRNGKey(1), game, actor, variables, scripts, 4, EPISODE_LENGTH
  )
  assert results.teams.shape == (6 * 4, 2, 2)
  first, second = results.teams[:, 0, 0], results.teams[:, 1, 0]
  knows, is_wrong = NUM_MEMBERS, NUM_MEMBERS + 1
  np.testing.assert_array_equal(results.outcomes[first == knows], 1.0)
  np.testing.assert_array_equal(results.outcomes[second == knows], 0.0)
  # Every right answer pays one, to the player who gave it.
  by_team = results.events[..., 0].reshape(-1, 2, 2).sum(axis=2)
  np.testing.assert_array_equal(by_team[first == knows, 0], 2 * EPISODE_LENGTH)
  np.testing.assert_array_equal(by_team[second == is_wrong, 1], 0)
  np.testing.assert_array_equal(
    results.outcomes, 0.5 + 0.5 * np.sign(by_team[:, 0] - by_team[:, 1])
  )


def test_the_random_player_draws_its_actions(game):
  script = tournament.make_random_script(game)
  keys = jax.random.split(jax.random.PRNGKey(0), 300)
  actions = jax.vmap(lambda key: script(key, None, 0))(keys)
  counts = np.bincount(np.asarray(actions), minlength=2)
  assert counts.sum() == 300 and counts.min() > 110


def test_a_film_shows_the_game_step_by_step(game, actor_and_variables):
  actor, variables = actor_and_variables

  def render(state):
    step = jnp.max(state.players.num_steps).astype(jnp.uint8)
    return jnp.full((2, 3, 3), step)

  frames = tournament.film(
    jax.random.PRNGKey(0), game, actor, variables, render, [1, 0], 4
  )
  assert frames.shape == (4, 2, 3, 3) and frames.dtype == np.uint8
  np.testing.assert_array_equal(frames[:, 0, 0, 0], [0, 1, 2, 3])


def test_bad_tournaments_are_told(game, actor_and_variables):
  actor, variables = actor_and_variables
  run = functools.partial(
    tournament.play, jax.random.PRNGKey(0), game, actor, variables, {}
  )
  with pytest.raises(ValueError, match=r'must seat each of the 2 players'):
    run(np.zeros((2, 2, 2), np.int32), EPISODE_LENGTH)
  teams = np.array([[[0, 0], [1, 1]]])
  with pytest.raises(ValueError, match=r'num_steps \(2\) must be those of'):
    run(teams, 2)
