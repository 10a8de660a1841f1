"""Interfaces of gymnax, jumanji, Brax and Playground, by fakes of them."""

import pathlib
import re
import sys
import types as python_types
from typing import NamedTuple

import documented_code
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

  with pytest.raises(ValueError, match=r"action_space \('Box\(2,\)'\) must be"):
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
    jax_adapters.make('gymnax:Fake-v0')


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


class BraxState(NamedTuple):
  obs: dict[str, jax.Array]
  reward: jax.Array
  done: jax.Array
  info: dict[str, jax.Array]


class FakeBrax:
  """Adds its actions up; over when the sum reaches two.

  It says that each end is one by time, as Brax's inverted pendulum does.
  """

  action_size = 1
  wrapper_info: dict[str, float] = {}

  @property
  def observation_size(self):
    raise AssertionError('costs a reset')

  def _state(self, total, reward, info):
    obs = {'state': total, 'privileged_state': jnp.append(total, info['left'])}
    done = jnp.float32(total[0] >= 2.0)
    return BraxState(obs, reward, done, {**info, 'time_out': done})

  def reset(self, key):
    left = jax.random.randint(key, (), 0, 10)
    info = {name: jnp.float32(x) for name, x in self.wrapper_info.items()}
    return self._state(jnp.zeros(1), jnp.float32(0), {**info, 'left': left})

  def step(self, state, action):
    assert action.dtype == jnp.float32
    info = {**state.info, 'left': state.info['left'] - 1}
    return self._state(state.obs['state'] + action, 10 * action[0], info)


class Wrapped(FakeBrax):
  """Truncated after three steps, by a wrapper as Brax's EpisodeWrapper."""

  wrapper_info = {'truncation': 0.0, 'steps': 0.0}

  def step(self, state, action):
    steps = state.info['steps'] + 1.0
    state = super().step(state, action)
    cut = jnp.where(steps >= 3.0, 1.0 - state.done, 0.0)
    info = {**state.info, 'truncation': cut, 'steps': steps}
    return state._replace(done=jnp.maximum(state.done, cut), info=info)


def _act(*actions):
  return [jnp.array([action], jnp.float32) for action in actions]


@pytest.mark.parametrize(
  'environment',
  [jax_adapters.from_brax(FakeBrax(), 3), jax_adapters.from_brax(Wrapped())],
  ids=['own limit', 'wrapper'],
)
def test_brax_s_time_limits_are_told_from_ends(environment, key):
  cut = run(environment, _act(0.5, 0.5, 0.5), key)
  np.testing.assert_array_equal(cut.step_type, [0, 1, 1, 2])
  np.testing.assert_array_equal(cut.discount, [1, 1, 1, 1])
  np.testing.assert_array_equal(cut.reward, [0, 5, 5, 5])
  np.testing.assert_array_equal(
    cut.observation['state'][:, 0], [0.0, 0.5, 1.0, 1.5]
  )
  over = run(environment, _act(1.0, 1.0), key)
  np.testing.assert_array_equal(over.step_type, [0, 1, 2])
  np.testing.assert_array_equal(over.discount, [1, 1, 0])
  both = run(environment, _act(0.5, 0.5, 1.0), key)
  np.testing.assert_array_equal(both.step_type, [0, 1, 1, 2])
  np.testing.assert_array_equal(both.discount, [1, 1, 1, 0])
  left = over.observation['privileged_state'][:, 1]
  np.testing.assert_array_equal(left[0] - left, [0, 1, 2])


@pytest.mark.parametrize('done', [0.0, 1.0])
def test_an_end_of_brax_by_numbers_that_diverge_is_finite(done, key):
  class Diverging(FakeBrax):
    def step(self, state, action):
      state = super().step(state, action + jnp.nan)
      return state._replace(done=jnp.float32(done))

  seen = run(jax_adapters.from_brax(Diverging()), _act(0.0), key)
  values = [seen.reward, *seen.observation.values()]
  assert all(np.isfinite(value).all() for value in values) == (done > 0.0)
  assert seen.discount[-1] == 1.0 - done


def test_brax_s_episodes_are_as_long_as_in_its_training(key):
  vector = functional.vectorize(jax_adapters.from_brax(FakeBrax()), 2)
  state, _ = vector.reset(key)
  actions = jnp.zeros((1001, 2, 1))
  _, timesteps = jax.jit(lambda s: jax.lax.scan(vector.step, s, actions))(state)
  ends = np.flatnonzero(timesteps.step_type[:, 0] == types.LAST)
  assert ends.tolist() == [999]
  assert timesteps.step_type[1000].tolist() == [types.FIRST, types.FIRST]


def test_brax_s_unfit_environments_are_refused():
  class Restarting(FakeBrax):
    wrapper_info = {'AutoReset_first_obs': 0.0}

  with pytest.raises(
    ValueError, match=r'environment \(Restarting\) must not restart its .*'
    'auto_reset=False',
  ):  # fmt: skip
    jax_adapters.from_brax(Restarting())

  class Unbounded(FakeBrax):
    sys = python_types.SimpleNamespace(
      actuator=python_types.SimpleNamespace(ctrl_range=[[-np.inf, 1.0]])
    )

  with pytest.raises(
    ValueError, match=r'Unbounded \(ctrl_range \[\[-inf, 1.0\]\]\) must have bo'
  ):
    jax_adapters.from_brax(Unbounded())


@pytest.fixture
def _installed(monkeypatch):
  """Brax and Playground, with an environment each."""

  class Task(FakeBrax):
    def __init__(self, impl='none'):
      self.name = impl

  configs = python_types.SimpleNamespace
  registry = python_types.SimpleNamespace(
    ALL_ENVS=('Task',),
    get_default_config=lambda name: Config(impl='warp', episode_length=2),
    load=lambda name, config: Task(config.impl),
  )

  class Config(configs):
    def __contains__(self, name):
      return hasattr(self, name)

  envs = python_types.SimpleNamespace(
    _envs={'task': Task}, get_environment=lambda name: Task()
  )
  monkeypatch.setitem(sys.modules, 'brax', python_types.SimpleNamespace())
  monkeypatch.setitem(sys.modules, 'brax.envs', envs)
  monkeypatch.setitem(
    sys.modules,
    'mujoco_playground',
    python_types.SimpleNamespace(registry=registry),
  )
  return Task


@pytest.mark.parametrize(
  ('name', 'described', 'length'),
  [('brax:task', 'none', 9), ('playground:Task', 'jax', 2)],
)
def test_simulators_are_taken_by_name(_installed, name, described, length, key):
  environment = adapting.wrap(name, 0)
  assert adapting.describe(environment) == described
  seen = run(environment, _act(*[0.0] * length), key)
  assert (seen.step_type[-1] == types.LAST) == (length == 2)
  assert checking.check(name, 20).facts['action'].count('minimum=-1.0') == 1


def test_simulators_are_taken_as_they_are_and_by_what_makes_them(_installed):
  for environment in (_installed(), _installed, lambda seed: _installed()):
    factory = adapting.make_factory(adapting.accept(environment))
    assert isinstance(
      adapting.wrap(factory(0), 0), functional.FunctionalEnvironment
    )
  with pytest.raises(ValueError, match=r"name \('ant'\) .* of brax; .*'task'"):
    adapting.wrap('brax:ant', 0)


def test_simulators_that_are_missing_are_told(monkeypatch):
  for library, module in (
    ('brax', 'brax'),
    ('playground', 'mujoco_playground'),
  ):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
      ImportError, match=rf'{library} must be installed .*; run .*{library}'
    ):
      adapting.wrap(f'{library}:ant', 0)


def test_what_an_agent_sees_may_be_a_view(key):
  whole = jax_adapters.from_brax(FakeBrax(), 3)
  environment = functional.see(whole, lambda seen: 2.0 * seen['state'])
  assert environment.spec.observations.shape == (1,)
  assert adapting.describe(environment) == 'FakeBrax'
  actions = _act(0.5, 0.5, 0.5)
  seen, expected = run(environment, actions, key), run(whole, actions, key)
  np.testing.assert_array_equal(seen.observation[:, 0], [0.0, 1.0, 2.0, 3.0])
  np.testing.assert_array_equal(seen.reward, expected.reward)
  np.testing.assert_array_equal(seen.step_type, expected.step_type)


@pytest.mark.slow
def test_the_page_on_brax_runs(tmp_path):
  pytest.importorskip('brax', reason='brax is not there')
  page = pathlib.Path(__file__).parents[2] / 'docs' / 'how_to' / 'brax.md'
  code = page.read_text('utf-8').split('```py\n')[1].split('```')[0]
  assert 'max_num_actor_steps=400_000' in code
  code = code.replace('400_000', '3_000')
  documented_code.run(f'{code}print(result)', tmp_path, 300)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'episodes'),
  [
    ('brax:inverted_pendulum', '[1-9].* terminated'),
    ('playground:CartpoleBalance', '0 in 60 steps'),
  ],
)
def test_simulators_play(name, episodes, tmp_path):
  pytest.importorskip('mujoco_playground', reason='playground is not there')
  # In a process of its own, as they promote ranks and warn.
  code = f"""
from ftwax.environments import checking
print(checking.check({name!r}, 60).facts)
"""
  facts = documented_code.run(code, tmp_path, 300)
  assert 'minimum=-1.0, maximum=1.0' in facts
  assert re.search(f"'episodes': '{episodes}", facts)
