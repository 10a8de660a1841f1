"""Kinds of replays, and options of a replay's tables."""

import dataclasses
from typing import NamedTuple

from ftwax import parts, registry
from ftwax.replay import trajectories

# Kinds of replay for a local run.
KINDS = REVERB, FUNCTIONAL = 'reverb', 'functional'


@registry.register('replay.uniform')
@dataclasses.dataclass(frozen=True)
class Replay(parts.Part):
  """Past trajectories for auxiliary tasks, sampled uniformly.

  Attributes:
    capacity: number of trajectories kept.
  """

  capacity: int = parts.option(100, low=1)


@registry.register('replay.queue')
@dataclasses.dataclass(frozen=True)
class Queue(parts.Part):
  """The queue of fresh trajectories, if actors and learners do not alternate.

  Attributes:
    max_size: maximum number of trajectories; None for a batch, at least 32.
    delta_encode: whether Reverb stores frames as differences, which compress
      better.
    prefetch_size: number of batches prefetched to the device.
    timeout_s: time in seconds that the queue may take to accept or yield an
      item.
  """

  max_size: int | None = parts.option(None, low=1)
  delta_encode: bool = False
  prefetch_size: int = parts.option(1, low=1, high=parts.MAX_UNROLLED)
  timeout_s: float = parts.option(60.0, above=0, high=1e9)


class ReplayOptions(NamedTuple):
  """Options of the tables other than the queue.

  Attributes:
    replay_capacity: trajectories in the table of replayed ones; 0 for no such
      table.
    reward_prediction_capacity: minimum number of sequences in each of the two
      tables for reward prediction; 0 for no such tables.
    sequences: the sequences for reward prediction.
    delta_encodes: whether Reverb stores frames as differences; see
      `ftwax.acme.columns`.
  """

  replay_capacity: int = 0
  reward_prediction_capacity: int = 0
  sequences: trajectories.Sequences = trajectories.Sequences(3, 1)
  delta_encodes: bool = False


QUEUE_ALONE = ReplayOptions()
