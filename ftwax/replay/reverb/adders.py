"""Writes the timesteps of actors into Reverb, a trajectory at a time.

The adder gathers the timesteps of `E` environments in arrays [T + 1, E, ...].
When they are full it writes one item for each environment and goes on from the
last timestep, which is the first of the next trajectory. Ends of episodes are
rows like any other, so nothing is padded and nothing is thrown away.
"""

import contextlib
import time
from typing import Any

import dm_env
import jax
import numpy as np
import numpy.typing as npt
import reverb

from ftwax import types
from ftwax.replay import trajectories
from ftwax.replay.reverb import frames, tables, trajectory_columns

# Items that wait to be sent or confirmed, over which Reverb complains.
_MAX_PENDING = 32
_EASE_TIMEOUT_MS = 100


class TrajectoryAdder:
  """Gathers timesteps of `num_environments` environments into trajectories.

  A trajectory is written whole, so environments cannot mix within an item, and
  one writer serves all of them: its items reach the queue in the order of time
  and of environments, the same in every run, without a wait for each. Before
  trajectories are written those written before must have been taken, so that
  no more than one for each environment is ever held here.
  """

  def __init__(
    self,
    client: reverb.Client,
    template: trajectory_columns.Record,
    num_environments: int,
    timeout_s: float,
    options: tables.ReplayOptions = tables.QUEUE_ALONE,
  ):
    """Opens a writer.

    Args:
      client: client of the server that holds the tables.
      template: a record in the shapes of those to write.
      num_environments: E.
      timeout_s: seconds within which the queue must take what was written.
      options: which tables are beside the queue.
    """
    self._client = client
    self._options = options
    self._structure: Any = jax.tree.structure(
      trajectory_columns.make_columns_template(template)
    )
    self._timeout_s = timeout_s
    self._writer = client.trajectory_writer(num_keep_alive_refs=1)
    self._num_environments = num_environments

    def with_environments(leaf: Any) -> Any:
      return np.zeros(
        (leaf.shape[0], num_environments, *leaf.shape[1:]), leaf.dtype
      )

    # Leaves [T + 1, E, ...], or [T, E, ...] for the logits.
    self._rows = jax.tree.map(
      with_environments, template.trajectory._replace(recurrent_state=())
    )
    # Their leaves, in the order of those that come: a tree walked at every
    # step would cost more than what is copied.
    self._timestep_rows = jax.tree.leaves(
      (self._rows.timestep, self._rows.previous_action)
    )
    self._logits_rows = jax.tree.leaves(self._rows.logits)
    self._recurrent_state: types.RecurrentState = None
    self._variables_steps: int | None = None
    self._internal_rewards: npt.NDArray[Any] | None = None
    self._sequence_length = len(template.trajectory.timestep.reward) - 1
    self._length = 0
    self._num_pending = 0
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

    Raises:
      ReplayTimeoutError: the table did not take an item in time.
    """
    if self._length == 0:
      self._begin(timestep, previous_action, recurrent_state)
      return
    self._append(timestep, previous_action)
    if self._length == self._sequence_length + 1:
      self._write()
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

  def flush(self) -> None:
    """Waits until the tables have taken all that was written.

    Raises:
      ReplayTimeoutError: the queue did not take an item in time.
    """
    try:
      self._writer.flush(timeout_ms=int(1000 * self._timeout_s))
    except reverb.DeadlineExceededError as error:
      raise tables.timeout_error(
        self._client, tables.QUEUE, 'insert', self._timeout_s
      ) from error
    self._num_pending = 0

  def close(self) -> None:
    """Closes the writer."""
    self._writer.close()

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

  def _write(self) -> None:
    self.flush()
    self.written_at = time.time()
    reward_class = self._classify()
    leaves = jax.tree.leaves(self._pack(reward_class))
    for index in range(self._num_environments):
      self._writer.append(tuple(leaf[index] for leaf in leaves))
      columns = tuple(column[-1] for column in self._writer.history)
      self._create_item(tables.QUEUE, 1.0, columns)
      self._create_auxiliary_items(columns, reward_class[:, index])
      self.num_items += 1
      self._ease()

  def _pack(self, reward_class: npt.NDArray[Any]) -> trajectory_columns.Columns:
    """Returns what is to be written, leaves [E, ...]."""
    rows = self._rows
    if self._options.delta_encodes:
      observation = frames.encode(rows.timestep.observation)
      rows = rows._replace(
        timestep=rows.timestep._replace(observation=observation)
      )
    trajectory = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), rows)
    size = self._num_environments
    return trajectory_columns.pack(
      trajectory_columns.Record(
        trajectory._replace(recurrent_state=self._recurrent_state),
        reward_class.swapaxes(0, 1),
        np.full(size, self._variables_steps or 0, np.int64),
        np.full(size, self.written_at, np.float64),
      )
    )

  def _classify(self) -> npt.NDArray[Any]:
    """Returns the class of each timestep, int8 [T, E]."""
    shape = (self._sequence_length, self._num_environments)
    if not self._options.reward_prediction_capacity:
      return np.zeros(shape, np.int8)
    timestep = self._rows.timestep
    reward = timestep.reward.reshape(*timestep.step_type.shape, -1)
    if self._internal_rewards is not None:
      reward = reward * self._internal_rewards
    classes: npt.NDArray[Any] = trajectories.classify(
      timestep.step_type, reward.sum(axis=-1), self._options.sequences
    )
    return classes

  def _create_item(self, table: str, priority: float, columns: Any) -> None:
    self._writer.create_item(table, priority, columns)
    self._num_pending += 1

  def _ease(self) -> None:
    """Lets the server take some of what is pending, if it can.

    A full queue is not waited for: its learner may run in this thread.
    """
    if self._num_pending < _MAX_PENDING:
      return
    with contextlib.suppress(reverb.DeadlineExceededError):
      self._writer.flush(
        block_until_num_items=_MAX_PENDING // 2, timeout_ms=_EASE_TIMEOUT_MS
      )
    self._num_pending = 0

  def _create_auxiliary_items(
    self, columns: Any, reward_class: npt.NDArray[Any]
  ) -> None:
    """Lets the other tables refer to the columns written last."""
    if self._options.replay_capacity:
      self._create_item(tables.REPLAY, 1.0, columns)
    if not self._options.reward_prediction_capacity:
      return
    columns = tuple(
      jax.tree.leaves(
        tables.reward_prediction_columns(self._structure.unflatten(columns))
      )
    )
    for name, wanted in tables.REWARD_PREDICTION.items():
      num_sequences = np.count_nonzero(reward_class == wanted)
      if num_sequences:
        self._create_item(name, float(num_sequences), columns)


def _set_row(
  to: list[npt.NDArray[Any]], row: int, values: types.ArrayTree
) -> None:
  """Writes `values` [E, ...] into row `row` of the leaves `to` [T + 1, ...]."""
  for rows, leaf in zip(to, jax.tree.leaves(values), strict=True):
    rows[row] = np.asarray(leaf)
