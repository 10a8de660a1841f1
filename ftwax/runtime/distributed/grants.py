"""Divides a budget of steps among actors so that it is met exactly.

An actor requests steps before it takes them and reports how many it has taken.
Near the end, the remaining steps may be fewer than an actor has environments:
they go to the last actor that asks, which steps only some of its environments.
"""

from typing import NamedTuple


class Grant(NamedTuple):
  """Steps that an actor may take.

  Attributes:
    num_steps: number of steps granted and not taken yet.
    is_last: whether no more steps will be granted after these, which may be
      fewer than the actor asked for.
  """

  num_steps: int
  is_last: bool = False


class Budget:
  """Counts steps taken, held by actors, and left."""

  def __init__(self, max_steps: int, steps: int = 0):
    """Initializes the budget, with `steps` already taken."""
    self._max_steps = max_steps
    self._held: dict[int, int] = {}
    self.steps = steps

  @property
  def done(self) -> bool:
    """Whether all steps are taken."""
    return self.steps >= self._max_steps

  def take(self, actor: int, num_steps: int) -> None:
    """Counts steps that an actor has taken out of those it holds."""
    self.steps += num_steps
    self._held[actor] = max(self._held.get(actor, 0) - num_steps, 0)

  def end(self) -> None:
    """Grants no more steps than actors already hold."""
    self._max_steps = self.steps + sum(self._held.values())

  def release(self, actor: int) -> None:
    """Takes back the steps that an actor holds, for example after it died."""
    self._held.pop(actor, None)

  def ask(self, actor: int, num_needed: int, num_wanted: int) -> Grant:
    """Grants steps to an actor, in place of those it held before.

    Args:
      actor: index of the actor.
      num_needed: number of steps taken at a time, one per environment.
      num_wanted: preferred number of steps, at least `num_needed`.

    Returns:
      The steps that the actor holds now. A grant of zero steps that is not the
      last means to ask again later, since another actor may give some back.
    """
    self.release(actor)
    left = max(self._max_steps - self.steps - sum(self._held.values()), 0)
    if left >= num_needed:
      self._held[actor] = min(left, num_wanted)
      return Grant(self._held[actor])
    # Whoever holds steps may die and give them back.
    if any(self._held.values()):
      return Grant(0)
    self._held[actor] = left
    return Grant(left, is_last=True)
