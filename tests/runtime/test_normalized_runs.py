"""Runs of agents with normalizers, in all runtimes."""

import shutil

import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import population_helpers
import pytest
import run_helpers
from dm_env import specs

from ftwax import types
from ftwax.agents import impala, ppo
from ftwax.agents.actor_critic import normalization
from ftwax.environments import functional
from ftwax.inference import loading
from ftwax.networks import cores, torsos
from ftwax.population import evolution, population_config
from ftwax.population import state as state_lib
from ftwax.records import checkpoints, loggers
from ftwax.replay import replay_options
from ftwax.runtime.device import sizes

EPISODE_LENGTH = 10
ON = {'normalize_observations': True, 'normalize_returns': True}
CONFIG = impala.IMPALAConfig(
  core=cores.LSTM(8),
  torso=torsos.Torso(hidden_sizes=(8,)),
  sequence_length=5,
  batch_size=4,
  queue=replay_options.Queue(max_size=8),
  **ON,
)


def make_counting(seed):
  """Makes an environment that shows its steps, and their square, and a 3."""
  del seed

  def observe(step):
    step = step.astype(jnp.float32)
    return jnp.stack([step, step**2, jnp.full_like(step, 3.0)])

  def reset(key):
    del key
    start = jnp.zeros((), jnp.int32)
    return start, functional.restart(observe(start))

  def step(state, action):
    state = state + 1
    last = state == EPISODE_LENGTH
    return state, functional.transition(
      5.0 + action, observe(state), is_terminal=False, is_truncated=last
    )

  spec = types.EnvironmentSpec(
    observations=specs.Array((3,), np.float32, 'observation'),
    actions=specs.DiscreteArray(2, np.int32, 'action'),
    rewards=specs.Array((), np.float32, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
  )
  return functional.FunctionalEnvironment(spec, reset, step)


def _check_statistics(state):
  """Compares with all timesteps that the updates saw, of equal streams."""
  (num_updates,) = state.steps
  steps = np.arange(num_updates * CONFIG.sequence_length) % (EPISODE_LENGTH + 1)
  seen = np.stack([steps, steps**2, np.full_like(steps, 3)], 1)
  found = jax.tree.map(lambda leaf: leaf[0], state.observation_statistics)
  assert int(found.num_timesteps) == CONFIG.batch_size * len(seen)
  np.testing.assert_allclose(found.mean[''], seen.mean(0), rtol=1e-5)
  np.testing.assert_allclose(found.variance[''], seen.var(0), rtol=1e-4)
  assert found.variance[''][2] == 0.0
  # Rewards are 5 or 6, and episodes are only cut off.
  returns = jax.tree.map(lambda leaf: leaf[0], state.return_statistics)
  assert 5.0 < normalization.return_scale(returns) * (1.0 - 0.99) < 6.0


@pytest.mark.parametrize(
  'runtime', ['device', pytest.param('local', marks=pytest.mark.slow)]
)
def test_statistics_are_those_of_what_was_learned_from(tmp_path, runtime):
  run = run_helpers.make_run(runtime, tmp_path)
  result = run(run_helpers.make_experiment(CONFIG, make_counting))
  assert result.state.steps[0] >= 9
  _check_statistics(result.state)
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'learner'))
  assert rows[-1]['return_scale'] > 1.0


@pytest.mark.ci
def test_the_policy_that_learns_is_the_one_that_acted(tmp_path, monkeypatch):
  monkeypatch.setattr(sizes, '_STEPS_PER_CALL', 1)
  config = ppo.PPOConfig(
    core=cores.LSTM(8), sequence_length=5, batch_size=4, num_epochs=1,
    num_minibatches=1, **ON,
  )  # fmt: skip
  result = run_helpers.make_run('device', tmp_path)(
    run_helpers.make_experiment(
      config, make_counting, ppo, max_num_actor_steps=400
    )
  )
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'learner'))
  assert rows and all(row['kl_old_new'] < 1e-6 for row in rows)


@pytest.mark.slow
def test_a_resumed_run_goes_on_bit_for_bit(tmp_path, monkeypatch):
  monkeypatch.setattr(sizes, '_STEPS_PER_CALL', 1)
  run = run_helpers.make_run('device', tmp_path)
  experiment = run_helpers.make_experiment(
    CONFIG,
    make_counting,
    checkpointing=checkpoints.CheckpointingConfig(1e-9, max_to_keep=100),
  )
  whole = run(experiment)
  saved = sorted((whole.run_dir / 'checkpoints').iterdir())
  for later in saved[4:]:
    shutil.rmtree(later)
  resumed = run(experiment, resume=True)
  run_helpers.assert_same(whole.state, resumed.state)
  _check_statistics(resumed.state)


def _make_population(**options):
  return population_helpers.make_experiment(
    config=population_helpers.CONFIG.replace(**ON), **options
  )


@pytest.mark.slow
def test_members_keep_their_own_and_copies_take_their_parents(tmp_path):
  experiment = _make_population(
    population=population_config.PopulationConfig(4, exploits=False)
  )
  result = run_helpers.make_run('device', tmp_path)(experiment)
  found = result.state.observation_statistics
  assert len(np.unique(np.asarray(found.mean['']), axis=0)) == 4
  scales = jax.vmap(normalization.return_scale)(result.state.return_statistics)
  assert len(np.unique(scales)) == 4
  assert np.ptp(np.asarray(found.num_timesteps)) == 0.0
  population = state_lib.from_members(
    result.state, jax.random.PRNGKey(0), experiment.population
  )
  parent = np.array([1, 1, 3, 3])
  copied = evolution.copy_rows(population, parent, parent < 0).members
  for name in ('observation_statistics', 'return_statistics'):
    run_helpers.assert_same(
      getattr(copied, name),
      jax.tree.map(lambda leaf: leaf[parent], getattr(result.state, name)),
    )


@pytest.mark.ci
def test_a_loaded_agent_has_its_statistics(tmp_path):
  run = run_helpers.make_run('device', tmp_path)
  matching = functional_fakes.make_matching()
  experiment = run_helpers.make_experiment(CONFIG, lambda seed: matching)
  result = run(experiment, eval_every=100, num_eval_episodes=4)
  loading.export(result.run_dir, tmp_path / 'small')
  expected = jax.tree.map(lambda leaf: leaf[0], result.state)
  for directory in (result.run_dir, tmp_path / 'small'):
    agent = loading.load(directory)
    run_helpers.assert_same(
      agent.variables.observation_statistics, expected.observation_statistics
    )
    _, timestep = matching.reset(jax.random.PRNGKey(0))
    assert agent.act(timestep) in (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize('runtime', ['local', 'distributed'])
def test_populations_run_in_processes_too(tmp_path, runtime):
  run = run_helpers.make_run(runtime, tmp_path)
  result = run(_make_population(), eval_every=400, num_eval_episodes=4)
  found = result.state.observation_statistics
  assert np.all(np.asarray(found.num_timesteps) > 0)
  for member in range(4):
    run_helpers.assert_same(
      loading.load(result.run_dir, member).variables.observation_statistics,
      jax.tree.map(lambda leaf, m=member: leaf[m], found),
    )


@pytest.mark.slow
def test_frozen_agents_play_with_their_statistics(tmp_path):
  run = run_helpers.make_run('device', tmp_path)
  first = run(_make_population(max_num_actor_steps=200), 'first')
  player = loading.load(first.run_dir).player
  result = run(
    _make_population(opponents={'earlier': player}, opponent_share=0.0),
    'second',
    eval_every=200, num_eval_episodes=4,
  )  # fmt: skip
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))
  assert rows and all('scores/earlier' in row for row in rows)
