"""On-device replay of trajectories by priority, for action values.

Like that of auxiliary tasks, whose sequences it samples too, it is a functional
replay each of whose steps is a whole trajectory. A sample is a trajectory and
those before it in the same stream.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import trees, types
from ftwax.replay import (
  auxiliary_replay,
  functional,
  replay_options,
  trajectories,
)
from ftwax.replay.functional import prioritized as functional_prioritized

# Sequences without any error would never be sampled again.
_SMALLEST_PRIORITY = 1e-6


class Drawn(NamedTuple):
  """A sample of B trajectories.

  Attributes:
    batch: the trajectories, those before them, and their weights.
    env_id: int32 [B], where they come from; see `functional.SampleInfo`.
    position: int32 [B].
    is_ready: bool [], whether the replay is full enough to learn.
  """

  batch: types.LearnerBatch
  env_id: types.Array
  position: types.Array
  is_ready: types.Array


@dataclasses.dataclass(frozen=True, eq=False)
class PrioritizedReplay(auxiliary_replay.AuxiliaryReplay):
  """A replay by priority; all methods are pure.

  Attributes:
    config: sizes of the samples; its numbers are those of hyperparameters.
  """

  config: replay_options.Prioritized

  @property
  def feeds_policy(self) -> bool:
    """Returns True: the agent learns from what it samples."""
    return True

  def add(
    self,
    state: auxiliary_replay.AuxiliaryState,
    trajectory: types.Trajectory,
    reward_class: types.Array,
    actor: types.Array | None = None,
  ) -> auxiliary_replay.AuxiliaryState:
    """Adds trajectories, which get the largest priority of those stored.

    Args:
      state: before.
      trajectory: leaves [T + 1 or T, M, ...].
      reward_class: int8 [T, M].
      actor: int32 [], index of the actor that wrote them, with streams of its
        own; None if there is one.
    """
    rows = trajectories.swap_batch(
      trajectories.Record(trajectory, reward_class)
    )
    return state._replace(
      replay=self.replay.add(
        state.replay,
        rows,
        None if actor is None else _streams(actor, reward_class.shape[1]),
        hyperparameters=functional.ReplayHyperparameters(
          initial_priority=_SMALLEST_PRIORITY
        ),
      )
    )

  def draw(
    self, state: auxiliary_replay.AuxiliaryState, hyperparameters: Any
  ) -> tuple[auxiliary_replay.AuxiliaryState, Drawn]:
    """Samples a batch; returns the new state, too.

    Args:
      state: before.
      hyperparameters: of `config`, bound or as a tree of values.
    """
    state, _, prediction = self.sample(state)
    key, sample_key = jax.random.split(state.key)
    sample = self.replay.sample(
      state.replay, sample_key, _functional(hyperparameters)
    )
    *burn_in, trajectory = (
      trajectories.swap_batch(trees.take(sample.data, index)).trajectory
      for index in range(self.config.burn_in + 1)
    )
    info = sample.info
    size = self.replay.total_size(state.replay)
    return state._replace(key=key), Drawn(
      types.LearnerBatch(
        trajectory,
        reward_prediction=prediction,
        burn_in=tuple(burn_in),
        weight=info.importance_weight,
      ),
      info.env_id,
      info.position,
      jnp.all(info.is_valid) & (size >= self.config.min_size),
    )

  def update_priorities(
    self,
    state: auxiliary_replay.AuxiliaryState,
    drawn: Drawn,
    priorities: types.Array,
    hyperparameters: Any,
  ) -> auxiliary_replay.AuxiliaryState:
    """Sets the priorities, float32 [B], of a sample."""
    replay = self.replay.update_priorities(
      state.replay,
      drawn.env_id,
      drawn.position,
      jnp.maximum(priorities, _SMALLEST_PRIORITY),
      _functional(hyperparameters),
    )
    return state._replace(replay=replay)


def make_prioritized_replay(
  config: replay_options.Prioritized,
  options: replay_options.ReplayOptions,
  template: types.Trajectory,
  batch_size: int,
  num_environments: int,
) -> PrioritizedReplay:
  """Makes a replay by priority.

  Args:
    config: its sizes.
    options: what auxiliary tasks sample from it.
    template: a trajectory with the shapes and dtypes of those to add.
    batch_size: B, trajectories in a sample.
    num_environments: E, streams: the trajectories that all actors add at a
      time, each in the same order.

  Raises:
    ValueError: if it does not hold a sample of each environment.
  """
  length = config.burn_in + 1
  least = length * num_environments
  if config.capacity < least:
    raise ValueError(
      f'replay.capacity ({config.capacity}) must hold burn_in + 1 ({length})'
      f' trajectories of each of {num_environments} environments of all'
      f' actors; choose {2 * least}, or lower num_environments.'
    )
  capacity = max(
    config.capacity,
    -(
      -options.reward_prediction_capacity // (len(template.timestep.reward) - 1)
    ),
  )
  record = trajectories.Record(
    template, np.zeros(len(template.timestep.reward) - 1, np.int8)
  )
  replay = functional.make_replay(
    record,
    functional.ReplayConfig(
      num_environments=num_environments,
      max_length=-(-capacity // num_environments),
      sequence_length=length,
      batch_size=batch_size,
      prioritized=True,
    ),
  )
  return PrioritizedReplay(options, replay, batch_size, config)


def importance_weights(
  probability: types.Array, hyperparameters: Any
) -> types.Array:
  """Returns the weights of a sample, as this replay's are.

  Args:
    probability: float32 [B], with which each trajectory is sampled.
    hyperparameters: of `replay_options.Prioritized`.

  Returns:
    float32 [B]; the largest is one.
  """
  return functional_prioritized.importance_weights(
    probability,
    hyperparameters.importance_exponent,
    jnp.ones(probability.shape, bool),
  )


def raise_priorities(
  priorities: types.Array, hyperparameters: Any
) -> types.Array:
  """Returns priorities^alpha, in proportion to which trajectories are sampled.

  Args:
    priorities: float32 [B], of the loss.
    hyperparameters: of `replay_options.Prioritized`.
  """
  least = jnp.maximum(priorities, _SMALLEST_PRIORITY)
  return least**hyperparameters.priority_exponent


def _streams(actor: types.Array, num_rows: int) -> types.Array:
  """Returns the streams of an actor's rows, int32 [num_rows]."""
  return actor * num_rows + jnp.arange(num_rows, dtype=jnp.int32)


def _functional(hyperparameters: Any) -> functional.ReplayHyperparameters:
  return functional.ReplayHyperparameters(
    priority_exponent=hyperparameters.priority_exponent,
    importance_exponent=hyperparameters.importance_exponent,
  )
