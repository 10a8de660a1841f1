import functools

import dm_env
import episodes
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium import vector as gymnasium_vector

from ftwax import types
from ftwax.environments import (
  game_vectors,
  gymnasium_adapter,
  vector,
)

FIRST, MID, LAST = dm_env.StepType
NEXT_STEP, SAME_STEP, DISABLED = (
  gymnasium_vector.AutoresetMode.NEXT_STEP,
  gymnasium_vector.AutoresetMode.SAME_STEP,
  gymnasium_vector.AutoresetMode.DISABLED,
)

BINARY, TERNARY = spaces.Discrete(2), spaces.Discrete(3)


class WalkEnv(gymnasium.Env):
  """A random walk whose every observation depends on seed and actions.

  Terminates beyond 4, is truncated after 6 steps, at times both at once.
  """

  action_space = spaces.Discrete(3, start=-1)
  observation_space = spaces.Dict(
    {
      'position': spaces.Box(-np.inf, np.inf, (2,), np.float64),
      'count': spaces.Discrete(100, start=7),
      'walls': spaces.Tuple([spaces.MultiBinary(3), spaces.Discrete(5)]),
    }
  )

  def _observe(self):
    return {
      'position': self._position,
      'count': np.int64(7 + self._num_steps),
      'walls': (self.np_random.integers(0, 2, 3, np.int8), self._num_steps % 5),
    }

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._position = self.np_random.standard_normal(2)
    self._num_steps = 0
    return self._observe(), {}

  def step(self, action):
    assert self.action_space.contains(action)
    self._position += action + self.np_random.standard_normal(2)
    self._num_steps += 1
    terminated = bool(np.abs(self._position).max() > 4)
    truncated = self._num_steps == 6
    reward = float(self._position.sum())
    return self._observe(), reward, terminated, truncated, {}


class ScriptedEnv(gymnasium.Env):
  """Ends its first episode as told and keeps what it was sent."""

  def __init__(
    self,
    terminated=False,
    truncated=False,
    *,
    action_space=BINARY,
    space=TERNARY,
    value=0,
  ):
    self.action_space = action_space
    self.observation_space = space
    self._observation = value
    self._end = terminated, truncated
    self.actions = []
    self.seeds = []
    self.is_closed = False

  def reset(self, *, seed=None, options=None):
    self.seeds.append(seed)
    return self._observation, {}

  def step(self, action):
    self.actions.append(action)
    return self._observation, 1.5, *self._end, {}

  def close(self):
    self.is_closed = True


def assert_equal(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  jax.tree.map(np.testing.assert_array_equal, a, b)


def play(environment, actions):
  return [environment.reset(), *map(environment.step, actions)]


@pytest.mark.parametrize(
  ('terminated', 'truncated', 'step_type', 'discount'),
  [
    (False, False, MID, 1),
    (True, False, LAST, 0),
    (False, True, LAST, 1),
    (True, True, LAST, 0),
  ],
)
def test_terminated_and_truncated(terminated, truncated, step_type, discount):
  environment = gymnasium_adapter.GymnasiumEnvironment(
    ScriptedEnv(terminated, truncated)
  )
  first, timestep, after = play(environment, [0, 0])
  assert first.first() and first.reward is None and first.discount is None
  assert timestep.step_type == step_type
  assert timestep.reward == 1.5 and timestep.reward.dtype == np.float32
  assert timestep.discount == discount
  assert timestep.discount.dtype == np.float32
  assert after.first() == (step_type == LAST)


def test_reset_ignores_the_action_and_seeds_once():
  env = ScriptedEnv(terminated=True)
  environment = gymnasium_adapter.GymnasiumEnvironment(env, seed=3)
  assert environment.step(-1).first()
  environment.step(1)
  assert environment.step(0).first()
  assert env.actions == [1] and env.seeds == [3, None]
  environment.close()
  assert env.is_closed and environment.env is env


def test_observations_are_copied():
  value = np.zeros(2, np.float32)
  environment = gymnasium_adapter.GymnasiumEnvironment(
    ScriptedEnv(space=spaces.Box(0, 9, (2,)), value=value)
  )
  timestep = environment.reset()
  value[:] = 5
  np.testing.assert_array_equal(timestep.observation, 0)


def test_environment_conforms_to_its_specs():
  environment = episodes.Checked(
    gymnasium_adapter.GymnasiumEnvironment(WalkEnv(), seed=0), 'walk'
  )
  actions = np.random.default_rng(0).integers(0, 3, 200)
  timesteps = play(environment, actions)
  discounts = [t.discount for t in timesteps if t.last()]
  assert {0, 1} == set(discounts) and len(discounts) > 20


def make_sync(mode, num_rows=4):
  return gymnasium_vector.SyncVectorEnv(
    [WalkEnv] * num_rows, autoreset_mode=mode
  )


@pytest.mark.parametrize('mode', [NEXT_STEP, SAME_STEP, DISABLED])
def test_vector_has_the_streams_of_its_environments(mode):
  environment = gymnasium_adapter.GymnasiumVectorEnvironment(
    make_sync(mode), seed=5
  )
  alone = vector.VectorEnvironment(
    [
      gymnasium_adapter.GymnasiumEnvironment(WalkEnv(), seed=5 + row)
      for row in range(4)
    ]
  )
  assert environment.num_environments == 4
  actions = np.random.default_rng(1).integers(0, 3, (150, 4), np.int32)
  got, expected = play(environment, actions), play(alone, actions)
  assert_equal(got, expected)
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
    assert a.dtype == b.dtype
  step_types = np.stack([t.step_type for t in got])
  np.testing.assert_array_equal(
    step_types[1:] == FIRST, step_types[:-1] == LAST
  )
  last = [t.discount[t.step_type == LAST] for t in got]
  assert {0, 1} == set(np.concatenate(last))
  assert_equal(
    jax.tree.map(repr, types.make_environment_spec(environment)),
    jax.tree.map(repr, types.make_environment_spec(alone)),
  )


@pytest.mark.parametrize('mode', [NEXT_STEP, SAME_STEP])
def test_vector_resets_everything_when_told_and_seeds_once(mode):
  environment = gymnasium_adapter.GymnasiumVectorEnvironment(
    make_sync(mode), seed=0
  )
  first = environment.step(np.zeros(4, np.int32))
  assert first.first().all()
  for _ in range(4):
    environment.step(np.full(4, 2, np.int32))
  again = environment.reset()
  assert again.first().all()
  assert not np.array_equal(
    again.observation['position'], first.observation['position']
  )
  environment.close()


@pytest.mark.parametrize('mode', [NEXT_STEP, SAME_STEP])
def test_vector_with_composite_actions(mode):
  def make():
    return ScriptedEnv(
      terminated=True,
      action_space=spaces.Dict(
        a=spaces.Discrete(3, start=1), b=spaces.MultiDiscrete([2, 4])
      ),
    )

  vector_env = gymnasium_vector.SyncVectorEnv([make] * 2, autoreset_mode=mode)
  environment = gymnasium_adapter.GymnasiumVectorEnvironment(vector_env)
  environment.reset()
  timestep = environment.step(
    {'a': np.array([0, 2]), 'b': (np.array([1, 0]), np.array([2, 3]))}
  )
  assert timestep.last().all()
  sent = [env.actions for env in vector_env.envs]
  assert_equal(sent[0], [{'a': 1, 'b': np.array([1, 2])}])
  assert_equal(sent[1], [{'a': 3, 'b': np.array([0, 3])}])


def test_vectors_of_gymnasiums_own():
  make = functools.partial(gymnasium.make, 'CartPole-v1', max_episode_steps=12)
  environments = [
    gymnasium_adapter.GymnasiumVectorEnvironment(
      gymnasium_vector.SyncVectorEnv([make] * 2), seed=0
    ),
    gymnasium_adapter.GymnasiumVectorEnvironment(
      gymnasium_vector.AsyncVectorEnv([make] * 2, context='spawn'), seed=0
    ),
  ]
  actions = np.random.default_rng(0).integers(0, 2, (40, 2), np.int32)
  sync, parallel = (play(environment, actions) for environment in environments)
  assert_equal(sync, parallel)
  assert sum(t.last().sum() for t in sync) > 4
  for environment in environments:
    environment.close()


def _wrapped(mode):
  return gymnasium.wrappers.vector.RecordEpisodeStatistics(make_sync(mode))


def test_vectors_that_reset_in_the_same_step_lose_nothing():
  rng = np.random.default_rng(0)
  actions = rng.integers(0, 3, (60, 4)).astype(np.int32)
  alone = gymnasium_adapter.GymnasiumVectorEnvironment(make_sync(SAME_STEP), 3)
  rows = [[] for _ in range(4)]
  places = np.zeros(4, int)
  environment = gymnasium_adapter.GymnasiumVectorEnvironment(
    _wrapped(SAME_STEP), 3
  )
  checked = game_vectors.VectorGames(environment, 'same step')
  assert checked.spec.environment.absences
  timestep = checked.reset()
  # Each row takes its own actions, whenever it decides.
  for _ in range(60):
    decides = timestep.step_type < LAST
    for row in range(4):
      if timestep.step_type[row] != types.ABSENT:
        rows[row].append(jax.tree.map(lambda x, i=row: x[i], timestep))
    action = actions[np.minimum(places, 59), np.arange(4)]
    waits = timestep.step_type == types.ABSENT
    action = np.where(waits, actions[places - 1, np.arange(4)], action)
    places += decides
    timestep = checked.step(action)
  for row, seen in enumerate(rows):
    own = alone._one_by_one._environments[row]
    expected, place = own.reset(), 0
    for one in seen:
      assert one.step_type == expected.step_type
      assert_equal(one.observation, expected.observation)
      if one.step_type != FIRST:
        assert (one.reward, one.discount) == (
          expected.reward, expected.discount,
        )  # fmt: skip
      is_end = one.step_type == LAST
      expected = own.step(actions[place, row])
      place += not is_end
    assert len(seen) > 30


class Batch(gymnasium_vector.VectorEnv):
  """As batched simulators do, gives last observations as one array."""

  metadata = {'autoreset_mode': SAME_STEP}
  num_envs = 64
  single_observation_space = spaces.Box(0, 99, (1,))
  single_action_space = BINARY
  has_final = True

  def reset(self, seed=None, options=None):
    # Half of the rows are one step ahead.
    self._time = np.arange(64) % 2
    return self._see(), {}

  def step(self, action):
    self._time += 1
    final, ended = self._see(), self._time == 3
    self._time[ended] = 0
    infos = {'final_obs': final} if self.has_final else {}
    no = np.zeros(64, bool)
    return self._see(), np.ones(64), ended, no, infos

  def _see(self):
    return self._time[:, None].astype(np.float32)


def test_half_of_a_batch_may_end_in_one_step():
  environment = gymnasium_adapter.GymnasiumVectorEnvironment(Batch())
  timesteps = play(environment, [np.zeros(64, np.int32)] * 8)
  kinds = np.stack([one.step_type for one in timesteps])
  seen = np.stack([one.observation[:, 0] for one in timesteps])
  assert kinds[:7, 0].tolist() == [0, 1, 1, 3, 2, 0, 1]
  assert kinds[:7, 1].tolist() == [0, 1, 2, 0, 1, 3, 1]
  assert seen[:7, 0].tolist() == [0, 1, 2, 2, 3, 0, 1]
  assert seen[:4, 1].tolist() == [1, 2, 3, 0]


def test_same_step_without_last_observations_is_refused():
  class Lossy(Batch):
    has_final = False

  environment = gymnasium_adapter.GymnasiumVectorEnvironment(Lossy())
  with pytest.raises(ValueError, match="must hold the last .* 'final_obs'"):
    play(environment, [np.zeros(64, np.int32)] * 3)


def test_vectors_that_do_not_reset_are_refused():
  with pytest.raises(ValueError, match=r'must be NEXT_STEP or SAME_STEP.*make'):
    gymnasium_adapter.GymnasiumVectorEnvironment(_wrapped(DISABLED))


def test_autoreset_mode_must_be_in_the_metadata():
  vector_env = make_sync(NEXT_STEP)
  del vector_env.metadata['autoreset_mode']
  with pytest.raises(
    ValueError, match=r'metadata of .* must have the key autoreset'
  ):
    gymnasium_adapter.GymnasiumVectorEnvironment(vector_env)


def test_spaces_that_do_not_fit_are_refused():
  with pytest.raises(
    ValueError, match=r'action_space \(Box.*\) must be Discrete'
  ):
    gymnasium_adapter.GymnasiumEnvironment(
      ScriptedEnv(action_space=spaces.Box(-1, 1, (2,), np.int32))
    )
  with pytest.raises(
    ValueError, match=r'observation_space \(Text.*\) must be Box'
  ):
    gymnasium_adapter.GymnasiumEnvironment(ScriptedEnv(space=spaces.Text(4)))
