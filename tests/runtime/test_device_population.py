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

from ftwax import hyperparameters
from ftwax.agents import impala
from ftwax.agents.actor_critic import acting, learning
from ftwax.environments import functional
from ftwax.population import evolution
from ftwax.population import population_config as config_lib
from ftwax.records import checkpoints, loggers, run_directory
from ftwax.reporting import history
from ftwax.runtime.device import arena as arena_lib
from ftwax.runtime.device import population

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


def test_members_see_and_act_on_their_own_seats(key):
  games = functional.vectorize(_make_telling_game(), 3)
  arena = arena_lib.Arena(games, num_games=3, num_members=2)
  seats = jnp.array([[1, 0], [0, 1], [0, 1]], jnp.int32)
  state, timestep = arena.reset(key, seats)
  np.testing.assert_array_equal(arena.seats(state), seats)
  _, plain = games.reset(key)
  observation = np.asarray(plain.observation)  # [G, P, 3]
  expected = np.stack([observation[[0, 1, 2], [1, 0, 0]],
                       observation[[0, 1, 2], [0, 1, 1]]])  # fmt: skip
  np.testing.assert_array_equal(timestep.observation, expected)
  action = jnp.array([[1, 2, 3], [4, 5, 6]], jnp.int32)
  _, timestep = arena.step(state, action)
  np.testing.assert_array_equal(timestep.observation[..., 2], action)
  np.testing.assert_array_equal(
    timestep.observation[..., :2], expected[..., :2]
  )


def test_the_first_outcome_of_each_game_is_kept(key):
  game = functional_fakes.make_team_matching(team_size=1, episode_length=2)
  games = functional.vectorize(game, 2)
  arena = arena_lib.Arena(games, num_games=2, num_members=2)
  state, timestep = arena.reset(key, jnp.array([[0, 1], [1, 0]], jnp.int32))
  right = timestep.observation.argmax(axis=-1)
  # Member 0 is always right and member 1 always wrong.
  for expected in (False, True):
    action = jnp.stack([right[0], 1 - right[1]]).astype(jnp.int32)
    state, timestep = arena.step(state, action)
    right = timestep.observation.argmax(axis=-1)
    assert (np.asarray(state.is_played) == expected).all()
  np.testing.assert_array_equal(state.outcome, [[1, -1], [-1, 1]])
  for _ in range(3):  # A game that the other one wins does not count.
    action = jnp.stack([1 - right[0], right[1]]).astype(jnp.int32)
    state, timestep = arena.step(state, action)
    right = timestep.observation.argmax(axis=-1)
  np.testing.assert_array_equal(state.outcome, [[1, -1], [-1, 1]])


# Rounds.


@functools.cache
def _make_loop(num_members, team_size=2, num_games=4, learning_rate=1e-3):
  if team_size:
    game = functional_fakes.make_team_matching(team_size, episode_length=5)
  else:
    game = functional.as_game(functional_fakes.make_matching(episode_length=5))
  config = CONFIG.replace(
    priors=CONFIG.priors._replace(
      learning_rate=hyperparameters.LogUniform(1e-4, 1e-2)
      if learning_rate is None
      else hyperparameters.Constant(learning_rate),
      discount=hyperparameters.Constant(0.5),
    )
  )
  network = impala.make_network(game.spec, config)
  population_config = config_lib.PopulationConfig(
    num_members, num_players=max(1, 2 * team_size), burn_in_games=0
  )
  made = population.make_population_loop(
    game,
    acting.make_actor_core(network, game.spec),
    learning.make_learner_core(network, impala.policy_loss, config),
    population_config,
    config,
    num_games=num_games,
    num_iterations=2,
  )
  return made, population_config, jax.jit(made.init), jax.jit(made.round)


def test_a_round_of_games_is_recorded(key):
  made, config, init, play = _make_loop(num_members=4)
  assert made.sizes.num_environments == 4  # Seats of each member.
  state, report = play(init(key))
  # 2 iterations of 3 steps: 5 of a game, and a reset.
  assert np.asarray(report.is_played).all()
  np.testing.assert_array_equal(report.num_steps, 4 * 5)
  np.testing.assert_array_equal(report.num_episodes, 4)
  np.testing.assert_array_equal(report.lengths, 5.0)
  np.testing.assert_array_equal(report.num_updates, 2)
  np.testing.assert_array_equal(state.training.steps, 2)
  assert set(np.asarray(report.outcome).ravel()) <= {-1.0, 0.0, 1.0}
  played = [len(np.flatnonzero((report.seats == i).any(axis=1)))
            for i in range(4)]  # fmt: skip
  np.testing.assert_array_equal(state.population.games, played)
  ratings = np.asarray(state.population.ratings)
  np.testing.assert_allclose(ratings.sum(), 4 * config.initial_rating)
  outcome = np.asarray(report.outcome)[:, 0]
  teams = np.asarray(report.seats).reshape(4, 2, 2)
  expected = np.full(4, config.initial_rating)
  for game in range(4):
    counts = np.bincount(teams[game, 0], minlength=4) - np.bincount(
      teams[game, 1], minlength=4
    )
    p = 1 / (1 + 10 ** (-(counts @ expected) / 400))
    expected += config.k_factor * (0.5 * (1 + outcome[game]) - p) * counts
  np.testing.assert_allclose(ratings, expected, atol=0.01)
  again, _ = play(init(key))
  run_helpers.assert_same(state, again)
  later, report_later = play(state)
  assert (np.asarray(later.training.steps) == 4).all()
  assert np.any(np.asarray(report.seats) != np.asarray(report_later.seats))


def test_members_learn_from_their_own_seats_alone(key):
  _, _, init, play = _make_loop(num_members=4)
  start = init(key)
  idle = start.training.hyperparameters._replace(
    learning_rate=jnp.array([1e-3, 0.0, 1e-3, 1e-3])
  )
  members = start.training._replace(hyperparameters=idle)
  start = start._replace(population=start.population._replace(members=members))
  state, report = play(start)

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
  assert report.metrics['loss'].shape == (4,)
  assert len(set(np.asarray(report.metrics['loss']).tolist())) == 4


def test_a_member_with_bad_gradients_is_counted_alone(key):
  _, _, init, play = _make_loop(num_members=4)
  start = init(key)
  bad = jax.tree.map(lambda x: x.at[2].set(jnp.nan), start.training.params)
  start = start._replace(
    population=start.population._replace(
      members=start.training._replace(params=bad)
    )
  )
  _, report = play(start)
  np.testing.assert_array_equal(report.skipped_in_a_row, [0, 0, 2, 0])


def test_a_population_learns_a_single_agent_task_and_evolves(key):
  _, config, init, play = _make_loop(
    num_members=2, team_size=0, num_games=16, learning_rate=None
  )
  state = init(key)
  returns = []
  for _ in range(150):
    state, report = play(state)
    returns.append(np.asarray(report.returns))
  # Episodes go on from round to round: 5 steps and a reset make 2 rounds of 3.
  np.testing.assert_array_equal(report.num_episodes, 8)
  assert np.max(returns[-1]) > 4.2  # Chance is 2.5 of 5.
  np.testing.assert_allclose(
    np.sort(np.asarray(state.population.returns), axis=1)[:, -1].max(), 5.0
  )
  prior = hyperparameters.LogUniform(1e-4, 1e-2)
  priors = evolution.Traits(
    CONFIG.priors._replace(learning_rate=prior), CONFIG.internal_rewards_prior
  )
  best = int(np.argmax(returns[-1]))
  ratings = jnp.full((2,), 1000.0).at[best].set(2000.0)
  evolved, generation = evolution.evolve(
    key, state.population._replace(ratings=ratings), priors, config
  )
  np.testing.assert_array_equal(generation.parent, [best, best])
  state = state._replace(population=evolved)
  for leaf in jax.tree.leaves(state.training.params):
    np.testing.assert_array_equal(leaf[0], leaf[1])
  state, report = play(state)  # The same compiled function goes on.
  assert (np.asarray(report.returns) > 4.0).all()


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'num_players': 2}, r'game \(teams .*num_players \(2\).*num_players=4'),
    ({'num_members': 5}, r'must give each of num_members \(5\)'),
    ({'batch_size': 3}, r'num_environments \(4\) must divide batch_size \(3\)'),
  ],
)
def test_what_does_not_fit_is_refused(options, message):
  options = {'num_members': 4, 'num_players': 4, 'batch_size': 4, **options}
  game = functional_fakes.make_team_matching()
  with pytest.raises(ValueError, match=message):
    population.make_population_loop(
      game,
      None,
      None,
      config_lib.PopulationConfig(
        options['num_members'], num_players=options['num_players']
      ),
      CONFIG.replace(batch_size=options['batch_size']),
      num_games=4,
      num_iterations=1,
    )


# Runs.


@pytest.fixture
def run(tmp_path):
  return run_helpers.make_run('device', tmp_path)


def test_a_run_of_a_population_leaves_its_records(run):
  result = run(population_helpers.make_experiment())
  # 16 seats, 5 actions a round.
  assert result.counts.actor_steps == 400
  assert result.counts.episodes == 5 * 16
  assert result.counts.learner_steps == 5 * 4 * 2
  past = history.read(result.run_dir)
  assert past.ratings.shape == (5, 4)
  np.testing.assert_array_equal(past.payoff_games, past.payoff_games.T)
  rows = history.read_lineage(result.run_dir)
  assert rows[0]['num_members'] == 4
  assert {row['reason'] for row in rows[1:]} == {'win_probability'}
  for name in ('report.html', 'curves.png', 'config.json', 'checkpoints'):
    assert (result.run_dir / name).exists()
  learner = loggers.read_jsonl(loggers.log_path(result.run_dir, 'learner'))
  assert len(learner[-1]['loss']) == 4
  assert result.state.hyperparameters.learning_rate.shape == (4,)
  with pytest.raises(
    run_directory.ConfigMismatchError, match='population.num_members: 4 in'
  ):
    run(
      population_helpers.make_experiment(
        population=config_lib.PopulationConfig(8, num_players=4),
        num_environments=8,
      ),
      resume=True,
    )


def test_a_resumed_population_goes_on_bit_for_bit(run):
  config = population_helpers.make_experiment(
    checkpointing=checkpoints.CheckpointingConfig(1e-9, max_to_keep=10)
  )
  whole = run(config)
  path = whole.run_dir / history.LINEAGE_FILE
  text = path.read_text()
  rounds = sorted((whole.run_dir / 'checkpoints').iterdir())
  assert len(rounds) == 5
  for later in rounds[2:]:
    shutil.rmtree(later)
  resumed = run(config, resume=True)
  run_helpers.assert_same(whole.state, resumed.state)
  assert whole.counts[:3] == resumed.counts[:3]
  assert path.read_text() == text


def test_a_population_must_be_given():
  with pytest.raises(ValueError, match=r'population \(None\) must be a Pop'):
    population_helpers.make_experiment(population=None)
  with pytest.raises(ValueError, match=r'steps_per_round \(0\) must be at'):
    population_helpers.make_experiment(steps_per_round=0)


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


def test_evaluations_of_a_population_are_refused(run):
  with pytest.raises(ValueError, match=r'eval_every \(10\) must be None'):
    run(population_helpers.make_experiment(), eval_every=10)
