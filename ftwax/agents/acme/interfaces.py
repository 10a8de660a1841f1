"""acme's interfaces, or equivalent classes where acme cannot be installed.

acme needs Python 3.10; with it, actors and learners subclass acme's own.
"""

from typing import Any

try:
  import acme
except ImportError:
  acme = None


class _Learner:
  """Adds `run` to a learner, as acme's base class does."""

  def step(self) -> None:
    """Does one update."""
    raise NotImplementedError

  def run(self, num_steps: int | None = None) -> None:
    """Does `num_steps` updates, or runs forever if None."""
    while num_steps is None or num_steps > 0:
      self.step()
      num_steps = None if num_steps is None else num_steps - 1


Actor: Any = acme.Actor if acme else object
Learner: Any = acme.Learner if acme else _Learner
Saveable: Any = acme.Saveable if acme else object
VariableSource: Any = acme.VariableSource if acme else object
