"""Shares a budget of steps among actors, so that it is met exactly.

An actor asks for steps before it takes them and reports how many it took. Near
the end the steps left may be too few for all of an actor's environments: they
go to the last actor that asks, which takes them in some of its environments.
"""

from typing import NamedTuple


class Grant(NamedTuple):
  """Steps that an actor may take.

  Attributes:
    num_steps: that it holds: granted and not yet taken.
    is_last: whether no more will come after these, though they may be fewer
      than the actor asked for.
  """

  num_steps: int
  is_last: bool = False


class Budget:
  """Steps taken, held by actors, and left."""

  def __init__(self, max_steps: int, steps: int = 0):
    """Starts with `steps` taken already."""
    self._max_steps = max_steps
    self._held: dict[int, int] = {}
    self.steps = steps

  @property
  def done(self) -> bool:
    """Whether all steps are taken."""
    return self.steps >= self._max_steps

  def take(self, actor: int, num_steps: int) -> None:
    """Counts steps that an actor took of those it holds."""
    self.steps += num_steps
    self._held[actor] = max(self._held.get(actor, 0) - num_steps, 0)

  def end(self) -> None:
    """Gives nobody more steps than they hold."""
    self._max_steps = self.steps + sum(self._held.values())

  def release(self, actor: int) -> None:
    """Takes back what an actor holds, for instance since it died."""
    self._held.pop(actor, None)

  def ask(self, actor: int, num_needed: int, num_wanted: int) -> Grant:
    """Gives steps to an actor, on top of which it gives back what it held.

    Args:
      actor: its number.
      num_needed: steps that it takes at a time, one in each environment.
      num_wanted: steps that it would like, at least `num_needed`.

    Returns:
      The steps it holds now. None, and not the last, means to ask once more
      in a while, since another actor may give some back.
    """
    self.release(actor)
    left = max(self._max_steps - self.steps - sum(self._held.values()), 0)
    if left >= num_needed:
      self._held[actor] = min(left, num_wanted)
      return Grant(self._held[actor])
    if any(self._held.values()):
      return Grant(0)
    self._held[actor] = left
    return Grant(left, is_last=True)
