"""Runs that start from what an earlier run learned (`init_from`)."""

import jax
import numpy as np
import pytest
import run_helpers

from ftwax.agents import impala
from ftwax.environments import catch
from ftwax.inference import loading
from ftwax.networks import cores, torsos
from ftwax.population import population_config
from ftwax.population import state as state_lib
from ftwax.runtime import initial_state, saved_agents

_CONFIG = impala.IMPALAConfig(
  core=cores.FeedForward(4),
  torso=torsos.Torso(hidden_sizes=(4,)),
  batch_size=4,
  sequence_length=4,
  normalize_observations=True,
)
# Does not move from where it starts.
_FIXED = _CONFIG.replace(learning_rate=0.0)


def _make_catch(seed):
  del seed
  return catch.make()


def _make(config=_CONFIG, **options):
  return run_helpers.make_experiment(
    config, _make_catch, max_num_actor_steps=100, **options
  )


@pytest.fixture(scope='module', name='earlier')
def fixture_earlier(tmp_path_factory):
  """Returns a run of two members, on the device."""
  run = run_helpers.make_run('device', tmp_path_factory.mktemp('earlier'))
  population = population_config.PopulationConfig(num_members=2)
  return run(_make(population=population))


@pytest.mark.parametrize(
  'runtime',
  [
    'device',
    pytest.param('local', marks=pytest.mark.slow),
    pytest.param('distributed', marks=pytest.mark.slow),
  ],
)
def test_a_new_run_has_the_parameters_of_the_earlier_one(
  earlier, runtime, tmp_path
):
  experiment = _make(_FIXED, init_from=str(earlier.run_dir), seed=5)
  result = run_helpers.make_run(runtime, tmp_path)(experiment)
  first = jax.tree.map(lambda leaf: leaf[:1], earlier.state)
  run_helpers.assert_same(result.state.params, first.params)
  # They went on counting.
  counted = result.state.observation_statistics.num_timesteps
  new_steps = result.state.steps * 4 * 4
  assert np.all(
    counted == first.observation_statistics.num_timesteps + new_steps
  )
  assert result.counts.actor_steps < 2 * earlier.counts.actor_steps
  assert float(result.state.hyperparameters.learning_rate[0]) == 0.0
  assert run_helpers.differ(result.state.key, first.key)


def test_a_network_that_does_not_fit_names_the_first_array(earlier, tmp_path):
  wider = _CONFIG.replace(torso=torsos.Torso(hidden_sizes=(6,)))
  run = run_helpers.make_run('device', tmp_path)
  with pytest.raises(
    ValueError,
    match=r'init_from .* must have the parameters of this network, but .*'
    r'members/params/.* is float32\[2, 6, 4\] in .* and float32\[2, 4, 4\]'
    r' in the checkpoint; choose',
  ):
    run(_make(wider, init_from=str(earlier.run_dir)))


def test_an_optimizer_that_does_not_fit_starts_anew(earlier, tmp_path):
  other = _FIXED.replace(optimizer='rms_prop')
  run = run_helpers.make_run('device', tmp_path)
  result = run(_make(other, init_from=str(earlier.run_dir)))
  run_helpers.assert_same(
    result.state.params,
    jax.tree.map(lambda leaf: leaf[:1], earlier.state.params),
  )


def test_what_is_no_run_is_told_before_there_is_a_directory(tmp_path):
  run = run_helpers.make_run('device', tmp_path)
  with pytest.raises(ValueError, match=r'init_from .*nothing.* must be the'):
    run(_make(init_from=str(tmp_path / 'nothing')))
  assert not (tmp_path / 'run').exists()


def _start(source, earlier):
  """Returns three members of zeros and how they start."""
  experiment = _make(init_from=str(source))
  members = jax.tree.map(lambda leaf: leaf[np.zeros(3, int)] * 0, earlier.state)
  population = state_lib.from_members(
    members,
    jax.random.PRNGKey(0),
    population_config.PopulationConfig(num_members=3),
  )
  started = initial_state.start_from(
    experiment.init_from, experiment.agent.optimizer, population
  )
  return members, started.members


def _in_turn(tree):
  return jax.tree.map(lambda leaf: leaf[np.array([0, 1, 0])], tree)


def test_members_take_those_of_the_earlier_run_in_turn(earlier):
  members, started = _start(earlier.run_dir, earlier)
  run_helpers.assert_same(started.params, _in_turn(earlier.state.params))
  run_helpers.assert_same(started.opt_state, _in_turn(earlier.state.opt_state))
  run_helpers.assert_same(started.steps, members.steps)


@pytest.mark.parametrize('is_named', [False, True])
def test_members_take_those_of_a_shared_folder(
  earlier, tmp_path, monkeypatch, is_named
):
  loading.export(earlier.run_dir, tmp_path / 'shared')
  if is_named:  # Among those that come with the library.
    monkeypatch.setattr(saved_agents, 'TRAINED', tmp_path)
  source = 'shared' if is_named else tmp_path / 'shared'
  members, started = _start(source, earlier)
  run_helpers.assert_same(started.params, _in_turn(earlier.state.params))
  run_helpers.assert_same(
    started.observation_statistics,
    _in_turn(earlier.state.observation_statistics),
  )
  run_helpers.assert_same(started.opt_state, members.opt_state)
