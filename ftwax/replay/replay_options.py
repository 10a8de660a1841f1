"""Kinds of replays, and options of a replay's tables."""

from typing import NamedTuple

from ftwax.replay import trajectories

# Kinds of replay for a local run.
KINDS = REVERB, FUNCTIONAL = 'reverb', 'functional'


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
