"""Samples the data of auxiliary tasks, if there are any.

The tables other than the queue may be empty at the start and, for rare rewards,
for a long time. Then a sampler returns zeros, marked as not live, and does not
wait.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import reverb

from ftwax import types
from ftwax.replay.reverb import frames, tables, trajectory_columns


def can_sample(client: reverb.Client, table: str) -> bool:
  """Returns whether a table holds any item."""
  info = client.server_info(timeout=10)[table]
  return bool(info.current_size > 0)


class TableSampler:
  """Samples items, with replacement, from a table that may be empty."""

  def __init__(self, client: reverb.Client, table: str, template: Any):
    """Makes a sampler.

    Args:
      client: client of the server that holds the table.
      table: name of the table.
      template: an item with the shapes and dtypes of those to read.
    """
    self._client = client
    self._table = table
    self._structure: Any = jax.tree.structure(template)
    self._template = template
    self._items: Iterator[Any] | None = None

  def sample(self, num_items: int) -> list[Any] | None:
    """Returns items in the structure of the template; None if it is empty."""
    if self._items is None:
      # Once filled, these tables never become empty again.
      if not can_sample(self._client, self._table):
        return None
      self._items = self._open(num_items)
    return [
      self._structure.unflatten(next(self._items).data)
      for _ in range(num_items)
    ]

  def close(self) -> None:
    """Stops sampling; call it before the server stops."""
    self._items = None

  def _open(self, num_items: int) -> Iterator[Any]:
    dataset = tables.make_dataset(
      self._client, self._table, self._template, num_items
    )
    return iter(dataset.as_numpy_iterator())


class RewardPredictionSampler:
  """Samples short sequences, half of them before a nonzero reward.

  If all rewards are of one class, all sequences are of that class.
  """

  def __init__(
    self,
    client: reverb.Client,
    template: trajectory_columns.Record,
    batch_size: int,
    num_frames: int,
    is_delta_encoded: bool,
    seed: int = 0,
  ):
    """Makes a sampler.

    Args:
      client: client of the server that holds the two tables.
      template: a record with the shapes and dtypes of those to read.
      batch_size: B, sequences in a batch.
      num_frames: observations in a sequence.
      is_delta_encoded: whether frames are delta-encoded; see `frames`.
      seed: random seed of the choice of a sequence within a trajectory.
    """
    columns = tables.reward_prediction_columns(
      trajectory_columns.make_columns_template(template)
    )
    self._samplers = {
      name: TableSampler(client, name, columns)
      for name in tables.REWARD_PREDICTION
    }
    self._num_frames = num_frames
    self._is_delta_encoded = is_delta_encoded
    self._rng = np.random.default_rng(seed)
    num_nonzero = -(-batch_size // 2)
    self._num_items = {
      tables.REWARD_PREDICTION_NONZERO: num_nonzero,
      tables.REWARD_PREDICTION_ZERO: batch_size - num_nonzero,
    }
    observation, reward, _ = columns
    self._zeros = types.RewardPredictionBatch(
      observation=jax.tree.map(
        lambda leaf: np.zeros(
          (num_frames, batch_size, *leaf.shape[1:]), leaf.dtype
        ),
        observation,
      ),
      reward=np.zeros((batch_size, *reward.shape[1:]), np.float32),
      is_live=np.bool_(False),
    )

  def sample(self) -> types.RewardPredictionBatch:
    """Returns a batch, which is live unless both tables are empty."""
    sequences: list[Any] = []
    for name, num_items in self._num_items.items():
      if num_items:
        sampled = self._sample_kind(name, num_items)
        if sampled is None:
          return self._zeros
        sequences += sampled
    observations, rewards = zip(*sequences, strict=True)
    return types.RewardPredictionBatch(
      observation=trajectory_columns.stack_sequences(observations),
      reward=np.stack(rewards),
      is_live=np.bool_(True),
    )

  def _sample_kind(self, name: str, num_items: int) -> list[Any] | None:
    """Returns sequences of the table's class, or else of the other one."""
    others = [other for other in tables.REWARD_PREDICTION if other != name]
    for table in (name, *others):
      items = self._samplers[table].sample(num_items)
      if items is not None:
        wanted = tables.REWARD_PREDICTION[table]
        return [self._choose(item, wanted) for item in items]
    return None

  def close(self) -> None:
    """Stops sampling; call it before the server stops."""
    for sampler in self._samplers.values():
      sampler.close()

  def _choose(self, item: Sequence[Any], wanted: int) -> tuple[Any, Any]:
    """Returns the frames of one of an item's sequences, and its reward."""
    observation, reward, reward_class = item
    if self._is_delta_encoded:
      observation = frames.decode(observation)
    end = self._rng.choice(np.flatnonzero(reward_class == wanted))
    # The class at `end` is that of the reward after it; see `classify`.
    begin = end + 1 - self._num_frames
    return (
      jax.tree.map(lambda leaf: leaf[begin : end + 1], observation),
      reward[end + 1],
    )
