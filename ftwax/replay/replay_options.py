"""Kinds of replays, and options of what one holds beside its queue."""

from typing import NamedTuple

from ftwax.replay import trajectories

# What a local run keeps its trajectories in.
KINDS = REVERB, FUNCTIONAL = 'reverb', 'functional'


class ServerOptions(NamedTuple):
  """Where a Reverb server listens.

  Attributes:
    port: any free one if None.
    expose: whether other machines may reach it.
  """

  port: int | None = None
  expose: bool = False


LOOPBACK = ServerOptions()


class ReplayOptions(NamedTuple):
  """Options of the tables beside the queue.

  Attributes:
    replay_capacity: trajectories in the table of replayed ones; 0 for no such
      table.
    reward_prediction_capacity: sequences in each of the two tables for reward
      prediction, at the least; 0 for no such tables.
    sequences: those for reward prediction.
    delta_encodes: whether Reverb stores frames as differences; see
      `reverb.frames`.
    prioritized: whether replayed trajectories are drawn by priority.
  """

  replay_capacity: int = 0
  reward_prediction_capacity: int = 0
  sequences: trajectories.Sequences = trajectories.Sequences(3, 1)
  delta_encodes: bool = False
  prioritized: bool = False


QUEUE_ALONE = ReplayOptions()
