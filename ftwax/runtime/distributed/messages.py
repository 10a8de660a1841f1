"""What the coordinator and its nodes tell each other."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ftwax import types
from ftwax.runtime.device import rollout


class Order(NamedTuple):
  """What an actor is asked to play: one trajectory in each of its games.

  Attributes:
    num_steps: maximum number of steps of all members together. Only the last
      steps of a run are fewer than a trajectory of all games needs.
    seats: int32 [G, P], the player on each seat of the next round; None to
      continue the present one.
    entropy: seeds games and actors, in a node that has not played yet.
    parameters: of the next episodes; see `environments.curricula`.
  """

  num_steps: int
  seats: types.NumpyArray | None
  entropy: tuple[int, ...]
  parameters: Mapping[str, float]


class Played(NamedTuple):
  """What an actor has played.

  Attributes:
    num_steps: number of steps taken.
    episodes: the episodes at each step, leaves [T, N, M] or fewer; None if the
      environments failed.
    ends_round: whether the round is over, so that the next order has seats.
    has_items: whether trajectories come with it.
    fault: why the environments were made again; None if they were not.
    metrics: metrics of the actor's observers.
    measured: metrics of the games that ended; see `episode_metrics`.
  """

  num_steps: int
  episodes: rollout.Episodes | None
  ends_round: bool
  has_items: bool
  fault: str | None
  metrics: Mapping[str, float]
  measured: Sequence[Mapping[str, float]] = ()


class Learned(NamedTuple):
  """What a learner has learned.

  Attributes:
    num_steps: number of updates of the whole run.
    num_queued: number of trajectories of a member that wait for an update.
    has_variables: whether new variables come with it.
    rows: rows for the log.
  """

  num_steps: int
  num_queued: int
  has_variables: bool
  rows: Sequence[Mapping[str, Any]]
