"""Writes the trajectories of actors into Reverb.

An item is a whole trajectory of one environment; `replay.gatherer` describes
how timesteps become trajectories.
"""

import contextlib
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
import reverb

from ftwax.replay import gatherer, replay_options
from ftwax.replay.reverb import (
  frames,
  servers,
  tables,
  trajectory_columns,
)

# Reverb warns if more items than this wait to be sent or confirmed.
_MAX_PENDING = 32
_EASE_TIMEOUT_MS = 100


class TrajectoryAdder(gatherer.TrajectoryGatherer):
  """Gathers timesteps of several environments and writes trajectories.

  An item is written at once, so that environments cannot mix within it, and one
  writer serves all environments. Its items reach the queue in the order of time
  and environments, which is the same in every run, without waiting for each
  item. Before trajectories are written, the previous ones must have been taken,
  so that at most one per environment is ever held here.
  """

  def __init__(
    self,
    client: reverb.Client,
    template: trajectory_columns.Record,
    num_environments: int,
    timeout_s: float,
    options: replay_options.ReplayOptions = replay_options.QUEUE_ALONE,
  ):
    """Opens a writer.

    Args:
      client: client of the server that holds the tables.
      template: a record with the shapes and dtypes of those to write.
      num_environments: E, number of environments.
      timeout_s: time in seconds within which the queue must accept an item.
      options: options of the tables other than the queue.

    Raises:
      ReplayTimeoutError: if the server does not answer in time.
    """
    super().__init__(template.trajectory, num_environments, options)
    self._client = client
    self._structure: Any = jax.tree.structure(
      trajectory_columns.make_columns_template(template)
    )
    self._timeout_s = timeout_s
    # Items refer to the last step only, which is a whole trajectory.
    self._writer = servers.open_writer(client, num_keep_alive_refs=1)
    self._num_pending = 0

  def flush(self) -> None:
    """Waits until the tables have accepted everything written.

    Raises:
      ReplayTimeoutError: if the queue does not accept an item in time.
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

  def _write(self, gathered: gatherer.Gathered) -> None:
    leaves = jax.tree.leaves(self._pack(gathered))
    for index in range(self._num_environments):
      self._writer.append(tuple(leaf[index] for leaf in leaves))
      # References to the data just appended, shared by the items of all tables.
      columns = tuple(column[-1] for column in self._writer.history)
      self._create_item(tables.QUEUE, 1.0, columns)
      self._create_auxiliary_items(columns, gathered.reward_class[:, index])
      self._ease()

  def _pack(self, gathered: gatherer.Gathered) -> trajectory_columns.Columns:
    """Converts trajectories to columns, leaves [E, ...]."""
    rows = gathered.trajectory._replace(recurrent_state=())
    if self._options.delta_encodes:
      observation = frames.encode(rows.timestep.observation)
      rows = rows._replace(
        timestep=rows.timestep._replace(observation=observation)
      )
    trajectory = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), rows)
    size = self._num_environments
    return trajectory_columns.pack(
      trajectory_columns.Record(
        trajectory._replace(
          recurrent_state=gathered.trajectory.recurrent_state
        ),
        gathered.reward_class.swapaxes(0, 1),
        np.full(size, gathered.variables_steps, np.int64),
        np.full(size, gathered.written_at, np.float64),
      )
    )

  def _create_item(self, table: str, priority: float, columns: Any) -> None:
    self._writer.create_item(table, priority, columns)
    self._num_pending += 1

  def _ease(self) -> None:
    """Waits briefly for the server to take some of the pending items.

    It does not wait for a full queue, whose learner may run in this thread.
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
    """Creates items in the other tables, which refer to the last columns."""
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
