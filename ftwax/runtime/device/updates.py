"""Updates one agent from rollouts, as a pure function."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax

from ftwax import types
from ftwax.replay import auxiliary_replay
from ftwax.runtime.device import sizes as sizes_lib

# `(state, replay, trajectories) -> (state, replay, (metrics, skipped))`; see
# `learn`.
Learn = Callable[
  [types.TrainingState, Any, types.Trajectory],
  tuple[types.TrainingState, Any, tuple[types.Metrics, types.Array]],
]


def make_learn(
  learner: types.LearnerCore,
  replay: auxiliary_replay.AuxiliaryReplay | None,
  sizes: sizes_lib.Sizes,
) -> Learn:
  """Returns the function that runs the updates of an iteration."""
  return functools.partial(
    learn, learner, replay, sizes.num_updates, sizes.unroll
  )


def learn(
  learner: types.LearnerCore,
  replay: auxiliary_replay.AuxiliaryReplay | None,
  num_updates: int,
  unroll: bool,
  state: types.TrainingState,
  replay_state: Any,
  trajectories: types.Trajectory,
) -> tuple[types.TrainingState, Any, tuple[types.Metrics, types.Array]]:
  """Learns from rollouts, using each trajectory once.

  Args:
    learner: functions of the learner.
    replay: replay for auxiliary tasks; None if they need none.
    num_updates: U, which divides R * M.
    unroll: whether to unroll the updates instead of compiling a loop.
    state: state of the learner.
    replay_state: state of `replay`; unused without one.
    trajectories: R rollouts, leaves [R, T + 1 or T, M, ...], with a recurrent
      state [R, M, ...].

  Returns:
    The new states, and the metrics and numbers of updates skipped in a row,
    leaves [U].
  """
  if replay is not None:
    for index in range(trajectories.timestep.reward.shape[0]):
      rollout = jax.tree.map(operator.itemgetter(index), trajectories)
      reward_class = replay.classify(rollout, state.internal_rewards)
      replay_state = replay.add(replay_state, rollout, reward_class)

  def step(
    carry: tuple[types.TrainingState, Any], trajectory: types.Trajectory
  ) -> tuple[
    tuple[types.TrainingState, Any], tuple[types.Metrics, types.Array]
  ]:
    state, replay_state = carry
    batch = types.LearnerBatch(trajectory)
    if replay is not None:
      replay_state, past, prediction = replay.sample(replay_state)
      batch = types.LearnerBatch(trajectory, past, prediction)
    state, metrics = learner.update(state, batch)
    if auxiliary_replay.PRIORITIES in metrics:
      assert replay is not None and batch.replay is not None
      metrics = dict(metrics)
      replay_state = replay.update_priorities(
        replay_state,
        batch.replay.slots,
        metrics.pop(auxiliary_replay.PRIORITIES),
      )
    return (state, replay_state), (metrics, state.skipped_in_a_row)

  (state, replay_state), rows = jax.lax.scan(
    step,
    (state, replay_state),
    _make_batches(trajectories, num_updates),
    unroll=scan_unroll(num_updates, unroll),
  )
  return state, replay_state, rows


def scan_unroll(length: int, unroll: bool) -> int:
  """Returns the `unroll` argument of a `lax.scan`: all of it, or a loop."""
  # Exceeds the length on purpose: with `True` or the length itself, a scan of
  # one step stays a loop, in which gradients of convolutions are slow too.
  return length + 1 if unroll else 1


def _make_batches(
  trajectories: types.Trajectory, num_batches: int
) -> types.Trajectory:
  """Cuts rollouts, leaves [R, T, M, ...], into batches [U, T, R * M / U, ...].

  The recurrent state, [R, M, ...], becomes [U, R * M / U, ...].
  """

  def cut(leaf: types.Array) -> types.Array:  # [R, M, ...]
    # Not -1, since a leaf of the recurrent state may be empty.
    num_columns = leaf.shape[0] * leaf.shape[1] // num_batches
    return leaf.reshape(num_batches, num_columns, *leaf.shape[2:])

  cut_each = jax.vmap(cut, in_axes=1, out_axes=1)  # [R, T, M, ...]
  steps: types.Trajectory = jax.tree.map(
    cut_each, trajectories._replace(recurrent_state=())
  )
  return steps._replace(
    recurrent_state=jax.tree.map(cut, trajectories.recurrent_state)
  )
