"""The base of the cores: parts that make a recurrent core."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from ftwax import hyperparameters, parts
from ftwax.networks import recurrence
from ftwax.networks.dnc import controllers

_SizedCore = TypeVar('_SizedCore', bound='SizedCore')


@dataclasses.dataclass(frozen=True)
class Core(parts.Part):
  """Base of the cores.

  Attributes:
    has_latents: whether its `auxiliary` outputs hold what `losses.latent_kl`
      needs.
    has_memory: whether its outputs depend on earlier steps.
  """

  has_latents: ClassVar[bool] = False
  has_memory: ClassVar[bool] = True

  @property
  def reach(self) -> int | None:
    """Steps that it sees back, None without such a limit."""
    return None

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform.

    Args:
      name: name of its module; None for the name of its kind.
    """
    raise NotImplementedError

  def bound(self, values: Any) -> 'Core':
    """Returns a copy with the values of an agent's hyperparameters.

    Args:
      values: a tree with a field `core` if the core has hyperparameters; None
        for the numbers that it has itself.
    """
    bound: Core = parts.bind(self, getattr(values, 'core', None))
    return bound

  def check_bound(self) -> None:
    """Raises a ValueError if a hyperparameter has no value."""
    parts.check_bound(self)

  def example_values(self) -> Any:
    """Returns any values for `bound`, to initialize parameters with."""
    return hyperparameters.make_tree({'core': parts.example_values(self)})

  def wire(self, make_sizes: Callable[[], Mapping[str, int]]) -> 'Core':
    """Returns a copy for the inputs of an agent.

    Args:
      make_sizes: returns the sizes of the parts of the input by name; see
        `embeddings.part_sizes`.
    """
    del make_sizes
    return self

  def with_size(self, size: int) -> Any:
    """Returns a copy with `size` units in each layer."""
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class SizedCore(Core):
  """Base of the cores that have one size.

  Attributes:
    hidden_size: number of units.
  """

  hidden_size: int = parts.option(64, low=1)

  def make_controller(self) -> controllers.Controller:
    """Makes the core for a level of `RPTH`; call within a Haiku transform."""
    return controllers.CoreController(self.make())

  def with_size(self: _SizedCore, size: int) -> _SizedCore:
    """Returns a copy with `size` units."""
    return self.replace(hidden_size=size)


@dataclasses.dataclass(frozen=True)
class Custom(Core):
  """A core that a function or class of a user's own makes.

  Attributes:
    function: makes the module; called within a Haiku transform.
  """

  has_latents: ClassVar[bool] = True  # It may have some; its outputs tell.

  function: Callable[[], recurrence.RecurrentCore]

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    del name
    return self.function()


def as_part(core: Any) -> Core:
  """Returns a core as a part.

  Args:
    core: a part, a class of parts, or a function or class of a user's own that
      makes a module.
  """
  core = instantiate(core)
  return core if isinstance(core, Core) else Custom(core)


def instantiate(core: Any) -> Any:
  """Returns a part in place of its class; anything else as it is."""
  is_class = isinstance(core, type) and issubclass(core, Core)
  return core() if is_class else core


def check_sized(name: str, part: Any, alternative: str = '') -> None:
  """Raises a ValueError unless a field of a part is a core with one size.

  Args:
    name: name of the field.
    part: the part.
    alternative: what else may be chosen, for the message.
  """
  value = getattr(part, name)
  if not isinstance(value, SizedCore):
    raise ValueError(
      f'{name} ({value!r}) of {type(part).__name__} must be a core with one'
      f' size, such as cores.GRU(64){alternative}; choose one.'
    )
