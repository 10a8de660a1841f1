"""The queue and the tables in the process that learns."""

import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import distributions
from ftwax.replay import (
  auxiliary_replay,
  local_replay,
  replay_options,
  trajectories,
)

T, E = 3, 2
SPEC = fakes.make_vector_spec()
STATE = np.zeros((1, 2), np.float32)
TEMPLATE = trajectories.make_template(SPEC, STATE, T)


def _make(batch_size, max_queue_size=100, options=replay_options.QUEUE_ALONE):
  auxiliary = auxiliary_replay.make_auxiliary_replay(
    options, TEMPLATE, batch_size, batch_size
  )
  return local_replay.LocalReplay(
    TEMPLATE,
    E,
    batch_size,
    max_queue_size,
    options,
    auxiliary,
    jax.random.PRNGKey(0),
  )


def _add(replay, num_trajectories, start=0, reward=0.0):
  """Adds timesteps whose rewards count the steps: 100 more of the second."""
  action = distributions.no_action(SPEC.actions, (E,))
  for step in range(start, start + T * num_trajectories + (start == 0)):
    rows = step + np.array([0, 100])
    replay.add_timestep(
      dm_env.TimeStep(
        step_type=np.ones(E, np.int32),
        reward=np.full(E, reward, np.float32),
        discount=np.ones(E, np.float32),
        observation=rows[:, None]
        * np.ones(SPEC.observations.shape, np.float32),
      ),
      action,
      np.stack([rows, rows], axis=1).astype(np.float32),
      rows.astype(np.int32),
    )
    logits = distributions.zero_logits(SPEC.actions, (E,))
    replay.add_choice(logits, step, np.ones(1, np.float32))


def _first_steps(sample):
  return np.asarray(sample.batch.trajectory.timestep.observation)[0, :, 0]


@pytest.mark.parametrize('batch_size', [1, 2, 3, 4])
def test_batches_are_the_trajectories_in_the_order_of_writing(batch_size):
  replay = _make(batch_size)
  _add(replay, 6)
  assert replay.num_items == replay.queue_size == 12
  # Two trajectories, of both environments, begin at each of these.
  expected = [start + row for start in range(0, 18, T) for row in (0, 100)]
  seen = []
  while replay.queue_size >= batch_size:
    sample = next(replay)
    first = _first_steps(sample)
    timestep = sample.batch.trajectory.timestep
    np.testing.assert_array_equal(
      timestep.observation[..., 0], first + np.arange(T + 1)[:, None]
    )
    np.testing.assert_array_equal(
      sample.batch.trajectory.recurrent_state, np.stack([first, first], 1)
    )
    np.testing.assert_array_equal(sample.variables_steps, first % 100)
    assert sample.written_at.shape == (batch_size,)
    seen += first.tolist()
  assert seen == expected[: len(seen)]
  assert len(seen) == 12 - 12 % batch_size


def test_what_was_sampled_does_not_change(batch_size=2):
  replay = _make(batch_size)
  _add(replay, 1)
  sample = next(replay)
  before = jax.tree.map(np.array, sample.batch)
  _add(replay, 3, start=T + 1)
  jax.tree.map(np.testing.assert_array_equal, sample.batch, before)


def test_an_empty_queue_is_told():
  replay = _make(batch_size=3)
  _add(replay, 1)
  with pytest.raises(ValueError, match=r'holds 2 .*hold batch_size \(3\)'):
    next(replay)
  assert replay.queue_size == 2


def test_a_queue_that_nobody_takes_from_is_told():
  replay = _make(batch_size=2, max_queue_size=3)
  with pytest.raises(ValueError, match=r'holds 4 .* max_queue_size \(3\)'):
    _add(replay, 3)
  next(replay)


def test_an_unfinished_trajectory_can_be_dropped():
  replay = _make(batch_size=2)
  _add(replay, 1)
  replay.reset()
  _add(replay, 1, start=50)  # One step less than a trajectory has.
  assert replay.num_items == 2
  _add(replay, 1, start=50 + T)
  next(replay)
  np.testing.assert_array_equal(_first_steps(next(replay)), [50, 150])


def test_tables_hold_what_was_learned_from():
  options = replay_options.ReplayOptions(
    replay_capacity=4,
    reward_prediction_capacity=4,
    sequences=trajectories.Sequences(2, 1),
  )
  replay = _make(batch_size=2, options=options)
  for start in (0, T + 1, 2 * T + 1, 3 * T + 1):
    _add(replay, 1, start=start, reward=1.0)
    sample = next(replay)
    first = _first_steps(sample)
    past = np.asarray(sample.batch.replay.trajectory.timestep.observation)
    # Of the four trajectories kept, those that the learner takes are the last.
    assert set(past[0, :, 0] % 100) <= {first[0], first[0] - T}
    assert sample.batch.replay.is_live
    assert sample.batch.reward_prediction.is_live
    np.testing.assert_array_equal(
      sample.batch.reward_prediction.reward, [1.0, 1.0]
    )


def test_priorities_of_what_was_replayed_are_kept():
  options = replay_options.ReplayOptions(replay_capacity=8, prioritized=True)
  replay = _make(batch_size=4, options=options)
  _add(replay, 2)
  sample = next(replay)
  firsts = np.asarray(sample.batch.replay.trajectory.timestep.observation)
  favourite = firsts[0, 0, 0]
  sample.set_priorities(jnp.where(firsts[0, :, 0] == favourite, 1.0, 0.0))
  _add(replay, 2, start=2 * T + 1)
  drawn = np.asarray(next(replay).batch.replay.trajectory.timestep.observation)
  # New trajectories have the greatest priority, the other old ones none.
  assert set(drawn[0, :, 0].tolist()) <= {favourite, 6.0, 106.0, 9.0, 109.0}
