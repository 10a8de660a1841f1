"""A start compiles few functions: operations outside of one are each one."""

import jax
import numpy as np
import pytest

from ftwax.agents import impala
from ftwax.environments import catch
from ftwax.inference import loaded_agent
from ftwax.networks import cores
from ftwax.population import population_config, state, tournament
from ftwax.records import array_files
from ftwax.runtime import experiment, generations, prepare

_names = []


@jax.monitoring.register_event_duration_secs_listener
def _listen(event, duration_secs, **named):
  del duration_secs
  if event == '/jax/core/compile/backend_compile_duration':
    _names.append(named.get('fun_name'))


@pytest.fixture
def names():
  """Names of what is compiled in the test, in a list that it may clear."""
  _names.clear()
  return _names


@pytest.fixture(scope='module')
def parts():
  # Sizes of their own, so that no other test has compiled for them.
  return prepare.prepare(
    experiment.ExperimentConfig(
      agent=impala.IMPALAConfig(core=cores.LSTM(11)),
      environment=catch.make(),
      population=population_config.PopulationConfig(5, exploits=False),
      num_environments=5,
      max_num_actor_steps=1000,
    )
  )


def test_a_tournament_is_rated_by_one_function(names):
  teams = 0, 0, 1, 1
  seats = tournament.round_robin(3, 14, teams)
  for num_games in (39, 38):
    outcomes = np.arange(2 * num_games).reshape(num_games, 2) % 3
    names.clear()
    tournament.summarize(seats[:num_games], outcomes, teams, 3)
    assert len(names) == 1


def test_an_agent_begins_with_one_function(names, parts):
  members = jax.vmap(parts.learner.init)(jax.random.split(parts.key, 5))
  params = jax.tree.map(lambda leaf: leaf[0], members.params)
  agent = loaded_agent.LoadedAgent(parts.policy, {'params': params}, parts.spec)
  names.clear()
  begun = agent.initial_state(num_rows=7)
  assert len(names) == 1
  expected = parts.policy.init(jax.random.PRNGKey(0), 7)
  jax.tree.map(np.testing.assert_array_equal, begun, expected)


def test_a_row_of_the_log_is_one_function(names, parts):
  members = jax.vmap(parts.learner.init)(jax.random.split(parts.key, 5))
  population = generations.make_population(parts, members, parts.key)
  names.clear()
  state.log_values(population)
  assert len(names) == 1


def test_arrays_are_read_without_compiling(names):
  data = np.arange(39, dtype=np.float32).reshape(3, 13)
  like = jax.ShapeDtypeStruct(data.shape, data.dtype)
  leaf = array_files.Leaf('float32', data.shape)
  read = array_files._make_like(bytearray(data.tobytes()), leaf, like)
  assert isinstance(read, jax.Array) and not names
  np.testing.assert_array_equal(read, data)
