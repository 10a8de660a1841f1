"""Games in Python between members, and what becomes of their results."""

import contextlib

import dm_env
import fakes
import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import types
from ftwax.agents import impala
from ftwax.environments import game_vectors, games, validation
from ftwax.population import players, routing
from ftwax.population import population_config as config_lib
from ftwax.population import seating as seating_lib
from ftwax.population import state as state_lib
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import generations, prepare, rounds, run_records
from ftwax.runtime.device import compiled_arena, rollout
from ftwax.runtime.local import arena as arena_lib
from ftwax.runtime.local import evaluations

_SPEC = types.EnvironmentSpec(
  observations=specs.Array((3,), np.float32),
  actions=specs.DiscreteArray(9),
  rewards=specs.Array((2,), np.float32),
  discounts=specs.BoundedArray((), np.float32, 0, 1),
)


class TellingGame(games.SpecifiedGame):
  """Shows game, player and last action; a player is paid its action, twice."""

  def __init__(self, number, length=3, teams=(0, 1), outcome=(1, -1)):
    super().__init__(_SPEC, teams, ('paid', 'paid twice'))
    self._number, self._length, self._outcome = number, length, outcome
    self._num_steps = length
    self.is_closed = False

  def reset(self):
    self._num_steps = 0
    return self._timestep(dm_env.StepType.FIRST, np.zeros(len(self.teams)))

  def step(self, action):
    if self._num_steps == self._length:
      return self.reset()
    self._num_steps += 1
    is_last = self._num_steps == self._length
    step_type = dm_env.StepType.LAST if is_last else dm_env.StepType.MID
    return self._timestep(step_type, action)

  def outcome(self):
    return np.array(self._outcome, np.float32)

  def close(self):
    self.is_closed = True

  def _timestep(self, step_type, action):
    num_players = len(self.teams)
    return dm_env.TimeStep(
      np.full(num_players, step_type, np.int32),
      np.stack([action, 2 * action], axis=1).astype(np.float32),
      np.ones(num_players, np.float32),
      np.stack(
        [np.full(num_players, self._number), np.arange(num_players), action],
        axis=1,
      ).astype(np.float32),
    )


def make_experiment(environment=lambda seed: TellingGame(seed), **options):
  options = {
    'num_environments': 3,
    'population': config_lib.PopulationConfig(2),
    'name': 'test',
    **options,
  }
  return experiment_lib.ExperimentConfig(
    agent=impala.IMPALAConfig(),
    environment=environment,
    max_num_actor_steps=1,
    **options,
  )


SEATS = np.array([[1, 0], [0, 1], [0, 1]])


def make_arena(**options):
  made = [TellingGame(number, **options) for number in range(3)]
  games_ = game_vectors.TeamGames(made, 'test')
  seating = seating_lib.make_seating(games_.spec.teams, 2, 3)
  arena = arena_lib.Arena(games_, seating)
  arena.seat(jax.random.PRNGKey(0), SEATS)
  return arena, made


def test_members_see_and_act_on_their_own_seats():
  arena, made = make_arena()
  assert arena.num_environments == 6
  timestep = arena.reset()
  # Rows of member 0: game 0 as player 1, games 1 and 2 as player 0.
  where = [[0, 1], [1, 0], [2, 0], [0, 0], [1, 1], [2, 1]]
  np.testing.assert_array_equal(timestep.observation[:, :2], where)
  timestep = arena.step(np.arange(6))
  np.testing.assert_array_equal(timestep.observation[:, :2], where)
  np.testing.assert_array_equal(timestep.observation[:, 2], np.arange(6))
  np.testing.assert_array_equal(timestep.reward[:, 1], 2 * np.arange(6))
  arena.close()
  assert all(game.is_closed for game in made)


def test_each_game_that_ends_leaves_a_result():
  arena, _ = make_arena()
  arena.reset()
  actions = iter([*np.arange(3)[:, None] + np.arange(6), *np.ones((5, 6))])
  results = evaluations.play(
    arena, lambda: arena.step(next(actions)), SEATS, 2, 'test'
  )
  assert [r.place for r in results] == [0, 1, 2] * 2
  first, second = results[:2]
  np.testing.assert_array_equal(second.seats, [0, 1])
  np.testing.assert_array_equal(second.outcome, [1, -1])
  # Player 0 of game 0 is row 3, which did 3, 4 and 5; player 1 is row 0.
  np.testing.assert_array_equal(first.returns, [[12, 24], [3, 6]])
  assert first.length == 3
  # After a reset, whose action counts for nothing, three actions of 1.
  np.testing.assert_array_equal(results[3].returns, [[3, 6], [3, 6]])


@pytest.mark.parametrize('outcome', [(1, np.nan), (1, 0, 0)])
def test_outcomes_that_are_no_scores_are_refused(outcome):
  arena, _ = make_arena(outcome=outcome)
  arena.reset()
  with pytest.raises(
    ValueError,
    match=r'outcome \(\[1.0, .*\]\) of a game must be a finite score',
  ):
    for _ in range(3):
      arena.step(np.zeros(6))
      arena.outcomes()


def test_bad_rewards_are_refused():
  arena, _ = make_arena()
  arena.reset()
  with pytest.raises(
    validation.InvalidTimestepError, match=r'environment .test\[1\].*finite'
  ):
    arena.step(np.array([0, np.nan, 0, 0, 0, 0]))


def test_games_of_another_kind_are_refused():
  made = [TellingGame(0), TellingGame(1, teams=(1, 0))]
  with pytest.raises(
    ValueError, match=r'teams of environment 1 \(\(1, 0\)\) must equal those of'
  ):
    game_vectors.TeamGames(made, 'test')


def test_games_are_made_of_all_that_can_be_played():
  team_game = functional_fakes.make_team_matching()
  made = game_vectors.make_games(lambda seed: team_game, [3, 4], 'test')
  assert made.num_games == 2
  assert made.spec.teams == (0, 0, 1, 1) and made.spec.team_size == 2
  solo = functional_fakes.make_matching()
  fake = fakes.FakeEnvironment(fakes.make_spec())
  for factory in (lambda seed: solo, lambda seed: fake):
    made = game_vectors.make_games(factory, [3, 4], 'test')
    assert made.spec.teams == (0,) and made.spec.team_size == 1
    timestep = made.reset()
    assert timestep.reward.shape == timestep.discount.shape == (2,)
    np.testing.assert_array_equal(timestep.discount, 1)
    timestep = made.step(np.zeros(2, np.int32))
    shape = made.spec.environment.observations.shape
    assert timestep.observation.shape == (2, *shape)
    np.testing.assert_array_equal(made.outcomes([1]), [[0]])
    made.close()
  with pytest.raises(TypeError, match=r'must make an environment .*made a int'):
    game_vectors.make_games(lambda seed: seed, [3], 'test')
  spec = prepare.prepare(make_experiment()).spec
  assert spec.num_events == 2 and spec.event_names == ('paid', 'paid twice')


# Opponents.


def _constant(action):
  """A player that always takes one action."""

  def act(made, seats, timestep, state):
    del made, timestep
    return jnp.full(seats.shape, action), state + 1

  return players.Player(lambda key, batch_size: jnp.zeros(batch_size), act)


def test_opponents_take_their_seats_and_members_see_theirs_alone():
  made = [TellingGame(number, length=2) for number in range(4)]
  games_ = game_vectors.TeamGames(made, 'test')
  seating = seating_lib.make_seating(
    (0, 1), 1, 4, [(0, 1)] * 2, opponent_share=1.0
  )
  # The opponents take turns, and sides.
  np.testing.assert_array_equal(
    seating.opponents, [[-1, 0], [-1, 1], [0, -1], [1, -1]]
  )
  arena = arena_lib.Arena(games_, seating, [_constant(7), _constant(8)])
  seats = np.where(seating.opponents < 0, 0, 1 + seating.opponents)
  arena.seat(jax.random.PRNGKey(0), seats)
  assert arena.num_environments == 4
  timestep = arena.reset()
  where = [[0, 0], [1, 0], [2, 1], [3, 1]]
  np.testing.assert_array_equal(timestep.observation[:, :2], where)
  results = evaluations.play(
    arena, lambda: arena.step(np.arange(4)), seats, 1, 'test'
  )
  seen = arena.router.to_members(routing.make_routes(seats), arena.timestep)
  np.testing.assert_array_equal(seen.observation[:, 2], np.arange(4))
  np.testing.assert_array_equal(
    [result.returns[:, 0] for result in results],
    [[0, 14], [2, 16], [14, 4], [16, 6]],
  )
  np.testing.assert_array_equal(results[3].seats, [2, 0])


def test_a_script_cannot_play_games_in_python():
  games_ = game_vectors.TeamGames([TellingGame(0), TellingGame(1)], 'test')
  script = players.scripted(lambda key, state, seat: jnp.int32(0))
  with pytest.raises(TypeError, match='opponent 0 must act on observations'):
    arena_lib.Arena(
      games_,
      seating_lib.make_seating((0, 1), 1, 2, [(0, 1)], 1.0),
      [script],
    )


# Rounds.


def _members(internal_rewards):
  return types.TrainingState(
    *[np.zeros(2)] * 3,
    np.array(internal_rewards, np.float32),
    *[np.zeros(2)] * 4,
  )


@pytest.fixture
def make_rounds(key, tmp_path):
  stack = contextlib.ExitStack()

  def make(**options):
    experiment = make_experiment(checkpointing=None, **options)
    population = state_lib.from_members(
      _members([[1, 0], [0, 1]]), key, experiment.population
    )
    parts = prepare.prepare(experiment)
    records = run_records.RunRecords(parts, tmp_path, stack)
    evolution = generations.Evolution(parts, tmp_path)
    return rounds.Rounds(parts, records, evolution), population, parts

  with stack:
    yield make


def _episodes(ended, returns, lengths, results):
  """Returns episodes of a call with one rollout, from rows [T, N, M]."""
  ended, returns = np.array(ended, bool), np.array(returns, np.float32)
  return jax.tree.map(
    lambda leaf: np.asarray(leaf)[None, None],
    rollout.Episodes(ended, ended, returns, lengths, results, ()),
  )


def test_results_are_rated_as_by_the_pure_functions(make_rounds):
  made, population, _ = make_rounds()
  seats = np.array([[0, 1], [1, 0], [1, 0]], np.int32)
  outcomes = np.array([[[1, -1], [1, -1], [0, 0]], [[-1, 1], [7, 7], [1, -1]]])
  ended = np.array([[True, True, True], [True, False, True]])
  returns = np.arange(24.0).reshape(2, 2, 3, 2)
  episodes = _episodes(
    np.stack([ended, ended], 1),
    returns,
    np.full((2, 2, 3), 3),
    compiled_arena.Results(ended, outcomes.astype(np.float32)),
  )
  rated, totals = made.rate(population, made.start_totals(), seats, episodes)
  places = np.array([0, 1, 2, 0, 2])
  expected = state_lib.record_games(
    population,
    seats[places],
    outcomes[ended].astype(np.float32),
    np.ones(5, bool),
    (0, 1),
    make_experiment().population,
  )
  np.testing.assert_array_equal(rated.ratings, expected.ratings)
  np.testing.assert_array_equal(rated.payoff.scores, expected.payoff.scores)
  np.testing.assert_array_equal(rated.games, [5, 5])
  assert rated.members is population.members
  np.testing.assert_array_equal(totals.num_episodes, [5, 5])
  weights = np.stack([ended, ended], 1)[..., None]
  sums = (returns * weights).sum(axis=(0, 2))
  np.testing.assert_allclose(totals.returns, sums)
  np.testing.assert_allclose(totals.lengths, [15, 15])
  counts = run_records.Counts()
  row = generations.population_row(rated, totals, counts)
  np.testing.assert_allclose(row['event_rates'], sums / 5)
  row = generations.population_row(rated, made.start_totals(), counts)
  np.testing.assert_array_equal(row['event_rates'], np.zeros((2, 2)))


def test_single_agents_are_ranked_by_their_own_reward(make_rounds):
  made, population, _ = make_rounds(
    environment=lambda seed: TellingGame(seed, teams=(0,)), num_environments=2
  )
  seats = np.array([[0], [1]], np.int32)
  episodes = _episodes(
    [[[True], [True]], [[False], [True]]],
    [[[[3, 4]], [[3, 4]]], [[[9, 9]], [[3, 6]]]],
    np.full((2, 2, 1), 3),
    (),
  )
  rated, _ = made.rate(population, made.start_totals(), seats, episodes)
  np.testing.assert_array_equal(state_lib.mean_returns(rated), [3, 5])


def test_seats_are_drawn_anew(make_rounds):
  made, population, _ = make_rounds(num_environments=8)
  drawn = []
  for _ in range(3):
    population, seats = made.draw_seats(population)
    drawn.append(seats)
  assert not np.array_equal(drawn[0], drawn[1])
  for seats in drawn:
    assert seats.shape == (8, 2)
    np.testing.assert_array_equal(np.sort(seats, axis=1), [[0, 1]] * 8)
