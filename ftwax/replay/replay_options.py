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


@registry.register('replay.prioritized')
@dataclasses.dataclass(frozen=True)
class Prioritized(Replay):
  """Past trajectories that action values learn from, sampled by priority.

  A trajectory is sampled with those before it, which refresh its recurrent
  state (burn-in); adjacent samples thus overlap. Its priority is
  `eta max |error| + (1 - eta) mean |error|` over its steps (Kapturowski et al.,
  2019, section 2.3).

  Attributes:
    capacity: number of trajectories kept.
    burn_in: number of trajectories before a sampled one through which the core
      runs first, from the state that was stored with the earliest; 0 for the
      stored state.
    min_size: number of trajectories before learning begins.
    samples_per_insert: how often each trajectory is sampled, on average.
    priority_exponent: alpha; 0 samples uniformly.
    importance_exponent: beta; 1 corrects for the priorities fully.
    max_error_share: eta.
    is_saved: whether checkpoints hold the replay. Without, a resumed run fills
      it anew before it learns on.
  """

  capacity: int = parts.option(2048, low=1)
  burn_in: int = parts.option(1, low=0, high=parts.MAX_UNROLLED)
  min_size: int = parts.option(64, low=1)
  samples_per_insert: float = parts.option(16.0, above=0)
  priority_exponent: parts.Scalar = 0.9
  importance_exponent: parts.Scalar = parts.scalar(0.6, high=1.0)
  max_error_share: parts.Scalar = parts.scalar(0.9, high=1.0)
  is_saved: bool = True

  def __post_init__(self) -> None:
    """Checks that learning can begin."""
    super().__post_init__()
    for name, size in (
      ('min_size', self.min_size),
      ('burn_in + 1', self.burn_in + 1),
    ):
      if size > self.capacity:
        raise ValueError(
          f'capacity ({self.capacity}) of Prioritized must not be below {name}'
          f' ({size}), which it would never hold; choose {2 * size}.'
        )


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
    prioritized: what the agent learns from by priority, in place of the queue.
  """

  replay_capacity: int = 0
  reward_prediction_capacity: int = 0
  sequences: trajectories.Sequences = trajectories.Sequences(3, 1)
  delta_encodes: bool = False
  prioritized: Prioritized | None = None


QUEUE_ALONE = ReplayOptions()
