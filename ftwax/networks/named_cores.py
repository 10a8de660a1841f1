"""Recurrent cores by name, for configs of agents and levels of a hierarchy."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

from ftwax.networks import cores, gtrxl, linear_cores, recurrent_cores

# Makes a core; called within a Haiku transform.
MakeCore = Callable[[], cores.RecurrentCore]


@dataclasses.dataclass(frozen=True)
class CoreOptions:
  """Options of named cores; each core reads its own.

  Attributes:
    forget_bias: forget gate bias of `lstm`; see `recurrent_cores.LSTM`.
    memory_length: steps for which memories first last in `lru` and `min_gru`,
      and in `lstm`, which then ignores the forget bias; None for the default
      of the former and the forget bias of the latter.
    num_layers: blocks of `lru`, `min_gru` and `gtrxl`; others have one layer.
    num_heads: heads of attention of `gtrxl`.
    window: steps before the current one that `gtrxl` attends to.
  """

  forget_bias: float = 1.0
  memory_length: int | None = None
  num_layers: int = 1
  num_heads: int = 4
  window: int = 128


def prepare(name: str, hidden_size: int, options: CoreOptions) -> MakeCore:
  """Checks the options and returns a function that makes the core.

  Args:
    name: one of `NAMES`.
    hidden_size: units of the core, and size of its features.
    options: all other options.

  Raises:
    ValueError: if the size or the options do not suit the core.
  """
  if not math.isfinite(options.forget_bias):
    raise ValueError(
      f'forget_bias ({options.forget_bias}) must be finite; choose 1.'
    )
  return _CORES[name](hidden_size, options)


def _prepare_lstm(size: int, options: CoreOptions) -> MakeCore:
  recurrent_cores.check_memory_length(options.memory_length)
  return functools.partial(
    recurrent_cores.LSTM, size, options.forget_bias, options.memory_length
  )


def _prepare_linear(
  recurrence: str, size: int, options: CoreOptions
) -> MakeCore:
  config = linear_cores.LinearCoreConfig(recurrence, size, options.num_layers)
  if options.memory_length is not None:
    config = dataclasses.replace(config, memory_length=options.memory_length)
  return functools.partial(linear_cores.LinearCore, config)


def _prepare_gtrxl(size: int, options: CoreOptions) -> MakeCore:
  config = gtrxl.GTrXLConfig(
    size, options.num_layers, options.num_heads, options.window
  )
  return functools.partial(gtrxl.GTrXL, config)


_CORES: Mapping[str, Callable[[int, CoreOptions], MakeCore]] = {
  'lstm': _prepare_lstm,
  'gru': lambda size, _: functools.partial(recurrent_cores.GRU, size),
  **{
    name: functools.partial(_prepare_linear, name)
    for name in linear_cores.RECURRENCES
  },
  'gtrxl': _prepare_gtrxl,
  'feed_forward': lambda size, _: functools.partial(
    recurrent_cores.FeedForward, (size,)
  ),
}

NAMES = tuple(_CORES)
