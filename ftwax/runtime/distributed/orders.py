"""Orders of actors: who may play, and how many steps each is granted."""

import dataclasses
import time
from collections.abc import Collection, Sequence
from typing import Any

from ftwax.runtime import prepare
from ftwax.runtime.distributed import settings as settings_lib

_RETRY_S = 0.5


@dataclasses.dataclass
class Actor:
  """What the coordinator knows of an actor.

  Attributes:
    held: number of steps granted and not yet reported.
    needs_seats: whether its next order begins a round.
    position: number of trajectories of a member, in the order in which learners
      get them, up to its last one.
    seats: int32 [G, P], the player on each seat of its games.
    retry_at: time before which it is not asked again.
  """

  held: int = 0
  seats: Any = None
  needs_seats: bool = True
  position: int = 0
  retry_at: float = 0.0


class Orders:
  """Grants the steps of a run, each to one actor.

  Attributes:
    actors: what is known of each actor, by name.
    position: number of trajectories of a member that learners got.
  """

  def __init__(
    self,
    parts: prepare.Prepared,
    settings: settings_lib.Settings,
    learners: Sequence[str],
  ):
    """Starts with actors that hold nothing; learners are given by name."""
    experiment, self._seating = parts.experiment, parts.seating
    self.actors = {
      f'actor/{index}': Actor() for index in range(settings.num_actors)
    }
    self.position = 0
    self._max_num_steps = experiment.max_num_actor_steps
    rows = self._seating.num_members * self._seating.seats_per_member
    self._wanted = rows * experiment.agent.sequence_length
    self._max_queued = experiment.agent.queue_size
    num_written = settings.num_actors * self._seating.seats_per_member
    batch_size = experiment.agent.batch_size
    self._waits = settings.actors_wait and num_written >= batch_size
    self._learned = dict.fromkeys(learners, 0)

  def ready(self, busy: Collection[str], num_working: int) -> list[str]:
    """Returns the actors that may play.

    Args:
      busy: nodes with a call.
      num_working: how many of them play or learn.
    """
    idle = [name for name in self.actors if name not in busy]
    ready = [name for name in idle if self._may_play(self.actors[name])]
    if not ready and not num_working:
      ready = idle  # Waiting for more to be learned would be for ever.
    now = time.monotonic()
    return [name for name in ready if now >= self.actors[name].retry_at]

  def _may_play(self, actor: Actor) -> bool:
    """Returns whether its last trajectory is learned, or need not be."""
    learned = min(self._learned.values())
    if self._waits:
      return actor.position <= learned
    return self.position - learned < self._max_queued

  def grant(self, name: str, num_taken: int) -> int:
    """Grants the steps of a trajectory, or the last ones; returns how many."""
    num_held = sum(other.held for other in self.actors.values())
    left = self._max_num_steps - num_taken - num_held
    # Whoever holds steps may give some back: only the last one gets the rest.
    if left <= 0 or (left < self._wanted and num_held):
      return 0
    self.actors[name].held = granted = min(left, self._wanted)
    return granted

  def place(self, name: str) -> int:
    """Returns the position of an actor's new trajectories."""
    self.position += self._seating.seats_per_member
    self.actors[name].position = self.position
    return self.position

  def learn(self, name: str, position: int) -> None:
    """Notes up to which position a learner has learned."""
    self._learned[name] = max(self._learned[name], position)

  def lose(self, name: str) -> None:
    """Takes back what an actor held: what it played was not counted."""
    actor = self.actors[name]
    actor.held, actor.needs_seats = 0, True
    actor.retry_at = time.monotonic() + _RETRY_S

  def restart(self) -> None:
    """Starts with learners whose queues are empty."""
    self.position = 0
    self._learned = dict.fromkeys(self._learned, 0)
    for actor in self.actors.values():
      actor.position = 0
