"""The recurrent cores, each a part with its options.

A core is called within a Haiku transform and makes its module, so that a class
or function of your own that makes a `recurrence.RecurrentCore` serves as well:

    PPOConfig(core='gru')
    PPOConfig(core=cores.RPTH(64, memory=cores.Memory(num_slots=16)))
    PPOConfig(core=MyCore)

`NAMED` has them by name.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ftwax import parts, registry
from ftwax.networks import (
  gtrxl,
  layers,
  linear_cores,
  recurrence,
  recurrent_cores,
  rpth,
  stacked_lstm,
)
from ftwax.networks.dnc import controllers, interfaces
from ftwax.networks.dnc import core as dnc_core

Memory = interfaces.Memory

# Makes a core; called within a Haiku transform.
MakeCore = Callable[[], recurrence.RecurrentCore]

_Core = TypeVar('_Core', bound='Core')


@dataclasses.dataclass(frozen=True)
class Core(parts.Part):
  """Base of the cores.

  Attributes:
    hidden_size: number of units.
  """

  hidden_size: int = parts.option(64, low=1)

  def __call__(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform.

    Args:
      name: name of its module; None for the name of its kind.
    """
    raise NotImplementedError

  def make_controller(self) -> controllers.Controller:
    """Makes the core for a level of `RPTH`; call within a Haiku transform."""
    return controllers.CoreController(self())

  def with_size(self: _Core, size: int) -> _Core:
    """Returns a copy with `size` units."""
    return self.replace(hidden_size=size)


@registry.register('core.lstm')
@dataclasses.dataclass(frozen=True)
class LSTM(Core):
  """Long short-term memory; see `recurrent_cores.LSTM`.

  Attributes:
    forget_bias: added to the forget gate's bias; 1 is common, and dependencies
      over tens of steps are learned much sooner with 3.
    memory_length: number of steps for which memories first last, in place of
      `forget_bias`.
    layer_norm: whether to normalize each gate and the cell over the units.
    dropout: rate at which the candidates that enter the cell are dropped in
      acting and learning, by the same mask; greedy policies drop nothing. None
      for no dropout, nor a hyperparameter for it.
  """

  forget_bias: float = parts.option(3.0, low=-100.0)
  memory_length: int | None = parts.option(None, low=2)
  layer_norm: bool = False
  dropout: parts.Scalar | None = parts.scalar(None, high=0.99)

  def __post_init__(self) -> None:
    """Checks the numbers, and what goes with normalization."""
    super().__post_init__()
    if self.layer_norm and self.memory_length is not None:
      raise ValueError(
        f'memory_length ({self.memory_length}) of LSTM must be None with'
        ' layer_norm, which changes the cell at each step; choose forget_bias'
        ' instead.'
      )
    if self.layer_norm and self.hidden_size < 2:
      raise ValueError(
        f'hidden_size ({self.hidden_size}) of LSTM must be at least 2 with'
        ' layer_norm, which makes a single unit constant; choose 2 or more.'
      )

  def __call__(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return recurrent_cores.LSTM(
      self.hidden_size,
      self.forget_bias,
      self.memory_length,
      self.layer_norm,
      has_dropout=self.dropout is not None,
      name=name,
    )

  def make_controller(self) -> controllers.Controller:
    """Makes the core for a level of `RPTH`; call within a Haiku transform."""
    if self == LSTM(self.hidden_size, self.forget_bias):
      # The same as the core, but for fewer products inside the loop.
      return controllers.LSTMController(self.hidden_size, self.forget_bias)
    return super().make_controller()


@registry.register('core.stacked_lstm')
@dataclasses.dataclass(frozen=True)
class StackedLSTM(parts.Part):
  """Cores on top of each other, LSTMs by default; see `stacked_lstm`.

  Attributes:
    hidden_sizes: units of each layer, the lowest first.
    wiring: for each layer, the parts of the input that it reads in addition to
      the layer below: paths of observation entries, `previous_action` or
      `previous_reward`. If empty, each layer reads all.
    layer: the core of all layers, but for its size: any with one size.
    input_sizes: sizes of the parts of the input by name, which agents set.
  """

  hidden_sizes: tuple[int, ...] = parts.option((64, 256), low=1)
  wiring: tuple[tuple[str, ...], ...] = ()
  layer: Core = LSTM()  # noqa: RUF009
  input_sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    """Checks the sizes and the layer."""
    super().__post_init__()
    _check_core('layer', self)
    for size in self.hidden_sizes:
      self.layer.with_size(size)

  def __call__(self) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform.

    Raises:
      ValueError: if the wiring names parts that the input lacks.
    """
    names = list(self.input_sizes)
    wired = {part for below in self.wiring for part in below}
    if unknown := wired - set(names):
      raise ValueError(
        f'wiring ({self.wiring}) must name parts of the input, and'
        f' {sorted(unknown)} are not among them; choose from {names}.'
      )
    return stacked_lstm.StackedLSTM(
      self.hidden_sizes,
      tuple(self.input_sizes.values()),
      [tuple(map(names.index, part)) for part in self.wiring],
      lambda size, name: self.layer.with_size(size)(name),
    )

  def with_size(self, size: int) -> 'StackedLSTM':
    """Returns a copy with `size` units in each layer."""
    return self.replace(hidden_sizes=(size,) * len(self.hidden_sizes))


@registry.register('core.gru')
@dataclasses.dataclass(frozen=True)
class GRU(Core):
  """Gated recurrent unit; see `recurrent_cores.GRU`."""

  def __call__(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return recurrent_cores.GRU(self.hidden_size, name)


@registry.register('core.feed_forward')
@dataclasses.dataclass(frozen=True)
class FeedForward(Core):
  """A layer without memory; see `recurrent_cores.FeedForward`.

  Attributes:
    activation: its nonlinearity, one of `layers.ACTIVATIONS`.
    initializer: of its matrix, `truncated_normal` or `orthogonal`.
  """

  activation: str = parts.option('relu', choices=tuple(layers.ACTIVATIONS))
  initializer: str = parts.option(
    'truncated_normal', choices=layers.INITIALIZERS
  )

  def __call__(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return recurrent_cores.FeedForward(
      (self.hidden_size,), self.activation, self.initializer, name
    )


@dataclasses.dataclass(frozen=True)
class _Linear(Core):
  """Base of the cores with a linear recurrence, parallel in time.

  Attributes:
    hidden_size: size of the features, and number of units of each block.
    num_layers: number of blocks.
    memory_length: the longest time scale at first, in steps.
  """

  num_layers: int = parts.option(1, low=1, high=parts.MAX_UNROLLED)
  memory_length: int = parts.option(1000, low=1)


@registry.register('core.lru')
@dataclasses.dataclass(frozen=True)
class LRU(_Linear):
  """Linear recurrent unit, a pair of units for a number; see `linear_cores`."""

  def __post_init__(self) -> None:
    """Checks the numbers."""
    super().__post_init__()
    if self.hidden_size % 2:
      raise ValueError(
        f'hidden_size ({self.hidden_size}) of an LRU must be even, since its'
        ' units are the two parts of complex numbers; choose'
        f' {self.hidden_size + 1}.'
      )

  def __call__(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return linear_cores.LinearCore(self, 'lru', name)


@registry.register('core.min_gru')
@dataclasses.dataclass(frozen=True)
class MinGRU(_Linear):
  """A GRU whose gate depends on the inputs alone; see `linear_cores`."""

  def __call__(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return linear_cores.LinearCore(self, 'min_gru', name)


@registry.register('core.gtrxl')
@dataclasses.dataclass(frozen=True)
class GTrXL(Core):
  """A gated transformer with a cached window; see `gtrxl`.

  Attributes:
    hidden_size: features of a step, a multiple of twice `num_heads`.
    num_layers: number of layers; a step sees up to `num_layers * window` back.
    num_heads: heads of attention of each layer.
    window: number of steps before the current one that a layer attends to.
  """

  num_layers: int = parts.option(1, low=1, high=parts.MAX_UNROLLED)
  num_heads: int = parts.option(4, low=1, high=parts.MAX_UNROLLED)
  window: int = parts.option(128, low=1)

  def __post_init__(self) -> None:
    """Checks the numbers."""
    super().__post_init__()
    if self.hidden_size % (2 * self.num_heads):
      raise ValueError(
        f'hidden_size ({self.hidden_size}) of a gated transformer must be a'
        f' multiple of twice num_heads ({self.num_heads}), which share it;'
        f' choose {16 * self.num_heads}.'
      )

  def __call__(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return gtrxl.GTrXL(self, name)


@registry.register('core.dnc')
@dataclasses.dataclass(frozen=True)
class DNC(Core):
  """A differentiable neural computer: an LSTM and a memory; see `dnc.core`.

  Attributes:
    hidden_size: units of the LSTM.
    memory: sizes and options of the memory.
    output_size: number of features, a projection of the LSTM's output and the
      words read; None returns both without projection.
    clip_value: magnitude to which the LSTM's output and the features are
      clipped; None for no clipping.
  """

  memory: Memory = Memory()  # noqa: RUF009
  output_size: int | None = parts.option(64, low=1)
  clip_value: float | None = parts.option(None, above=0)

  def __call__(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return dnc_core.DNC(self, name=name)


@registry.register('core.rpth')
@dataclasses.dataclass(frozen=True)
class RPTH(parts.Part):
  """A temporal hierarchy of cores, maybe with a shared memory; see `rpth`.

  Attributes:
    level: the core of each level; a number stands for an LSTM of that size.
    latent_size: size of the latent variable; None for that of a level.
    num_levels: number of levels.
    memory: the memory that all levels share; None for none.
    slow_period: int32, steps between two ticks of the slow core; with more
      levels, level l ticks every `slow_period ** l` steps. A tuple has a period
      for each slow level, the fastest first.
    fast_to_slow_gradient_scale: scale of the gradient from the fast core into
      the slow core's output.
    noise_scale: scale of the noise in z: 1 samples z from the posterior, as in
      the paper; 0 uses the posterior's mean, with which short runs learn
      sooner. It does not change the distributions.
    init_scale: standard deviation of the latent if the layer outputs zero.
    min_scale: added to standard deviations.
    fixed_scale: whether all standard deviations are `init_scale`, not learned.
    memory_projection: whether latents are computed from a linear layer, of the
      size of a level, of a core's output and the words read; False: from both
      themselves.
    tanh_loc: whether to bound means to (-1, 1) by tanh.
    clip_value: magnitude to which the outputs of the cores and, with a memory,
      the inputs of the latent layer are clipped; None for no clipping.
  """

  level: int | Core = LSTM(forget_bias=1.0)  # noqa: RUF009
  latent_size: int | None = parts.option(None, low=1)
  num_levels: int = parts.option(2, low=2, high=parts.MAX_UNROLLED)
  memory: Memory | None = None
  slow_period: parts.Integers = parts.scalar(8, low=1)
  fast_to_slow_gradient_scale: parts.Scalar = parts.scalar(1.0, high=1.0)
  noise_scale: float = parts.option(1.0, low=0)
  init_scale: float = parts.option(0.1, above=0)
  min_scale: float = parts.option(1e-6, above=0)
  fixed_scale: bool = False
  memory_projection: bool = True
  tanh_loc: bool = False
  clip_value: float | None = parts.option(None, above=0)

  def __post_init__(self) -> None:
    """Replaces a size by an LSTM, and checks the numbers."""
    if isinstance(self.level, int):
      object.__setattr__(self, 'level', LSTM(self.level, forget_bias=1.0))
    _check_core('level', self, ', or the size of an LSTM')
    super().__post_init__()
    periods = self.slow_period
    if isinstance(periods, tuple) and len(periods) != self.num_levels - 1:
      raise ValueError(
        f'slow_period ({periods}) of RPTH must be one period, or one for each'
        f' of the {self.num_levels - 1} slow levels; for a range choose'
        ' hyperparameters.UniformInteger(5, 20).'
      )

  @property
  def level_core(self) -> Core:
    """The core of each level."""
    assert isinstance(self.level, Core)
    return self.level

  @property
  def hidden_size(self) -> int:
    """Units of each level."""
    return self.level_core.hidden_size

  @property
  def num_latents(self) -> int:
    """Size of the latent variable, that of a level by default."""
    return self.latent_size or self.hidden_size

  def __call__(self) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return rpth.RPTH(self)

  def with_size(self, size: int) -> 'RPTH':
    """Returns a copy with `size` units in each level, and as many latents."""
    return self.replace(level=self.level_core.with_size(size), latent_size=None)


def _check_core(name: str, part: Any, alternative: str = '') -> None:
  """Raises a ValueError unless a field of a part is a core with one size."""
  value = getattr(part, name)
  if not isinstance(value, Core):
    raise ValueError(
      f'{name} ({value!r}) of {type(part).__name__} must be a core with one'
      f' size, such as cores.GRU(64){alternative}; choose one.'
    )


# The cores by name, each with the defaults of its part.
NAMED: Mapping[str, Any] = {
  'lstm': LSTM(),
  'gru': GRU(),
  'lru': LRU(),
  'min_gru': MinGRU(),
  'gtrxl': GTrXL(),
  'feed_forward': FeedForward(),
  'stacked_lstm': StackedLSTM(),
  'dnc': DNC(),
  'rpth': RPTH(),
  'rpth_dnc': RPTH(memory=Memory()),
}

find = functools.partial(parts.find, 'core', known=NAMED)
