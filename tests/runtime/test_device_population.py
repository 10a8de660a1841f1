"""Populations in one compiled function: arenas, rounds."""

import functools
import shutil

import dm_env
import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import population_helpers
import pytest
import run_helpers
from dm_env import specs

from ftwax import hyperparameters, types
from ftwax.agents.actor_critic import acting, learning
from ftwax.environments import functional
from ftwax.population import evolution, exploring, players, seating
from ftwax.population import population_config as config_lib
from ftwax.population import state as state_lib
from ftwax.records import checkpoints, loggers, run_directory
from ftwax.reporting import history
from ftwax.runtime.device import compiled_arena, loop
from ftwax.runtime.device import sizes as sizes_lib

pytestmark = pytest.mark.slow

CONFIG = population_helpers.CONFIG


# Arenas.


def _make_telling_game():
  """Makes a game of two whose observation is seat and own last action."""

  def observe(key, actions):
    seat = jnp.arange(2, dtype=jnp.float32)
    game = jnp.broadcast_to(key[1].astype(jnp.float32), (2,))
    return jnp.stack([game, seat, actions.astype(jnp.float32)], axis=-1)

  def make_timestep(step_type, observation):
    ones = jnp.ones((2,))
    return dm_env.TimeStep(
      jnp.full((2,), step_type, jnp.int32), 0 * ones, ones, observation
    )

  def reset(key):
    key = jnp.asarray(key)
    return key, make_timestep(0, observe(key, jnp.zeros((2,), jnp.int32)))

  def step(state, action):
    return state, make_timestep(1, observe(state, action))

  spec = functional_fakes.make_matching().spec._replace(
    observations=specs.Array((3,), np.float32)
  )
  return functional.FunctionalGame(
    spec, reset, step, (0, 1), ('reward',), lambda state: jnp.zeros(2)
  )


def _make_arena(game, seats, num_members, opponents=()):
  seats = np.asarray(seats, np.int32)
  places = seating.from_seats(seats, num_members, game.teams)
  return compiled_arena.make_arena(game, places, opponents), jnp.asarray(seats)


def test_members_see_and_act_on_their_own_seats(key):
  arena, seats = _make_arena(_make_telling_game(), [[1, 0], [0, 1], [0, 1]], 2)
  state, timestep = arena.reset(key, seats)
  np.testing.assert_array_equal(state.match.routes.seats, seats)
  _, plain = arena.games.reset(jax.random.split(key, 1)[0])
  observation = np.asarray(plain.observation)  # [G, P, 3]
  expected = np.stack([observation[[0, 1, 2], [1, 0, 0]],
                       observation[[0, 1, 2], [0, 1, 1]]])  # fmt: skip
  np.testing.assert_array_equal(timestep.observation, expected)
  action = jnp.array([[1, 2, 3], [4, 5, 6]], jnp.int32)
  _, timestep, _ = arena.step(state, action)
  np.testing.assert_array_equal(timestep.observation[..., 2], action)
  np.testing.assert_array_equal(
    timestep.observation[..., :2], expected[..., :2]
  )


def _make_counting_player(offset):
  """Makes a player whose action is its offset, its steps and its seat."""

  def act(games, seats, timestep, state):
    assert games.shape == (*seats.shape, 2)  # The keys of its games.
    np.testing.assert_array_equal(timestep.observation[:, 1], seats)
    return (offset + 10 * state + seats).astype(jnp.int32), state + 1

  return players.Player(
    lambda key, batch_size: jnp.zeros((batch_size,), jnp.int32), act, True
  )


def test_opponents_act_on_their_own_seats(key):
  arena, seats = _make_arena(
    _make_telling_game(),
    [[2, 0], [1, 0], [0, 4], [0, 1], [1, 2], [1, 2]],
    2,
    [_make_counting_player(offset) for offset in (100, 200, 300)],
  )
  state, timestep = arena.reset(key, seats)
  np.testing.assert_array_equal(state.match.routes.seats, seats)
  assert timestep.observation.shape == (2, 4, 3)
  action = jnp.arange(8).reshape(2, 4).astype(jnp.int32)
  for step in range(2):
    state, timestep, _ = arena.step(state, action)
    np.testing.assert_array_equal(timestep.observation[..., 2], action)
    seen = state.match.seen.observation[:, 2]
    np.testing.assert_array_equal(
      seen, 10 * step + np.array([100, 101, 101, 301])
    )


def test_members_keep_the_environments_of_a_single_agent_task(key):
  game = functional.as_game(functional_fakes.make_matching())
  arena, seats = _make_arena(game, [[0], [0], [1], [1]], 2)
  state, timestep = arena.reset(key, seats)
  assert state.match is None
  _, plain = functional.vectorize(game, 4).reset(key)
  np.testing.assert_array_equal(
    timestep.observation.reshape(4, 2), plain.observation[:, 0]
  )


def test_each_game_that_ends_has_a_result(key):
  game = functional_fakes.make_team_matching(team_size=1, episode_length=2)
  arena, seats = _make_arena(game, [[0, 1], [1, 0]], 2)
  state, timestep = arena.reset(key, seats)
  right = timestep.observation.argmax(axis=-1)
  # Member 0 is always right and member 1 always wrong.
  for expected in (False, True, False):
    action = jnp.stack([right[0], 1 - right[1]]).astype(jnp.int32)
    state, timestep, results = arena.step(state, action)
    right = timestep.observation.argmax(axis=-1)
    assert (np.asarray(results.ended) == expected).all()
    if expected:
      np.testing.assert_array_equal(results.outcome, [[1, -1], [-1, 1]])
  for _ in range(2):  # The other one wins the next game.
    action = jnp.stack([1 - right[0], right[1]]).astype(jnp.int32)
    state, timestep, results = arena.step(state, action)
    right = timestep.observation.argmax(axis=-1)
  np.testing.assert_array_equal(results.outcome, [[-1, 1], [1, -1]])


# Rounds.


class _Rounds:
  """The compiled functions of a loop, a call of two iterations a round."""

  def __init__(self, made):
    self.loop = made
    self.init = jax.jit(made.init)
    self._call = jax.jit(made.call, static_argnums=0)
    self.begin = jax.jit(made.begin_round)

  def play(self, state, num_iterations=2):
    """Returns the state at the end of a round, and the report of its call."""
    state, report = self._call(num_iterations, state)
    return state, jax.device_get(report)


@functools.cache
def _make_rounds(num_members, team_size=2, num_games=4, learning_rate=1e-3):
  if team_size:
    game = functional_fakes.make_team_matching(team_size, episode_length=5)
  else:
    game = functional.as_game(functional_fakes.make_matching(episode_length=5))
  config = CONFIG.replace(
    learning_rate=hyperparameters.LogUniform(1e-4, 1e-2)
    if learning_rate is None
    else hyperparameters.Constant(learning_rate),
    discount=hyperparameters.Constant(0.5),
  )
  network = config.make_network(game.spec)
  arena = compiled_arena.make_arena(
    game, seating.make_seating(game.teams, num_members, num_games)
  )
  return _Rounds(
    loop.Loop(
      arena=arena,
      actor=acting.make_actor_core(network, game.spec),
      learner=learning.make_learner_core(network, config),
      replay=None,
      config=config_lib.PopulationConfig(num_members, burn_in_games=0),
      sizes=sizes_lib.Sizes(
        config.sequence_length,
        arena.seating.seats_per_member,
        config.batch_size,
        num_members,
      ),
    )
  )


def test_a_round_of_games_is_recorded(key):
  rounds = _make_rounds(num_members=4)
  assert rounds.loop.sizes.num_rows == 4  # Seats of each member.
  state, report = rounds.play(rounds.init(key))
  match = state.rollout.environment.match
  # 2 iterations of 3 steps: 5 of a game, and a reset.
  np.testing.assert_array_equal(
    report.episodes.moved.sum(axis=(0, 1, 2, 4)), 4 * 5
  )
  np.testing.assert_array_equal(state.totals.num_episodes, 4)
  np.testing.assert_array_equal(state.totals.lengths, 4 * 5)
  np.testing.assert_allclose(
    state.totals.returns[:, 0],
    (report.episodes.returns * report.episodes.ended).sum(axis=(0, 1, 2, 4)),
  )
  np.testing.assert_array_equal(state.totals.num_iterations, 2)
  np.testing.assert_array_equal(state.training.steps, 2)
  seats = np.asarray(match.routes.seats)
  scores = _scores(rounds.loop, report, seats)[4]
  assert set(scores) <= {0.0, 0.5, 1.0}
  played = [len(np.flatnonzero((seats == i).any(axis=1))) for i in range(4)]
  np.testing.assert_array_equal(state.population.games, played)
  config = rounds.loop.config
  ratings = np.asarray(state.population.ratings)
  np.testing.assert_allclose(ratings.sum(), 4 * state_lib.INITIAL_RATING)
  expected = _rate(config, seats, scores)
  np.testing.assert_allclose(ratings, expected, atol=0.01)
  again, _ = rounds.play(rounds.init(key))
  run_helpers.assert_same(state, again)
  later = rounds.begin(state)
  np.testing.assert_array_equal(later.totals.num_episodes, 0)
  new_match = later.rollout.environment.match
  assert np.any(seats != np.asarray(new_match.routes.seats))
  later, _ = rounds.play(later)
  assert (np.asarray(later.training.steps) == 4).all()


def test_players_stay_until_a_game_ends(key):
  rounds = _make_rounds(num_members=4)

  def seats(state):
    return np.asarray(state.rollout.environment.match.routes.seats)

  first = rounds.init(key)
  state, _ = rounds.play(first, 1)  # 3 of the 5 steps of a game.
  assert (np.asarray(state.rollout.episode_length) == 3).all()
  np.testing.assert_array_equal(seats(state), seats(first))
  # Others sit down where all games start anew.
  later = rounds.begin(state)
  assert np.any(seats(later) != seats(state))
  assert (np.asarray(later.rollout.timestep.step_type) == types.FIRST).all()
  assert (np.asarray(later.rollout.episode_length) == 0).all()
  # Within a round they stay, whether their games end or not.
  ended, report = rounds.play(later)
  assert report.episodes.ended.any()
  np.testing.assert_array_equal(seats(ended), seats(later))


def _scores(made, report, seats):
  """Returns the score of each game's first team after each step, [T, G]."""
  returns = report.episodes.returns  # [K, R, T, N, M]
  returns = returns.reshape(-1, seats.size)
  order = np.argsort(seats.reshape(-1), kind='stable')
  by_seat = np.empty_like(returns)
  by_seat[:, order] = returns
  paid = by_seat.reshape(-1, len(seats), 2, 2).sum(axis=-1)
  return 0.5 + 0.5 * np.sign(paid[..., 0] - paid[..., 1])


def _rate(config, seats, scores):
  """Returns Elo ratings after games in turn, in NumPy."""
  ratings = np.full(config.num_members, state_lib.INITIAL_RATING)
  for row, score in zip(
    np.resize(seats, (len(scores), 4)), scores, strict=True
  ):
    counts = np.bincount(row[:2], minlength=4) - np.bincount(
      row[2:], minlength=4
    )
    p = 1 / (1 + 10 ** (-(counts @ ratings) / 400))
    ratings += config.k_factor * (score - p) * counts
  return ratings


def test_every_game_of_a_round_is_rated_as_on_the_host(key):
  rounds = _make_rounds(num_members=4)
  # 4 iterations of 3 steps: games end with steps 5 and 11.
  state, report = rounds.play(rounds.init(key), 4)
  seats = np.asarray(state.rollout.environment.match.routes.seats)
  scores = _scores(rounds.loop, report, seats)[[4, 10]].reshape(-1)
  played = [2 * np.sum((seats == i).any(axis=1)) for i in range(4)]
  np.testing.assert_array_equal(state.population.games, played)
  config = rounds.loop.config
  np.testing.assert_allclose(
    state.population.ratings, _rate(config, seats, scores), atol=0.01
  )
  # In two calls, the same.
  again = rounds.play(rounds.play(rounds.init(key))[0])[0]
  run_helpers.assert_same(
    state.population._replace(members=()), again.population._replace(members=())
  )
  at_once = state_lib.record_games(
    rounds.init(key).population,
    np.tile(seats, (2, 1)),
    np.stack([scores, 1.0 - scores], axis=1),
    np.ones(8, bool),
    (0, 0, 1, 1),
    config,
  )
  run_helpers.assert_same(state.population.payoff, at_once.payoff)
  np.testing.assert_array_equal(state.population.ratings, at_once.ratings)


def test_members_learn_from_their_own_seats_alone(key):
  rounds = _make_rounds(num_members=4)
  start = rounds.init(key)
  idle = start.training.hyperparameters._replace(
    learning_rate=jnp.array([1e-3, 0.0, 1e-3, 1e-3])
  )
  members = start.training._replace(hyperparameters=idle)
  start = start._replace(population=start.population._replace(members=members))
  state, report = rounds.play(start)

  def has_changed(index):
    return any(
      np.any(np.asarray(new[index]) != np.asarray(old[index]))
      for new, old in zip(
        jax.tree.leaves(state.training.params),
        jax.tree.leaves(start.training.params),
        strict=True,
      )
    )

  assert [has_changed(i) for i in range(4)] == [True, False, True, True]
  assert report.metrics['loss'].shape == (2, 1, 4)
  assert len(set(report.metrics['loss'][0, 0].tolist())) == 4


def test_a_member_with_bad_gradients_is_counted_alone(key):
  rounds = _make_rounds(num_members=4)
  start = rounds.init(key)
  bad = jax.tree.map(lambda x: x.at[2].set(jnp.nan), start.training.params)
  start = start._replace(
    population=start.population._replace(
      members=start.training._replace(params=bad)
    )
  )
  _, report = rounds.play(start)
  np.testing.assert_array_equal(report.skipped_in_a_row[-1, 0], [0, 0, 2, 0])


def test_a_population_learns_a_single_agent_task_and_evolves(key):
  rounds = _make_rounds(
    num_members=2, team_size=0, num_games=16, learning_rate=None
  )
  state, returns = rounds.init(key), []
  for _ in range(150):
    state, _ = rounds.play(state)
    totals = state.totals
    returns.append(totals.returns[:, 0] / totals.num_episodes)
    # Episodes go on from round to round: 5 steps and a reset make 2 rounds
    # of 3.
    np.testing.assert_array_equal(totals.num_episodes, 8)
    state = rounds.begin(state)
  assert np.max(returns[-1]) > 4.2  # Chance is 2.5 of 5.
  np.testing.assert_allclose(
    np.sort(np.asarray(state.population.returns), axis=1)[:, -1].max(), 5.0
  )
  prior = hyperparameters.LogUniform(1e-4, 1e-2)
  priors = exploring.Traits(
    CONFIG.priors._replace(learning_rate=prior), CONFIG.internal_rewards_prior
  )
  best = int(np.argmax(returns[-1]))
  ratings = jnp.full((2,), 1000.0).at[best].set(2000.0)
  evolved, generation = evolution.evolve(
    key,
    state.population._replace(ratings=ratings),
    priors,
    rounds.loop.config,
  )
  np.testing.assert_array_equal(generation.parent, [best, best])
  state = state._replace(population=evolved)
  for leaf in jax.tree.leaves(state.training.params):
    np.testing.assert_array_equal(leaf[0], leaf[1])
  state, _ = rounds.play(state)  # The same compiled function goes on.
  means = state.totals.returns[:, 0] / state.totals.num_episodes
  assert (np.asarray(means) > 4.0).all()


# Runs.


@pytest.fixture
def run(tmp_path):
  return run_helpers.make_run('device', tmp_path)


def test_a_run_of_a_population_leaves_its_records(run):
  result = run(population_helpers.make_experiment())
  # 16 seats, 5 actions a round.
  assert result.counts.actor_steps == 400
  assert result.counts.episodes == 5 * 16
  assert result.counts.learner_steps == 5 * 2
  past = history.read(result.run_dir)
  assert past.ratings.shape == (5, 4)
  np.testing.assert_array_equal(past.payoff_games, past.payoff_games.T)
  rows = history.read_lineage(result.run_dir)
  assert rows[0]['num_members'] == 4
  assert {row['reason'] for row in rows[1:]} == {'win_probability'}
  for name in ('report.html', 'config.json', 'checkpoints'):
    assert (result.run_dir / name).exists()
  learner = loggers.read_jsonl(loggers.log_path(result.run_dir, 'learner'))
  assert len(learner[-1]['loss']) == 4
  assert result.state.hyperparameters.learning_rate.shape == (4,)
  with pytest.raises(
    run_directory.ConfigMismatchError, match='population.num_members: 4 in'
  ):
    run(
      population_helpers.make_experiment(
        population=config_lib.PopulationConfig(8),
        num_environments=8,
      ),
      resume=True,
    )


def test_a_resumed_population_goes_on_bit_for_bit(run):
  config = population_helpers.make_experiment(
    checkpointing=checkpoints.CheckpointingConfig(1e-9, max_to_keep=20)
  )
  whole = run(config)
  path = whole.run_dir / history.LINEAGE_FILE
  text = path.read_text()
  saved = sorted((whole.run_dir / 'checkpoints').iterdir())
  assert len(saved) == 10  # After each call, a tenth of the run at most.
  for later in saved[2:]:
    shutil.rmtree(later)
  resumed = run(config, resume=True)
  run_helpers.assert_same(whole.state, resumed.state)
  assert whole.counts[:3] == resumed.counts[:3]
  assert path.read_text() == text


def test_a_game_off_its_spec_is_refused(run):
  def make_bad(seed):
    game = population_helpers.make_game(seed)

    def reset(key):
      state, timestep = game.reset(key)
      return state, timestep._replace(reward=timestep.reward[:2])

    return game._replace(reset=reset)

  with pytest.raises(ValueError, match=r'reward of the environment \(shape'):
    run(population_helpers.make_experiment(make_bad))
  with pytest.raises(TypeError, match=r'made a NoneType'):
    run(population_helpers.make_experiment(lambda seed: None))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      {'population': config_lib.PopulationConfig(5)},
      r'must give each of num_members \(5\)',
    ),
    ({'steps_per_round': 0}, r'steps_per_round \(0\) must be at'),
  ],
)
def test_sizes_that_do_not_fit_are_refused(run, options, message):
  with pytest.raises(ValueError, match=message):
    run(population_helpers.make_experiment(**options))
