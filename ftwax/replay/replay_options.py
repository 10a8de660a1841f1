"""Kinds of replays, and options of a replay's tables."""

import dataclasses
from typing import ClassVar, NamedTuple

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


@registry.register('replay.prioritized')
@dataclasses.dataclass(frozen=True)
class PrioritizedReplay(Replay):
  """Samples trajectories in proportion to their errors when last replayed.

  Importance weights are those of R2D2 (Kapturowski et al., 2019). Not available
  with Reverb.

  Attributes:
    priority_exponent: exponent of the priorities; 0 samples uniformly.
    importance_exponent: exponent of the importance weights; 1 corrects fully
      for prioritized sampling.
  """

  prefix: ClassVar[str] = 'replay_'

  priority_exponent: parts.Scalar = parts.scalar(0.9, high=1.0)
  importance_exponent: parts.Scalar = parts.scalar(0.6, high=1.0)


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
  prefetch_size: int = parts.option(1, low=1)
  timeout_s: float = parts.option(60.0, above=0)


class ReplayOptions(NamedTuple):
  """Options of the tables other than the queue.

  Attributes:
    replay_capacity: trajectories in the table of replayed ones; 0 for no such
      table.
    reward_prediction_capacity: minimum number of sequences in each of the two
      tables for reward prediction; 0 for no such tables.
    sequences: the sequences for reward prediction.
    delta_encodes: whether Reverb stores frames as differences; see
      `reverb.columns`.
    prioritized: whether replayed trajectories are sampled by priority.
  """

  replay_capacity: int = 0
  reward_prediction_capacity: int = 0
  sequences: trajectories.Sequences = trajectories.Sequences(3, 1)
  delta_encodes: bool = False
  prioritized: bool = False


QUEUE_ALONE = ReplayOptions()
