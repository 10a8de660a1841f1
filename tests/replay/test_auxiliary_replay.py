"""Past trajectories on the device, for auxiliary tasks."""

import functools

import dm_env
import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import types
from ftwax.agents import impala
from ftwax.agents.actor_critic import acting
from ftwax.networks import cores, torsos
from ftwax.replay import auxiliary_replay, replay_options, trajectories

LENGTH = 6
NUM_ENVIRONMENTS = 2
BATCH_SIZE = 8
SPEC = functional_fakes.make_matching().spec
BOTH = replay_options.ReplayOptions(
  replay_capacity=6,
  reward_prediction_capacity=1,
  sequences=trajectories.Sequences(3, 1),
)


@functools.cache
def _make(options, threshold=0.0):
  config = impala.IMPALAConfig(
    core=cores.LSTM(4), torso=torsos.Torso(hidden_sizes=(4,))
  )
  actor = acting.make_actor_core(config.make_network(SPEC), SPEC)
  state = actor.init(jax.random.PRNGKey(0), 1).recurrent_state
  made = auxiliary_replay.make_auxiliary_replay(
    options._replace(sequences=options.sequences._replace(threshold=threshold)),
    trajectories.make_template(SPEC, state, LENGTH),
    BATCH_SIZE,
    NUM_ENVIRONMENTS,
  )
  return actor, made


def _make_trajectory(start, reward=0.0):
  """Makes a rollout whose observations count the steps from `start`."""
  actor, _ = _make(BOTH)
  steps = start + np.arange((LENGTH + 1) * NUM_ENVIRONMENTS, dtype=np.float32)
  steps = steps.reshape(LENGTH + 1, NUM_ENVIRONMENTS)
  step_type = np.full(steps.shape, dm_env.StepType.MID, np.int32)
  rewards = np.zeros(steps.shape, np.float32)
  rewards[4] = reward
  state = actor.init(jax.random.PRNGKey(0), NUM_ENVIRONMENTS)
  return types.Trajectory(
    timestep=dm_env.TimeStep(
      step_type=jnp.asarray(step_type),
      reward=jnp.asarray(rewards),
      discount=jnp.ones(steps.shape),
      observation=jnp.stack([steps, -steps], axis=-1),
    ),
    previous_action=jnp.zeros(steps.shape, jnp.int32),
    logits=jnp.zeros((LENGTH, NUM_ENVIRONMENTS, 2)),
    recurrent_state=jax.tree.map(
      lambda leaf: jnp.full_like(leaf, start), state.recurrent_state
    ),
    seed=jnp.zeros(steps.shape, jnp.int32),
  )


def _functions(made):
  @jax.jit
  def add(state, trajectory, internal_rewards):
    reward_class = made.classify(trajectory, internal_rewards)
    return made.add(state, trajectory, reward_class)

  return jax.jit(made.init), add, jax.jit(made.sample)


WEIGHTS = jnp.ones((1,))


def _classify_oracle(step_type, reward, num_frames, period):
  length = len(step_type) - 1
  classes = np.zeros(length, int)
  for end in range(length):
    begin = end - num_frames + 1
    if begin < 0 or end % period or step_type[end] == dm_env.StepType.LAST:
      continue
    if (step_type[begin + 1 : end + 1] == dm_env.StepType.FIRST).any():
      continue
    classes[end] = 1 if reward[end + 1] == 0.0 else 2
  return classes


@pytest.mark.parametrize(('num_frames', 'period'), [(1, 1), (3, 1), (4, 2)])
def test_classes_are_those_of_an_oracle(num_frames, period):
  rng = np.random.default_rng(0)
  step_type = np.ones((41, 3), np.int32)
  for column in range(3):
    for last in np.flatnonzero(rng.random(40) < 0.2):
      if step_type[last, column] != 0:
        step_type[last, column], step_type[last + 1, column] = 2, 0
  reward = rng.integers(0, 2, step_type.shape).astype(np.float32)
  sequences = trajectories.Sequences(num_frames, period)
  classes = jax.jit(lambda *args: trajectories.classify(*args, sequences))(
    step_type, reward
  )
  assert isinstance(classes, jax.Array) and classes.dtype == np.int8
  in_numpy = trajectories.classify(step_type, reward, sequences)
  assert isinstance(in_numpy, np.ndarray) and in_numpy.dtype == np.int8
  np.testing.assert_array_equal(in_numpy, classes)
  for column in range(3):
    np.testing.assert_array_equal(
      classes[:, column],
      _classify_oracle(
        step_type[:, column], reward[:, column], num_frames, period
      ),
    )
  assert set(np.asarray(classes).ravel()) == {0, 1, 2}


def test_whole_trajectories_are_replayed(key):
  _, made = _make(BOTH._replace(reward_prediction_capacity=0))
  init, add, sample = _functions(made)
  state = init(key)
  for start in (0, 100, 200, 300):  # Six of eight are kept.
    state = add(state, _make_trajectory(start), WEIGHTS)
  seen = set()
  for _ in range(10):
    state, replay, prediction = sample(state)
    assert prediction is None
    assert replay.is_live
    observation = np.asarray(replay.trajectory.timestep.observation)
    assert observation.shape == (LENGTH + 1, 8, 2)
    first = observation[0, :, 0]
    np.testing.assert_array_equal(
      observation[:, :, 0],
      first + NUM_ENVIRONMENTS * np.arange(LENGTH + 1)[:, None],
    )
    for leaf in jax.tree.leaves(replay.trajectory.recurrent_state):
      np.testing.assert_array_equal(leaf[:, 0], first - first % 100)
    seen |= set(first.tolist())
  assert seen == {100.0, 101.0, 200.0, 201.0, 300.0, 301.0}


def test_one_half_of_the_sequences_ends_in_a_reward(key):
  _, made = _make(BOTH)
  init, add, sample = _functions(made)
  state = init(key)
  state, _, prediction = sample(state)
  assert not prediction.is_live  # Nothing is stored yet.
  state = add(state, _make_trajectory(0), WEIGHTS)
  state = add(state, _make_trajectory(100, reward=2.0), WEIGHTS)
  ends = set()
  for _ in range(10):
    state, _, prediction = sample(state)
    assert prediction.is_live
    np.testing.assert_array_equal(prediction.reward, [2.0] * 4 + [0.0] * 4)
    frames = np.asarray(prediction.observation)[..., 0]  # [3, B]
    np.testing.assert_array_equal(np.diff(frames, axis=0), NUM_ENVIRONMENTS)
    # The reward of step 4 comes after the frames of steps 1 to 3.
    assert set(frames[-1, :4].tolist()) <= {106.0, 107.0}
    ends |= set(frames[-1, 4:].tolist())
  every = {start + 2 * step + row for start in (0, 100) for step in range(2, 6)
           for row in range(2)}  # fmt: skip
  assert ends <= every - {106.0, 107.0}
  assert len(ends) > 10  # Of 14.


def test_rewards_that_an_agent_does_not_count_are_zero(key):
  _, made = _make(BOTH)
  init, add, _ = _functions(made)
  trajectory = _make_trajectory(0, reward=2.0)
  for weight, classes in ((0.0, {0, 1}), (1.0, {0, 1, 2})):
    state = add(init(key), trajectory, jnp.full((1,), weight))
    stored = state.replay.ring.data.reward_class
    assert set(np.asarray(stored).ravel().tolist()) == classes


@pytest.mark.parametrize('reward', [0.0, 0.5, -2.0])
@pytest.mark.parametrize('threshold', [0.0, 1.0])
def test_rewards_of_one_kind_are_all_that_is_sampled(key, reward, threshold):
  _, made = _make(BOTH, threshold)
  init, add, sample = _functions(made)
  trajectory = _make_trajectory(0)
  timestep = trajectory.timestep
  rewards = jnp.full_like(timestep.reward, reward)
  trajectory = trajectory._replace(timestep=timestep._replace(reward=rewards))
  state = add(init(key), trajectory, WEIGHTS)
  kinds = set(np.asarray(state.replay.ring.data.reward_class).ravel().tolist())
  assert kinds == {0, 1 if abs(reward) <= threshold else 2}
  _, _, prediction = sample(state)
  assert prediction.is_live
  np.testing.assert_array_equal(prediction.reward, [reward] * 8)
  frames = np.asarray(prediction.observation)[..., 0]
  np.testing.assert_array_equal(np.diff(frames, axis=0), NUM_ENVIRONMENTS)
  assert len(set(frames[-1].tolist())) > 1


def test_no_replay_where_no_task_needs_one():
  _, made = _make(replay_options.QUEUE_ALONE)
  assert made is None
