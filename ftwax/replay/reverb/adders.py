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

from ftwax import types
from ftwax.replay import gatherer, replay_options, trajectories
from ftwax.replay.reverb import columns as columns_lib
from ftwax.replay.reverb import servers, tables

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
    template: types.Trajectory,
    num_environments: int,
    timeout_s: float = 60.0,
    options: replay_options.ReplayOptions = replay_options.QUEUE_ALONE,
  ):
    """Opens a writer.

    Args:
      client: client of the server that holds the tables.
      template: see `trajectories.make_template`.
      num_environments: E, number of environments.
      timeout_s: time in seconds within which the queue must accept an item.
      options: options of the tables other than the queue.

    Raises:
      ReplayTimeoutError: if the server does not answer in time.
    """
    super().__init__(template, num_environments, options)
    self._client = client
    self._structure: Any = jax.tree.structure(
      columns_lib.make_template(template)
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

  def _write(self, record: trajectories.Record) -> None:
    timestep = record.trajectory.timestep
    if self._options.delta_encodes:
      timestep = timestep._replace(
        observation=columns_lib.encode_frames(timestep.observation)
      )
    packed = columns_lib.pack(
      record._replace(trajectory=record.trajectory._replace(timestep=timestep))
    )
    leaves = jax.tree.leaves(packed)  # [E, ...]
    for index in range(len(leaves[0])):
      self._writer.append(tuple(leaf[index] for leaf in leaves))
      # References to the data just appended, shared by the items of all tables.
      columns = tuple(column[-1] for column in self._writer.history)
      self._create_item(tables.QUEUE, 1.0, columns)
      self._create_auxiliary_items(columns, record.reward_class[:, index])
      self._ease()

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
