"""Gathers the timesteps of environments into trajectories.

The timesteps of `E` environments lie in arrays [T + 1, E, ...]. When these are
full they are one trajectory of each environment, and the last timestep becomes
the first of the next trajectory. Ends of episodes are rows like any other, so
nothing is padded and nothing is thrown away.
"""

import abc
import time
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np
import numpy.typing as npt

from ftwax import types
from ftwax.replay import replay_options, trajectories


class Gathered(NamedTuple):
  """A trajectory of each of E environments.

  Attributes:
    trajectory: leaves [T + 1, E, ...], or [T, E, ...] in the logits and [E,
      ...] in the recurrent state.
    reward_class: int8 [T, E]; see `trajectories.classify`.
    variables_steps: learner steps of the policy that acted.
    written_at: seconds since the epoch.
  """

  trajectory: types.Trajectory
  reward_class: npt.NDArray[Any]
  variables_steps: int
  written_at: float


class TrajectoryGatherer(abc.ABC):
  """Gathers timesteps; a subclass says where trajectories are written.

  Attributes:
    is_idle: whether trajectories are dropped rather than written.
    num_items: trajectories written.
    written_at: of the last trajectories.
  """

  def __init__(
    self,
    template: types.Trajectory,
    num_environments: int,
    options: replay_options.ReplayOptions = replay_options.QUEUE_ALONE,
  ):
    """Makes room for the first trajectories.

    Args:
      template: a trajectory in the shapes of those to write.
      num_environments: E.
      options: of the tables beside the queue.
    """
    self._options = options
    self._num_environments = num_environments
    self._template = template._replace(recurrent_state=())
    self._make_rows()
    self._recurrent_state: types.RecurrentState = None
    self._variables_steps: int | None = None
    self._internal_rewards: npt.NDArray[Any] | None = None
    self._sequence_length = len(template.timestep.reward) - 1
    self._length = 0
    self.is_idle = False
    self.num_items = 0
    self.written_at = 0.0  # As the trajectories written last tell.

  @property
  def at_start(self) -> bool:
    """Whether the next action is the first of a trajectory."""
    return self._length <= 1

  def add_timestep(
    self,
    timestep: dm_env.TimeStep,
    previous_action: types.ArrayTree,
    recurrent_state: types.RecurrentState,
  ) -> None:
    """Adds a timestep, and writes the trajectories that it completes.

    Args:
      timestep: leaves [E, ...].
      previous_action: int32 [E] for each part, `NO_ACTION` at `FIRST`.
      recurrent_state: leaves [E, ...], before the timestep.
    """
    if self._length == 0:
      self._begin(timestep, previous_action, recurrent_state)
      return
    self._append(timestep, previous_action)
    if self._length == self._sequence_length + 1:
      if not self.is_idle:
        self.flush()  # Of those written before.
      gathered = self._complete()
      if not self.is_idle:
        self._write(gathered)
        self.num_items += self._num_environments
      self._begin(timestep, previous_action, recurrent_state)

  def add_choice(
    self,
    logits: types.ArrayTree,
    variables_steps: int,
    internal_rewards: npt.NDArray[Any],
  ) -> None:
    """Adds what the policy chose from at the timestep added last.

    Args:
      logits: [E, num_actions] for each part.
      variables_steps: learner steps of the policy's parameters; that of the
        first choice goes with the trajectory.
      internal_rewards: float32 [num_events], of the same choice; they decide
        which rewards are zero.
    """
    if self._variables_steps is None:
      self._variables_steps = variables_steps
      self._internal_rewards = internal_rewards
    _set_row(self._logits_rows, self._length - 1, logits)

  def reset(self) -> None:
    """Forgets the trajectory that has begun."""
    self._length = 0

  def flush(self) -> None:  # noqa: B027 Not every replay lags behind.
    """Waits until all that was written is where it can be sampled."""

  @abc.abstractmethod
  def close(self) -> None:
    """Releases what the writing needs."""

  @abc.abstractmethod
  def _write(self, gathered: Gathered) -> None:
    """Writes trajectories, whose arrays it may keep."""

  def _make_rows(self) -> None:
    """Makes arrays for new trajectories, which whoever writes them may keep."""

    def with_environments(leaf: Any) -> Any:
      shape = (leaf.shape[0], self._num_environments, *leaf.shape[1:])
      return np.zeros(shape, leaf.dtype)

    # Leaves [T + 1, E, ...], or [T, E, ...] for the logits.
    self._rows = jax.tree.map(with_environments, self._template)
    # Their leaves, in the order of those that come: a tree walked at every
    # step would cost more than what is copied.
    self._timestep_rows = jax.tree.leaves(
      (self._rows.timestep, self._rows.previous_action)
    )
    self._logits_rows = jax.tree.leaves(self._rows.logits)

  def _begin(
    self,
    timestep: dm_env.TimeStep,
    previous_action: types.ArrayTree,
    recurrent_state: types.RecurrentState,
  ) -> None:
    """Makes the timestep the first of a trajectory."""
    # Copied: an array of JAX may give its memory away.
    self._recurrent_state = jax.tree.map(np.array, recurrent_state)
    self._variables_steps = None
    self._length = 0
    self._append(timestep, previous_action)

  def _append(
    self, timestep: dm_env.TimeStep, previous_action: types.ArrayTree
  ) -> None:
    row = self._length
    _set_row(self._timestep_rows, row, (timestep, previous_action))
    if row < self._sequence_length:
      for rows in self._logits_rows:
        rows[row] = 0.0  # Until a choice is added there is none.
    self._length += 1

  def _complete(self) -> Gathered:
    """Returns the trajectories that are full, and makes room for others."""
    self.written_at = time.time()
    gathered = Gathered(
      self._rows._replace(recurrent_state=self._recurrent_state),
      self._classify(),
      self._variables_steps or 0,
      self.written_at,
    )
    self._make_rows()
    return gathered

  def _classify(self) -> npt.NDArray[Any]:
    """Returns the class of each timestep, int8 [T, E]."""
    if not self._options.reward_prediction_capacity:
      shape = (self._sequence_length, self._num_environments)
      return np.zeros(shape, np.int8)
    timestep = self._rows.timestep
    reward = timestep.reward.reshape(*timestep.step_type.shape, -1)
    if self._internal_rewards is not None:
      reward = reward * self._internal_rewards
    classes: npt.NDArray[Any] = trajectories.classify(
      timestep.step_type, reward.sum(axis=-1), self._options.sequences
    )
    return classes


def _set_row(
  to: list[npt.NDArray[Any]], row: int, values: types.ArrayTree
) -> None:
  """Writes `values` [E, ...] into row `row` of the leaves `to` [T + 1, ...]."""
  for rows, leaf in zip(to, jax.tree.leaves(values), strict=True):
    rows[row] = np.asarray(leaf)
