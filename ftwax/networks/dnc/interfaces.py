"""Interface between a controller and the memory of a DNC.

The controller's output vector is split into keys, strengths, gates and so on,
and each part is mapped to its range (Graves et al., 2016, Methods, "Interface
parameters"). The options of the memory determine the parts.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from ftwax import parts, registry, scans, types

LINKAGES = ('exact', 'sparse', 'none', 'plain')


@registry.register('core.memory')
@dataclasses.dataclass(frozen=True)
class Memory(parts.Part):
  """Sizes and options of a memory.

  Sizes are small by default; `agents.ftw.MEMORY` has those of the FTW agent.

  Attributes:
    num_slots: number of slots, N.
    word_size: size of a slot, W.
    num_reads: number of read heads, R.
    num_writes: number of write heads, H.
    linkage: one of `LINKAGES`; see `access`.
    num_links: maximum number of links per slot with sparse linkage, K.
    key_masking: whether to mask keys and slots when comparing them.
    deallocation: whether to erase freed slots.
    link_sharpness: whether to sharpen the reads that follow links.
    layer_norm: whether to apply layer norm to the interface vector.
    usage_gradient: whether the gradient of usage reaches the write weights; the
      code released with the paper stops it there.
  """

  num_slots: int = parts.option(16, low=1)
  word_size: int = parts.option(16, low=1)
  num_reads: int = parts.option(2, low=1, high=parts.MAX_UNROLLED)
  num_writes: int = parts.option(1, low=1, high=parts.MAX_UNROLLED)
  linkage: str = parts.option('exact', choices=LINKAGES)
  num_links: int = parts.option(8, low=1)
  key_masking: bool = False
  deallocation: bool = False
  link_sharpness: bool = False
  layer_norm: bool = False
  usage_gradient: bool = False

  def __post_init__(self) -> None:
    """Checks sizes and options."""
    super().__post_init__()
    if self.linkage == 'sparse' and self.num_links > self.num_slots:
      raise ValueError(
        f'num_links ({self.num_links}) must be at most num_slots'
        f' ({self.num_slots}); choose num_links={self.num_slots} or less.'
      )
    for name in ('deallocation', 'link_sharpness'):
      if self.linkage == 'none' and getattr(self, name):
        raise ValueError(
          f"{name} (True) must be off where linkage is 'none', which has"
          f' neither free gates nor links; pass {name}=False or'
          " linkage='exact'."
        )

  @property
  def has_links(self) -> bool:
    """Whether reads follow the order of writing."""
    return self.linkage != 'none'

  @property
  def num_read_modes(self) -> int:
    """Number of read modes: content, plus two directions per write head."""
    return 1 + 2 * self.num_writes if self.has_links else 1

  @property
  def is_stored(self) -> bool:
    """Whether an unroll stores links and memories of all steps.

    On an accelerator, recomputing small ones takes longer, in three times the
    kernels. Those of 64 slots take 20 kB a step and row.
    """
    return scans.counts_launches() and self.num_slots <= 64


class Interface(NamedTuple):
  """Parameters of one access, as a controller outputs them; float32.

  Attributes:
    read_keys: [B, R, W].
    read_strengths: [B, R], at least one.
    read_modes: [B, R, num_read_modes], which sum to one: backward and forward
      for each write head, then content.
    write_keys: [B, H, W].
    write_strengths: [B, H], at least one.
    write_vectors: [B, H, W].
    erase: [B, H, W], in (0, 1).
    allocation_gates: [B, H], in (0, 1).
    write_gates: [B, H], in (0, 1).
    free_gates: [B, R], in (0, 1), or None without linkage.
    read_masks: [B, R, W], in (0, 1), or None without key masking.
    write_masks: [B, H, W], in (0, 1), or None without key masking.
    sharpness: [B, 2 H, R], at least one, of backward and forward reads, or None
      without link sharpness.
  """

  read_keys: types.Array
  read_strengths: types.Array
  read_modes: types.Array
  write_keys: types.Array
  write_strengths: types.Array
  write_vectors: types.Array
  erase: types.Array
  allocation_gates: types.Array
  write_gates: types.Array
  free_gates: Any
  read_masks: Any
  write_masks: Any
  sharpness: Any


def _identity(x: types.Array) -> types.Array:
  return x


def _oneplus(x: types.Array) -> types.Array:
  # As in the paper. The code released with it uses the softplus alone, which
  # lets strengths fall to zero.
  return 1.0 + jax.nn.softplus(x)


class _Part(NamedTuple):
  """Shape and activation of a part of the interface vector."""

  shape: tuple[int, ...]
  activation: Callable[[types.Array], types.Array]


def make_layout(config: Memory) -> Mapping[str, _Part]:
  """Returns each part of the interface vector, in their order, by name."""
  words_read = (config.num_reads, config.word_size)
  words_written = (config.num_writes, config.word_size)
  reads, writes = (config.num_reads,), (config.num_writes,)
  modes = (config.num_reads, config.num_read_modes)
  layout = {
    'read_keys': _Part(words_read, _identity),
    'read_strengths': _Part(reads, _oneplus),
    'read_modes': _Part(modes, jax.nn.softmax),
    'write_keys': _Part(words_written, _identity),
    'write_strengths': _Part(writes, _oneplus),
    'write_vectors': _Part(words_written, _identity),
    'erase': _Part(words_written, jax.nn.sigmoid),
    'allocation_gates': _Part(writes, jax.nn.sigmoid),
    'write_gates': _Part(writes, jax.nn.sigmoid),
  }
  if config.has_links:
    layout['free_gates'] = _Part(reads, jax.nn.sigmoid)
  if config.key_masking:
    layout['read_masks'] = _Part(words_read, jax.nn.sigmoid)
    layout['write_masks'] = _Part(words_written, jax.nn.sigmoid)
  if config.link_sharpness:
    directions = (2 * config.num_writes, config.num_reads)
    layout['sharpness'] = _Part(directions, _oneplus)
  return layout


def interface_size(config: Memory) -> int:
  """Returns the size of the interface vector."""
  return sum(math.prod(shape) for shape, _ in make_layout(config).values())


def parse_interface(config: Memory, numbers: types.Array) -> Interface:
  """Splits [B, interface_size] into the parts of an `Interface`."""
  layout = make_layout(config)
  fields: dict[str, Any] = dict.fromkeys(Interface._fields)
  start = 0
  for name, (shape, activation) in layout.items():
    stop = start + math.prod(shape)
    part = numbers[..., start:stop].reshape(*numbers.shape[:-1], *shape)
    fields[name] = activation(part)
    start = stop
  return Interface(**fields)
