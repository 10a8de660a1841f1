"""Interfaces of gymnax, jumanji, Brax and Playground, by fakes of them."""

import sys
import types as python_types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import types
from ftwax.environments import adapting, checking, functional, jax_adapters


class FakeGymnax:
  """Counts up; over when the action is 1, cut off after four steps.

  Its state and reward are of careless dtypes, as they are in gymnax.
  """

  default_params = python_types.SimpleNamespace(limit=4)
  action_space_value = python_types.SimpleNamespace(n=2)

  def action_space(self, params):
    del params
    return self.action_space_value

  def reset_env(self, key, params):
    del params
    start = jax.random.randint(key, (), 0, 100)
    return {'seen': jnp.stack([start, start])}, {'time': 0, 'start': start}

  def step_env(self, key, state, action, params):
    del params
    time = state['time'] + 1.0
    noise = jax.random.randint(key, (), 0, 100)
    seen = {'seen': jnp.stack([state['start'], noise]).astype(jnp.float32)}
    return seen, {**state, 'time': time}, action * 2, action == 1, {}

  def is_truncated(self, state, params):
    return state['time'] >= params.limit


def run(environment, actions, key):
  state, timestep = jax.jit(environment.reset)(key)
  timesteps = [timestep]
  step = jax.jit(environment.step)
  for action in actions:
    state, timestep = step(state, action)
    timesteps.append(timestep)
  return jax.tree.map(lambda *leaves: np.stack(leaves), *timesteps)


def test_gymnax_s_time_limits_are_told_from_ends(key):
  environment = jax_adapters.from_gymnax(FakeGymnax())
  cut = run(environment, [jnp.int32(0)] * 4, key)
  np.testing.assert_array_equal(cut.step_type, [0, 1, 1, 1, 2])
  np.testing.assert_array_equal(cut.discount, [1, 1, 1, 1, 1])
  over = run(environment, [jnp.int32(0), jnp.int32(1)], key)
  np.testing.assert_array_equal(over.step_type, [0, 1, 2])
  np.testing.assert_array_equal(over.discount, [1, 1, 0])
  np.testing.assert_array_equal(over.reward, [0, 0, 2])
  assert over.reward.dtype == np.float32
  seen = cut.observation['seen']
  assert len(set(seen[:, 0])) == 1 and len(set(seen[1:, 1])) == 4
  assert seen.dtype == np.int32
  environment.spec.observations['seen'].validate(seen[0])
  assert environment.spec.actions.num_values == 2


def test_gymnax_s_older_versions_have_ends_only(key):
  class Older(FakeGymnax):
    is_truncated = property()  # Raises AttributeError.

  environment = jax_adapters.from_gymnax(
    Older(), python_types.SimpleNamespace(limit=2)
  )
  timesteps = run(environment, [jnp.int32(0)] * 4, key)
  np.testing.assert_array_equal(timesteps.step_type, [0, 1, 1, 1, 1])


def test_gymnax_s_environments_are_vectorized(key):
  vector = functional.vectorize(jax_adapters.from_gymnax(FakeGymnax()), 3)
  state, _ = vector.reset(key)
  actions = jnp.zeros((9, 3), jnp.int32).at[1, 0].set(1)
  _, timesteps = jax.jit(lambda s: jax.lax.scan(vector.step, s, actions))(state)
  np.testing.assert_array_equal(
    timesteps.step_type[:, 0], [1, 2, 0, 1, 1, 1, 2, 0, 1]
  )
  np.testing.assert_array_equal(
    timesteps.step_type[:, 1], [1, 1, 1, 2, 0, 1, 1, 1, 2]
  )


def test_gymnax_s_continuous_actions_are_refused():
  class Continuous(FakeGymnax):
    action_space_value = 'Box(2,)'

  with pytest.raises(
    ValueError, match=r"action_space \('Box\(2,\)'\) must be"
  ):
    jax_adapters.from_gymnax(Continuous())


def test_gymnax_s_environments_are_made_by_name(monkeypatch):
  module = python_types.SimpleNamespace(
    registered_envs=['Fake-v0'],
    make=lambda name: (FakeGymnax(), python_types.SimpleNamespace(limit=3)),
  )
  monkeypatch.setitem(sys.modules, 'gymnax', module)
  environment = adapting.wrap('gymnax:Fake-v0', 0)
  state, _ = environment.reset(jax.random.PRNGKey(0))
  step_types = []
  for _ in range(3):
    state, timestep = environment.step(state, jnp.int32(0))
    step_types.append(int(timestep.step_type))
  assert step_types == [1, 1, 2]  # The parameters are those of `make`.
  with pytest.raises(ValueError, match=r"name \('Fake-v1'\) .*\['Fake-v0'\]"):
    jax_adapters.make('gymnax:Fake-v1')
  monkeypatch.setitem(sys.modules, 'gymnax', None)
  with pytest.raises(ImportError, match=r'gymnax must be .*pip install gymnax'):
    jax_adapters.make_gymnax('Fake-v0')


class Position(NamedTuple):
  row: jax.Array


class Observation(NamedTuple):
  position: Position
  action_mask: jax.Array


class FakeJumanji:
  """Adds its actions up; over when the sum reaches five."""

  def __init__(self, num_values=4, reward_shape=()):
    self.action_spec = python_types.SimpleNamespace(
      num_values=num_values, shape=np.shape(num_values)
    )
    self.reward_shape = reward_shape

  def _timestep(self, step_type, total, reward, discount):
    return python_types.SimpleNamespace(
      step_type=jnp.array(step_type, jnp.int8),
      reward=jnp.broadcast_to(jnp.asarray(reward, float), self.reward_shape),
      discount=jnp.asarray(discount, float),
      observation=Observation(Position(total), jnp.ones(4, bool)),
    )

  def reset(self, key):
    total = jax.random.randint(key, (), 0, 2)
    return {'total': total}, self._timestep(0, total, 0, 1)

  def step(self, state, action):
    assert action.shape == self.action_spec.shape
    total = state['total'] + jnp.sum(action)
    is_over = total >= 5
    step_type = jnp.where(is_over, 2, 1)
    return {'total': total * 1.0}, self._timestep(
      step_type, total, total, jnp.where(is_over, 0.0, 1.0)
    )


@pytest.mark.parametrize('num_values', [4, np.array([[4, 3], [2, 2]])])
def test_jumanji_s_named_tuples_become_dicts(key, num_values):
  environment = jax_adapters.from_jumanji(FakeJumanji(num_values))
  actions = environment.spec.actions
  if np.ndim(num_values) == 0:
    assert actions.num_values == 4
    choice = jnp.int32(2)
  else:
    assert [part.num_values for part in actions] == [4, 3, 2, 2]
    choice = tuple(jnp.int32(i) for i in (1, 0, 1, 0))
  timesteps = run(environment, [choice] * 3, key)
  start = timesteps.observation['position']['row'][0]
  num_mid = 2 if start == 0 else 1
  expected = [0] + [1] * num_mid + [2] * (3 - num_mid)
  np.testing.assert_array_equal(timesteps.step_type, expected)
  np.testing.assert_array_equal(timesteps.discount, timesteps.step_type != 2)
  np.testing.assert_array_equal(timesteps.reward[1:], start + [2, 4, 6])
  assert set(timesteps.observation) == {'position', types.ACTION_MASK}
  for leaf in (timesteps.reward, timesteps.discount):
    assert leaf.dtype == np.float32
  assert timesteps.step_type.dtype == np.int32
  state, _ = environment.reset(key)
  after, _ = environment.step(state, choice)
  assert after.state['total'].dtype == state.state['total'].dtype


def test_jumanji_s_unfit_environments_are_refused():
  with pytest.raises(
    ValueError, match=r'the reward of .* \(shape \(3,\)\) must'
  ):
    jax_adapters.from_jumanji(FakeJumanji(reward_shape=(3,)))
  environment = FakeJumanji()
  environment.action_spec = 'BoundedArray'
  with pytest.raises(
    ValueError, match=r"action_spec \('BoundedArray'\) must be"
  ):
    jax_adapters.from_jumanji(environment)
