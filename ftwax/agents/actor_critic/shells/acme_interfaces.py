"""acme's interfaces, or classes alike where acme does not install.

acme needs Python 3.10; actors and learners are its own there.
"""

from typing import Any

try:
  import acme
except ImportError:
  acme = None


class _Learner:
  """The method that acme's learner adds to those of its subclasses."""

  def step(self) -> None:
    """Does one update."""
    raise NotImplementedError

  def run(self, num_steps: int | None = None) -> None:
    """Does `num_steps` updates, or updates without end if None."""
    while num_steps is None or num_steps > 0:
      self.step()
      num_steps = None if num_steps is None else num_steps - 1


Actor: Any = acme.Actor if acme else object
Learner: Any = acme.Learner if acme else _Learner
Saveable: Any = acme.Saveable if acme else object
VariableSource: Any = acme.VariableSource if acme else object
