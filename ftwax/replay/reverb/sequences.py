"""Sequences of custom steps in a Reverb table, sampled by priority.

It is for data other than `types.Trajectory`. A step is a pytree of arrays; a
table holds sequences of steps, which many processes may write and sample:

    table = sequences.make_table('mine', step, config)
    server = servers.make_server([table], checkpoint_dir=directory)
    client = server.localhost_client()
    writer = sequences.SequenceWriter(client, 'mine', step, config)
    sampler = sequences.SequenceSampler(client, 'mine', step, config)

Priorities follow Schaul et al. (2016), "Prioritized experience replay",
arXiv:1511.05952. `servers.save` writes a checkpoint of all tables, from which a
server with the same `checkpoint_dir` continues.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
import reverb

from ftwax import types
from ftwax.replay.reverb import native_log, servers, tables


@dataclasses.dataclass(frozen=True)
class SequenceConfig:
  """Sizes of a table of sequences.

  Attributes:
    capacity: number of sequences kept; new ones replace the oldest.
    sequence_length: T, number of steps in a sequence.
    period: steps between the starts of two sequences.
    batch_size: B, number of sequences in a sample.
    min_size: number of sequences that must exist before any is sampled.
    priority_exponent: alpha, exponent of priorities; 0 samples uniformly.
    importance_exponent: beta, exponent of importance weights; 1 corrects fully.
    timeout_s: time in seconds within which the server must accept or yield a
      sequence.
  """

  capacity: int
  sequence_length: int = 1
  period: int = 1
  batch_size: int = 32
  min_size: int = 1
  priority_exponent: float = 0.6
  importance_exponent: float = 0.4
  timeout_s: float = 60.0

  def __post_init__(self) -> None:
    for name in (
      'capacity', 'sequence_length', 'period', 'batch_size', 'min_size',
    ):  # fmt: skip
      if getattr(self, name) < 1:
        raise ValueError(
          f'{name} ({getattr(self, name)}) must be at least 1; give a positive'
          ' number.'
        )
    if self.min_size > self.capacity:
      raise ValueError(
        f'min_size ({self.min_size}) must be at most capacity'
        f' ({self.capacity}), or nothing will ever be sampled; lower it.'
      )
    for name in ('priority_exponent', 'importance_exponent', 'timeout_s'):
      value = getattr(self, name)
      if not (math.isfinite(value) and value >= 0):
        raise ValueError(
          f'{name} ({value}) must be finite and not negative; give 0 or more.'
        )

  def replace(self, **changes: Any) -> 'SequenceConfig':
    """Returns a copy with `changes`."""
    return dataclasses.replace(self, **changes)


class SequenceBatch(NamedTuple):
  """Sampled sequences.

  Attributes:
    data: the steps, leaves [T, B, ...].
    keys: uint64 [B], keys of the sequences for `update_priorities`.
    probability: float64 [B], sampling probabilities.
    importance_weight: float32 [B], (N P)^-beta divided by the largest one of
      the batch.
  """

  data: types.ArrayTree
  keys: npt.NDArray[np.uint64]
  probability: npt.NDArray[np.float64]
  importance_weight: npt.NDArray[np.float32]


def make_table(
  name: str, step: types.ArrayTree, config: SequenceConfig
) -> reverb.Table:
  """Makes a table of sequences for `servers.make_server`.

  Args:
    name: name of the table.
    step: a step with the shapes and dtypes of those to write.
    config: sizes of the table.
  """
  return reverb.Table(
    name,
    sampler=reverb.selectors.Prioritized(config.priority_exponent),
    remover=reverb.selectors.Fifo(),
    max_size=config.capacity,
    rate_limiter=reverb.rate_limiters.MinSize(config.min_size),
    signature=tables.make_signature(_stack(step, config.sequence_length)),
  )


class SequenceWriter:
  """Writes the steps of one environment; sequences do not cross episodes."""

  def __init__(
    self,
    client: reverb.Client,
    name: str,
    step: types.ArrayTree,
    config: SequenceConfig,
  ):
    """Opens a writer.

    Args:
      client: client of the server that holds the table.
      name: name of the table.
      step: a step with the shapes and dtypes of those to write.
      config: config of the table.

    Raises:
      ReplayTimeoutError: if the server does not answer in time.
    """
    self._client = client
    self._name = name
    self._config = config
    self._template: Any = jax.tree.map(np.asarray, step)
    self._writer = servers.open_writer(client, config.sequence_length)
    self._num_steps = 0

  def append(self, step: types.ArrayTree, priority: float = 1.0) -> None:
    """Writes a step, and the sequence that it completes, if any.

    Args:
      step: a step with the shapes and dtypes of the template.
      priority: priority of that sequence, until `update_priorities` changes it.

    Raises:
      ValueError: if the step has another structure, shape or dtype, or the
        priority is negative or not finite.
    """
    _check_priorities(np.asarray(priority))
    self._writer.append(tuple(_match(step, self._template)))
    self._num_steps += 1
    # The index of the first step of the sequence that ends here.
    behind = self._num_steps - self._config.sequence_length
    if behind >= 0 and behind % self._config.period == 0:
      columns = tuple(
        column[-self._config.sequence_length :]
        for column in self._writer.history
      )
      self._writer.create_item(self._name, priority, columns)

  def end_episode(self) -> None:
    """Waits until everything is written; the next step begins a new sequence.

    Raises:
      ReplayTimeoutError: if the table does not accept a sequence in time.
    """
    try:
      self._writer.end_episode(timeout_ms=int(1000 * self._config.timeout_s))
    except reverb.DeadlineExceededError as error:
      raise tables.timeout_error(
        self._client, self._name, 'insert', self._config.timeout_s
      ) from error
    self._num_steps = 0

  def close(self) -> None:
    """Closes the writer; call `end_episode` first to wait for all sequences."""
    self._writer.close()


class SequenceSampler:
  """Samples batches, and updates the priorities of sampled sequences."""

  def __init__(
    self,
    client: reverb.Client,
    name: str,
    step: types.ArrayTree,
    config: SequenceConfig,
  ):
    """Makes a sampler.

    Args:
      client: client of the server that holds the table.
      name: name of the table.
      step: a step with the shapes and dtypes of those written.
      config: config of the table.
    """
    self._client = client
    self._name = name
    self._config = config
    template = _stack(step, config.sequence_length)
    self._structure: Any = jax.tree.structure(template)
    self._dataset = tables.make_dataset(
      client, name, template, config.batch_size, config.timeout_s
    )
    self._items: Iterator[Any] | None = None

  def sample(self) -> SequenceBatch:
    """Samples a batch, with replacement.

    A batch is sampled ahead: updated priorities take effect from the second
    next batch on.

    Raises:
      ReplayTimeoutError: if there are too few sequences for too long.
    """
    if self._items is None:
      with native_log.filtered():
        self._items = self._dataset.as_numpy_iterator()
    items = []
    for _ in range(self._config.batch_size):
      item = next(self._items, None)
      if item is None:
        # An iterator that has ended stays so; the next call makes another.
        self._items = None
        raise tables.timeout_error(
          self._client, self._name, 'sample', self._config.timeout_s
        )
      items.append(item)
    probability = np.array([item.info.probability for item in items])
    sizes = np.array([item.info.table_size for item in items])
    weights = (sizes * probability) ** -self._config.importance_exponent
    return SequenceBatch(
      data=self._structure.unflatten(
        np.stack(leaves, axis=1)
        for leaves in zip(*(item.data for item in items), strict=True)
      ),
      keys=np.array([item.info.key for item in items], np.uint64),
      probability=probability,
      importance_weight=(weights / weights.max()).astype(np.float32),
    )

  def update_priorities(
    self, keys: npt.NDArray[np.uint64], priorities: npt.NDArray[Any]
  ) -> None:
    """Sets priorities; sequences that no longer exist are skipped.

    Args:
      keys: uint64 [B], from `SequenceBatch`; for repeated ones the last counts.
      priorities: [B], before the exponent is applied.

    Raises:
      ValueError: if lengths differ, or a priority is negative or not finite.
    """
    priorities = np.asarray(priorities)
    if np.shape(keys) != priorities.shape or priorities.ndim != 1:
      raise ValueError(
        f'priorities {priorities.shape} must be as many as the keys'
        f' {np.shape(keys)}; give one for each sequence of the batch.'
      )
    _check_priorities(priorities)
    updates = zip(np.asarray(keys).tolist(), priorities.tolist(), strict=True)
    self._client.mutate_priorities(self._name, updates=dict(updates))

  def close(self) -> None:
    """Stops sampling; call it before the server stops."""
    self._items = None


def _stack(step: types.ArrayTree, length: int) -> types.ArrayTree:
  """Returns a sequence of zeros, leaves [T, ...]."""

  def zeros(leaf: Any) -> npt.NDArray[Any]:
    array = np.asarray(leaf)
    return np.zeros((length, *array.shape), array.dtype)

  return jax.tree.map(zeros, step)


def _match(step: types.ArrayTree, template: types.ArrayTree) -> list[Any]:
  """Returns the leaves of a step, after checking it against the template."""
  structure: Any = jax.tree.structure(step)
  if structure != jax.tree.structure(template):
    raise ValueError(
      f'the step ({structure}) must have the structure of the template'
      f' ({jax.tree.structure(template)}); write the same fields.'
    )
  arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(step)]
  for array, (path, like) in zip(
    arrays, jax.tree_util.tree_leaves_with_path(template), strict=True
  ):
    if (array.shape, array.dtype) != (like.shape, like.dtype):
      raise ValueError(
        f'the step{jax.tree_util.keystr(path)} ({array.dtype}{array.shape})'
        f' must be {like.dtype}{like.shape} as in the template; convert it.'
      )
  return arrays


def _check_priorities(priorities: npt.NDArray[Any]) -> None:
  if not (np.isfinite(priorities).all() and (priorities >= 0).all()):
    raise ValueError(
      f'priorities ({priorities}) must be finite and not negative; add your'
      ' epsilon to absolute errors.'
    )
