"""Games between members and scripted players."""

import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import types
from ftwax.agents import impala
from ftwax.agents.actor_critic import acting
from ftwax.networks import cores, torsos
from ftwax.population import players, seating, tournament
from ftwax.population import population_config as config_lib
from ftwax.population import state as state_lib
from ftwax.runtime import evaluation, sharding
from ftwax.runtime.device import compiled_arena, matches

EPISODE_LENGTH = 5
NUM_MEMBERS = 2


@pytest.fixture(scope='module')
def game():
  return functional_fakes.make_team_matching(2, EPISODE_LENGTH)


@pytest.fixture(scope='module')
def actor_and_variables(game):
  config = impala.IMPALAConfig(
    core=cores.LSTM(4), torso=torsos.Torso(hidden_sizes=(4,))
  )
  network = config.make_network(game.spec)
  keys = jax.random.split(jax.random.PRNGKey(0), NUM_MEMBERS)
  variables = types.ActorVariables(
    params=jax.vmap(network.init)(keys),
    hyperparameters=jax.vmap(config.sample_hyperparameters)(keys),
    internal_rewards=jnp.ones((NUM_MEMBERS, 1)),
    steps=jnp.zeros((NUM_MEMBERS,), jnp.int32),
  )
  return acting.make_actor_core(network, game.spec), variables


def test_the_one_who_knows_beats_the_others(game, actor_and_variables):
  actor, variables = actor_and_variables
  opponents = {
    'knows': players.scripted(functional_fakes.name_sign),
    'is_wrong': players.scripted(functional_fakes.name_other_sign),
  }
  results = matches.round_robin(
    jax.random.PRNGKey(1), game, actor, variables, opponents, 4
  )
  assert [result.place for result in results] == list(range(6 * 4))
  seats = np.stack([result.seats for result in results])
  outcomes = np.stack([result.outcome for result in results])
  first, second = seats[:, 0], seats[:, 2]
  knows, is_wrong = NUM_MEMBERS, NUM_MEMBERS + 1
  np.testing.assert_array_equal(outcomes[first == knows], [[1, -1]] * 6)
  np.testing.assert_array_equal(outcomes[second == knows], [[-1, 1]] * 6)
  # Every right answer pays one, to the player who gave it.
  returns = np.stack([result.returns[:, 0] for result in results])
  by_team = returns.reshape(-1, 2, 2).sum(axis=2)
  np.testing.assert_array_equal(by_team[first == knows, 0], 2 * EPISODE_LENGTH)
  np.testing.assert_array_equal(by_team[second == is_wrong, 1], 0)
  lead = np.sign(by_team[:, 0] - by_team[:, 1])
  np.testing.assert_array_equal(outcomes, np.stack([lead, -lead], axis=1))
  assert all(result.length == EPISODE_LENGTH for result in results)
  summary = evaluation.summarize(results, game.teams, 4, anchor=is_wrong)
  assert summary.ratings.argmax() == knows
  np.testing.assert_array_equal(summary.win_rates[knows, :knows], 1.0)


def test_teams_may_be_mixed(game, actor_and_variables):
  actor, variables = actor_and_variables
  opponents = {
    'knows': players.scripted(functional_fakes.name_sign),
    'uniform': players.uniform(game.spec.actions),
  }
  seats = np.array([[0, 2, 1, 3], [2, 1, 0, 3], [1, 3, 0, 2]], np.int32)
  results = matches.play(
    jax.random.PRNGKey(1), game, actor, variables, opponents, seats
  )
  for result, row in zip(results, seats, strict=True):
    np.testing.assert_array_equal(result.seats, row)
    returns = result.returns[:, 0]
    np.testing.assert_array_equal(returns[row == 2], EPISODE_LENGTH)
    assert 0 <= returns.min() < EPISODE_LENGTH


def test_games_are_dealt_out_in_batches_of_an_evaluation(
  game, actor_and_variables
):
  actor, variables = actor_and_variables
  opponents = {
    'knows': players.scripted(functional_fakes.name_sign),
    'is_wrong': players.scripted(functional_fakes.name_other_sign),
    'uniform': players.uniform(game.spec.actions),
  }
  # Members meet opponents alone, and have other numbers of seats than they.
  _, places = seating.make_evaluation_seating(
    game.teams, NUM_MEMBERS, 2, [(0, 1)] * len(opponents)
  )
  results = matches.round_robin(
    jax.random.PRNGKey(1), game, actor, variables, opponents, 4, places
  )
  num_games = 10 * 4
  assert len(places) < num_games
  expected = tournament.round_robin(5, 4, game.teams)
  assert [result.place for result in results] == list(range(num_games))
  np.testing.assert_array_equal([r.seats for r in results], expected)
  knows, is_wrong = NUM_MEMBERS, NUM_MEMBERS + 1
  for result in results:
    on_seats = result.returns[:, 0]
    assert (on_seats[result.seats == knows] == EPISODE_LENGTH).all()
    assert (on_seats[result.seats == is_wrong] == 0).all()


def test_of_cpus_one_plays_all_games(game, actor_and_variables):
  """Each would play all of them, in twice the time with the same results."""
  actor, variables = actor_and_variables
  _, places = seating.make_evaluation_seating(game.teams, NUM_MEMBERS, 2, [])
  arena = compiled_arena.make_arena(
    game, seating.from_seats(places, NUM_MEMBERS, game.teams), []
  )
  results = []
  for num_devices in (1, NUM_MEMBERS):
    mesh = sharding.make_mesh(jax.devices()[:num_devices])
    games = matches.Matches(arena, actor, mesh)
    placed = jax.device_put(variables, sharding.spread(mesh))
    games.compile(placed, places)
    state = games._start(jax.random.PRNGKey(1), jnp.asarray(places), ())
    assert state.lengths.sharding.device_set == {jax.devices()[0]}
    results.append(games.play(jax.random.PRNGKey(1), placed, places))
  jax.tree.map(np.testing.assert_array_equal, *results)


def test_batches_have_the_seats_of_a_seating():
  teams = (0, 0, 1, 1)
  _, places = seating.make_evaluation_seating(teams, 2, 4, [(0, 1)])
  games = tournament.round_robin(3, 10, teams)
  dealt = []
  for rows, batch in seating.fill(games, places):
    assert batch.shape == places.shape
    np.testing.assert_array_equal(
      np.bincount(batch.flat), np.bincount(places.flat)
    )
    np.testing.assert_array_equal(batch[: len(rows)], games[rows])
    dealt += rows.tolist()
  assert sorted(dealt) == list(range(len(games)))
  with pytest.raises(ValueError, match=r'seats \[0, 0, 0, 3\] of a game must'):
    list(seating.fill(np.array([[0, 0, 0, 3]]), places))


def test_games_that_never_end_are_draws(actor_and_variables, monkeypatch):
  monkeypatch.setattr(evaluation, 'MAX_STEPS', 30)
  actor, variables = actor_and_variables
  game = functional_fakes.make_team_matching(2, 10**6)
  results = matches.play(
    jax.random.PRNGKey(1),
    game,
    actor,
    variables,
    {'knows': players.scripted(functional_fakes.name_sign)},
    np.array([[0, 0, 2, 2], [2, 2, 1, 1]], np.int32),
  )
  for place, result in enumerate(results):
    assert result.length == 40  # Two calls of twenty steps.
    np.testing.assert_array_equal(result.outcome, [0.0, 0.0])
    np.testing.assert_array_equal(result.returns[2 - 2 * place :][:2], 40)


def test_members_must_have_the_same_number_of_seats(game, actor_and_variables):
  actor, variables = actor_and_variables
  seats = np.array([[0, 0, 0, 1]], np.int32)
  message = r'each of the 2 members .* not \[3, 1\]'
  with pytest.raises(ValueError, match=message):
    matches.play(jax.random.PRNGKey(0), game, actor, variables, {}, seats)


def test_games_are_rated_in_the_order_in_which_they_end(key):
  config = config_lib.PopulationConfig(num_members=3)
  population = state_lib.from_members(
    jnp.zeros(3), key, config, num_opponents=1
  )
  rng = np.random.default_rng(0)
  seats = rng.integers(0, 4, (4, 4)).astype(np.int32)
  teams = 0, 0, 1, 1
  has_ended = rng.random((31, 4)) < 0.3
  outcomes = rng.choice(np.float32([-1.0, 0.0, 1.0]), (31, 4, 2))
  rated = jax.jit(compiled_arena.record_results, static_argnums=(3, 4))(
    population,
    seats,
    compiled_arena.Results(has_ended, outcomes),
    teams,
    config,
  )
  step, place = np.nonzero(has_ended)
  assert len(step) > 8 and len(step) % 4
  expected = state_lib.record_games(
    population,
    seats[place],
    outcomes[step, place],
    np.ones(len(step), bool),
    teams,
    config,
  )
  jax.tree.map(np.testing.assert_array_equal, rated, expected)
