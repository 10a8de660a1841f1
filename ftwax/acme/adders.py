"""Writes the trajectories of actors into Reverb.

An item is a whole trajectory of one environment. The timesteps of `E`
environments are collected in arrays [T + 1, E, ...]. When these are full, they
hold one trajectory of each environment, and the last timestep becomes the first
of the next trajectory. Ends of episodes are rows like any other, so nothing is
padded or discarded. Where a seat is absent at the end, its last timestep that
was not `ABSENT` takes that place.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import dm_env
import jax
import numpy as np
import numpy.typing as npt
import reverb

from ftwax import trees, types
from ftwax.acme import columns as columns_lib
from ftwax.acme import servers, tables
from ftwax.replay import replay_options, trajectories

# Reverb warns if more items than this wait to be sent or confirmed.
_MAX_PENDING = 32
_EASE_TIMEOUT_MS = 100


class TrajectoryAdder:
  """Gathers timesteps of several environments and writes trajectories.

  An item is written at once, so that environments cannot mix within it, and one
  writer serves all environments. Its items reach the queue in the order of time
  and environments, which is the same in every run, without waiting for each
  item. Before trajectories are written, the previous ones must have been taken,
  so that at most one per environment is ever held here.

  Attributes:
    num_items: number of trajectories written.
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
      timeout_s: time in seconds within which the tables must accept an item.
      options: options of the tables other than the queue.

    Raises:
      ReplayTimeoutError: if the server does not answer in time.
    """
    self._options = options
    self._num_environments = num_environments
    self._template = template._replace(recurrent_state=())
    self._make_rows()
    self._recurrent_state: types.RecurrentState = None
    self._is_absent = np.zeros(num_environments, bool)
    # Before the last timestep, and before the last one that was not absent.
    self._previous_state: types.RecurrentState = None
    self._anchor_state: types.RecurrentState = None
    self._variables_steps: int | None = None
    self._internal_rewards: npt.NDArray[Any] | None = None
    self._sequence_length = len(template.timestep.reward) - 1
    self._length = 0
    self.num_items = 0
    self._client = client
    self._largest_priority = tables.LargestPriority(client)
    self._structure: Any = jax.tree.structure(
      columns_lib.make_template(template)
    )
    self._timeout_s = timeout_s
    # Items refer to the last step, which is a whole trajectory, and those of a
    # prioritized table to the ones before it of the same environment.
    burn_in = options.prioritized.burn_in if options.prioritized else 0
    self._writer = servers.open_writer(
      client,
      1 + burn_in * num_environments,
      len(jax.tree.leaves(columns_lib.make_template(template))),
    )
    self._num_pending = 0
    # Of each environment, the trajectories before its last that continue each
    # other up to it, at most as many as a burn-in has, and its last seed.
    self._num_before = [0] * num_environments
    self._last_seeds = [-1] * num_environments

  @property
  def at_start(self) -> bool:
    """Whether the next action is the first of a trajectory."""
    return self._length <= 1

  def add_timestep(
    self,
    timestep: dm_env.TimeStep,
    previous_action: types.ArrayTree,
    recurrent_state: types.RecurrentState,
    seed: types.Array | None = None,
  ) -> None:
    """Adds a timestep, and writes the trajectories that it completes.

    Args:
      timestep: leaves [E, ...].
      previous_action: int32 [E] for each part, `NO_ACTION` at `FIRST`.
      recurrent_state: leaves [E, ...], before the timestep.
      seed: int32 [E], of the policy's noise at the timestep, if any.
    """
    row = (timestep, previous_action, seed)
    self._note_absences(timestep.step_type, recurrent_state)
    if self._length == 0:
      self._begin(row, recurrent_state)
      return
    self._append(row)
    if self._length == self._sequence_length + 1:
      anchors = self._find_anchors()
      self.insert(self._complete())
      self._begin(row, recurrent_state)
      self._begin_with(anchors)

  def add_choice(
    self,
    logits: types.ArrayTree,
    variables_steps: int,
    internal_rewards: npt.NDArray[Any],
  ) -> None:
    """Adds the policy's output at the last added timestep.

    Args:
      logits: [E, num_actions] for each part.
      variables_steps: learner steps of the policy's parameters; the trajectory
        records those of its first action.
      internal_rewards: float32 [num_events]; those of the first action decide
        which rewards are zero.
    """
    if self._variables_steps is None:
      self._variables_steps = variables_steps
      self._internal_rewards = internal_rewards
    present = ~self._is_absent
    if present.all():
      _set_row(self._logits_rows, self._length - 1, logits)
      return
    for rows, leaf in _pairs(self._logits_rows, logits):
      rows[self._length - 1, present] = np.asarray(leaf)[present]

  def insert(self, record: trajectories.Record) -> None:
    """Writes trajectories, after the previous ones; see `flush`.

    Args:
      record: leaves [T + 1 or T, n E, ...], of all environments in their order,
        once or several times.
    """
    self.flush()
    self._write(record)
    self.num_items += record.reward_class.shape[1]

  def flush(self) -> None:
    """Waits until the tables have accepted everything written.

    Raises:
      ReplayTimeoutError: if the tables do not accept an item in time.
    """
    try:
      self._writer.flush(timeout_ms=int(1000 * self._timeout_s))
    except reverb.DeadlineExceededError as error:
      raise tables.timeout_error(
        self._client,
        tables.first_table(self._options),
        'insert',
        self._timeout_s,
      ) from error
    self._num_pending = 0

  def close(self) -> None:
    """Closes the writer."""
    self._writer.close()

  def _make_rows(self) -> None:
    """Allocates new trajectories."""

    def with_environments(leaf: Any) -> Any:
      shape = (leaf.shape[0], self._num_environments, *leaf.shape[1:])
      return np.zeros(shape, leaf.dtype)

    # Leaves [T + 1, E, ...], or [T, E, ...] for the logits.
    self._rows = jax.tree.map(with_environments, self._template)
    # Their leaves, flattened once: traversing the tree at every step would cost
    # more than copying the data.
    self._timestep_rows = jax.tree.leaves(
      (self._rows.timestep, self._rows.previous_action, self._rows.seed)
    )
    self._logits_rows = jax.tree.leaves(self._rows.logits)

  def _begin(
    self, row: types.ArrayTree, recurrent_state: types.RecurrentState
  ) -> None:
    """Begins a trajectory with the row of a timestep."""
    # Copied, since JAX may reuse the memory of a donated array.
    self._recurrent_state = jax.tree.map(np.array, recurrent_state)
    self._variables_steps = None
    self._length = 0
    self._append(row)

  def _note_absences(
    self, step_type: npt.NDArray[Any], recurrent_state: types.RecurrentState
  ) -> None:
    """Keeps the state of seats that were there and are not any more."""
    is_absent = np.asarray(step_type) == types.ABSENT
    has_left = is_absent & ~self._is_absent
    if has_left.any():
      before = self._previous_state
      before = recurrent_state if before is None else before
      kept = self._anchor_state
      self._anchor_state = trees.where_rows_on_host(
        has_left, before, before if kept is None else kept
      )
    self._is_absent, self._previous_state = is_absent, recurrent_state

  def _find_anchors(self) -> list[npt.NDArray[Any]]:
    """Returns the last rows that were not absent, [E, ...], if any is now."""
    if not self._is_absent.any():
      return []
    present = self._rows.timestep.step_type != types.ABSENT
    places = np.arange(len(present))[:, None] * present
    last, columns = places.max(axis=0), np.arange(self._num_environments)
    return [
      rows[np.minimum(last, len(rows) - 1), columns]
      for rows in (*self._timestep_rows, *self._logits_rows)
    ]

  def _begin_with(self, anchors: list[npt.NDArray[Any]]) -> None:
    """Replaces the first row where it is absent."""
    if anchors:
      here = self._is_absent
      for rows, leaf in _pairs(
        [*self._timestep_rows, *self._logits_rows], anchors
      ):
        rows[0, here] = leaf[here]
      self._recurrent_state = trees.where_rows_on_host(
        here, self._anchor_state, self._recurrent_state
      )

  def _append(self, row: types.ArrayTree) -> None:
    _set_row(self._timestep_rows, self._length, row)
    if self._length < self._sequence_length:
      for rows in self._logits_rows:
        rows[self._length] = 0.0  # Until `add_choice` sets it.
    self._length += 1

  def _complete(self) -> trajectories.Record:
    """Returns the complete trajectories and allocates new ones."""
    trajectory = self._rows._replace(recurrent_state=self._recurrent_state)
    if (trajectory.timestep.step_type == types.ABSENT).any():
      trajectory = trajectories.compact(trajectory)
    record = trajectories.Record(
      trajectory,
      self._classify(trajectory.timestep),
      np.full(self._num_environments, self._variables_steps or 0, np.int64),
      np.full(self._num_environments, time.time(), np.float64),
    )
    self._make_rows()
    return record

  def _classify(self, timestep: dm_env.TimeStep) -> npt.NDArray[Any]:
    """Returns the class of each timestep, int8 [T, E]."""
    if not self._options.reward_prediction_capacity:
      shape = (self._sequence_length, self._num_environments)
      return np.zeros(shape, np.int8)
    reward = timestep.reward.reshape(*timestep.step_type.shape, -1)
    if self._internal_rewards is not None:
      reward = reward * self._internal_rewards
    return trajectories.classify(
      timestep.step_type, reward.sum(axis=-1), self._options.sequences
    )

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
    priority = 1.0
    if self._options.prioritized:
      priority = self._largest_priority.read()
    for index in range(len(leaves[0])):
      self._writer.append(tuple(leaf[index] for leaf in leaves))
      # References to the data just appended, shared by the items of all tables.
      columns = self._columns(0)
      item = columns
      if self._options.prioritized:
        item = self._find_sequence(index, record.trajectory.seed[:, index])
      self._create_item(tables.first_table(self._options), priority, item)
      self._create_auxiliary_items(columns, record.reward_class[:, index])
      self._ease()

  def _columns(self, age: int) -> tuple[Any, ...]:
    """Returns references to the data appended `age` trajectories before."""
    return tuple(column[-1 - age] for column in self._writer.history)

  def _find_sequence(
    self, index: int, seed: npt.NDArray[Any]
  ) -> tuple[Any, ...]:
    """Returns references to the last trajectory and those before it.

    They are of one environment. Where it began anew, after a restart or an
    absence, its first trajectory since then takes the place of earlier ones. It
    does not continue itself, so that it keeps its stored state.

    Args:
      index: number of the trajectory among those of an insertion, which are in
        the order of environments.
      seed: int32 [T + 1], of its noise; each decision of a stream has the next.
    """
    assert self._options.prioritized is not None
    burn_in = self._options.prioritized.burn_in
    environment = index % self._num_environments
    continues = int(seed[0]) == self._last_seeds[environment]
    num_before = self._num_before[environment] + 1 if continues else 0
    self._num_before[environment] = num_before = min(num_before, burn_in)
    self._last_seeds[environment] = int(seed[-1])
    sequence: tuple[Any, ...] = ()
    for number in range(burn_in, -1, -1):
      sequence += self._columns(
        self._num_environments * min(number, num_before)
      )
    return sequence

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


def _set_row(
  to: list[npt.NDArray[Any]], row: int, values: types.ArrayTree
) -> None:
  """Writes `values` [E, ...] to index `row` of the leaves `to` [T + 1, ...]."""
  for rows, leaf in _pairs(to, values):
    rows[row] = np.asarray(leaf)


def _pairs(
  rows: list[npt.NDArray[Any]], values: types.ArrayTree
) -> Iterator[tuple[npt.NDArray[Any], Any]]:
  return zip(rows, jax.tree.leaves(values), strict=True)
