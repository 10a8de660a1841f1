"""On-device replay of past trajectories, for auxiliary tasks.

One functional replay, each of whose steps is a whole trajectory, serves all
tasks. Replayed trajectories are sampled uniformly. Short sequences for reward
prediction are sampled by class of the reward that follows, half of them before
a nonzero reward (Jaderberg et al., 2017, arXiv:1611.05397, section 3.2). Both
come from the same latest trajectories.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import internal_rewards as internal_rewards_lib
from ftwax import trees, types
from ftwax.replay import functional, replay_options, trajectories


class AuxiliaryState(NamedTuple):
  """State of a replay for auxiliary tasks.

  Attributes:
    replay: state of the functional replay.
    key: random key for sampling.
  """

  replay: functional.ReplayState
  key: types.Key


@dataclasses.dataclass(frozen=True, eq=False)
class AuxiliaryReplay:
  """A replay for auxiliary tasks; all methods are pure.

  Attributes:
    options: what to store and sample.
    replay: the functional replay.
    batch_size: B, trajectories and sequences in a sample.
  """

  options: replay_options.ReplayOptions
  replay: functional.Replay
  batch_size: int

  @property
  def feeds_policy(self) -> bool:
    """Whether the agent learns from it alone; see `prioritized_replay`."""
    return False

  def init(self, key: types.Key) -> AuxiliaryState:
    """Returns an empty replay, given the random key of its samples."""
    return AuxiliaryState(self.replay.init(), key)

  def classify(
    self, trajectory: types.Trajectory, internal_rewards: types.InternalRewards
  ) -> types.Array:
    """Returns classes by the agent's own rewards, int8 [T, E]."""
    timestep = trajectory.timestep
    return trajectories.classify(
      timestep.step_type,
      internal_rewards_lib.reward(internal_rewards, timestep),
      self.options.sequences,
    )

  def add(
    self,
    state: AuxiliaryState,
    trajectory: types.Trajectory,
    reward_class: types.Array,
  ) -> AuxiliaryState:
    """Adds trajectories, leaves [T + 1 or T, E, ...], and their classes."""
    # Its steps are whole trajectories, leaves [E, T, ...].
    rows = trajectories.swap_batch(
      trajectories.Record(trajectory, reward_class)
    )
    return state._replace(replay=self.replay.add(state.replay, rows))

  def sample(
    self, state: AuxiliaryState
  ) -> tuple[
    AuxiliaryState, types.ReplayBatch | None, types.RewardPredictionBatch | None
  ]:
    """Returns the new state, and batches as in `types.LearnerBatch`."""
    key, replay_key, prediction_key = jax.random.split(state.key, 3)
    batch, prediction = None, None
    if self.options.replay_capacity:
      sample = self.replay.sample(state.replay, replay_key)
      # Sequences of one step, a whole trajectory: drop the axis of length 1.
      stored = trees.take(sample.data, 0)
      batch = types.ReplayBatch(
        trajectories.swap_batch(stored).trajectory,
        jnp.all(sample.info.is_valid),
      )
    if self.options.reward_prediction_capacity:
      prediction = _sample_reward_prediction(
        self.batch_size,
        self.options.sequences.num_frames,
        prediction_key,
        state.replay.ring.data,
      )
    return state._replace(key=key), batch, prediction


def make_auxiliary_replay(
  options: replay_options.ReplayOptions,
  template: types.Trajectory,
  batch_size: int,
  num_environments: int,
) -> AuxiliaryReplay | None:
  """Makes the replay that auxiliary tasks need, if any.

  Args:
    options: what to store; if both capacities are given, the larger one counts,
      in trajectories.
    template: a trajectory with the shapes and dtypes of those to add.
    batch_size: B, trajectories and sequences in a sample.
    num_environments: E, trajectories added at a time.

  Returns:
    The replay, or None if no task needs one.
  """
  length = len(template.timestep.reward) - 1
  capacity = max(
    options.replay_capacity, -(-options.reward_prediction_capacity // length)
  )
  if not capacity:
    return None
  replay_config = functional.ReplayConfig(
    num_environments=num_environments,
    # The ring's rows are the E trajectories that are added together.
    max_length=-(-capacity // num_environments),
    batch_size=batch_size,
  )
  record = trajectories.Record(template, np.zeros(length, np.int8))
  replay = functional.make_replay(record, replay_config)
  return AuxiliaryReplay(options, replay, batch_size)


def _sample_reward_prediction(
  batch_size: int, num_frames: int, key: types.Key, stored: trajectories.Record
) -> types.RewardPredictionBatch:
  """Samples sequences uniformly within each class, from leaves [E, L, ...].

  If a class is empty, its half of the batch comes from the other one.
  """
  num_nonzero = -(-batch_size // 2)
  nonzero, zero = (
    jnp.cumsum((stored.reward_class == wanted).reshape(-1))
    for wanted in (trajectories.NONZERO, trajectories.ZERO)
  )
  draws = []
  for (own, other), num_draws, class_key in zip(
    ((nonzero, zero), (zero, nonzero)),
    (num_nonzero, batch_size - num_nonzero),
    jax.random.split(key),
    strict=True,
  ):
    # Draws a rank within the class and finds it in the cumulative counts.
    total = jnp.where(own[-1] > 0, own, other)
    rank = jax.random.randint(
      class_key, (num_draws,), 0, jnp.maximum(total[-1], 1)
    )
    index = jnp.searchsorted(total, rank, side='right')
    draws.append(jnp.minimum(index, total.size - 1))
  environment, slot, end = jnp.unravel_index(
    jnp.concatenate(draws), stored.reward_class.shape
  )
  environment, slot, end = environment[None], slot[None], end[None]
  steps = end + jnp.arange(1 - num_frames, 1)[:, None]  # [num_frames, B]
  timestep = stored.trajectory.timestep
  return types.RewardPredictionBatch(
    observation=jax.tree.map(
      lambda leaf: leaf[environment, slot, steps], timestep.observation
    ),
    reward=timestep.reward[environment, slot, end + 1][0],
    is_live=(nonzero[-1] > 0) | (zero[-1] > 0),
  )
