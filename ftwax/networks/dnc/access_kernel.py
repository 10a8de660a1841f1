"""One access to a small memory, as one kernel of a GPU forward, one backward.

As operations of XLA an access is about 40 kernels, and its gradient 60, each of
which takes longer to launch than to compute. Here a program does the access of
one row in registers (`access.access`, and `access.masked_access` with a mask,
are the same for one write head and exact links). The gradient is that of the
same function, differentiated inside of the kernel, whose only residuals are its
inputs.

All that a row reads and writes is one vector, since each array that a kernel
takes would be cut out of a packed loop's carry by a kernel of its own. It is
the state, in the order of its leaves, then the controller's output and the
mask.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax import flatten_util

from ftwax import import_guard, scans, types
from ftwax.networks.dnc import addressing, interfaces, memory_state

# Within a kernel, what has an axis for heads is a list of a head each.
_State: Any = memory_state.MemoryState
_Links: Any = memory_state.LinkState


# Numbers of slots and of numbers in a slot. Triton's sizes are powers of two;
# larger ones are unmeasured.
_SIZE = 16


def is_used(config: interfaces.Memory) -> bool:
  """Returns whether accesses are kernels, of a memory with exact links."""
  if not (scans.has_kernels() and _has_kernel(config)):
    return False
  if config.num_slots == config.word_size == _SIZE:
    return True
  _warn(config.num_slots, config.word_size)
  return False


@functools.cache  # Once for each size.
def _warn(num_slots: int, word_size: int) -> None:
  logging.warning(
    'A DNC of num_slots (%s) and word_size (%s) has no kernel for its accesses,'
    ' each of which launches some 40 kernels on this GPU; choose'
    ' cores.Memory(%s, %s) where it is large enough.',
    num_slots,
    word_size,
    _SIZE,
    _SIZE,
  )


def _has_kernel(config: interfaces.Memory) -> bool:
  """Returns whether the kernel computes accesses of a memory of its size."""
  return (
    config.linkage == 'exact'
    and config.num_writes == 1
    and not config.key_masking
    and not config.deallocation
    and not config.link_sharpness
  )


def access(
  config: interfaces.Memory,
  numbers: types.Array,
  state: memory_state.MemoryState,
  mask: types.Array | None = None,
) -> memory_state.MemoryState:
  """Writes, then reads.

  Args:
    config: options of the memory.
    numbers: float32 [B, interface_size], the controller's output.
    state: state before the access; its link is a matrix.
    mask: bool [B], the rows that do the access; None for all.

  Returns:
    The state after the access, including the words read.
  """
  # As a number it multiplies gates and results, which leaves those of other
  # rows as they are.
  factor = jnp.ones(numbers.shape[:1]) if mask is None else mask
  return _access(config, state, numbers, factor.astype(numbers.dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _access(config: interfaces.Memory, *inputs: Any) -> Any:
  return _forward(config, *inputs)[0]


def _forward(config: interfaces.Memory, *inputs: Any) -> Any:
  rows = _pack(inputs)
  state = _Inputs(*inputs).state
  size = sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(state))
  (after,) = _call(_forward_kernel, config, [size], rows)
  return _unpack(after, state), rows


def _backward(config: interfaces.Memory, rows: Any, cotangent: Any) -> Any:
  of_after, size = _pack(cotangent), interfaces.interface_size(config)
  # Two outputs, of which a product takes the second one as it is.
  gradient, numbers = _call(
    _backward_kernel, config, [of_after.shape[1], size], rows, of_after
  )
  state = memory_state.initial_state(config, 1)
  return _unpack(gradient, state), numbers, None


_access.defvjp(_forward, _backward)


def _pack(tree: Any) -> types.Array:
  """Joins leaves [B, ...] to one vector of each row."""
  return jax.vmap(lambda row: flatten_util.ravel_pytree(row)[0])(tree)


def _unpack(rows: types.Array, tree: Any) -> Any:
  """Undoes `_pack`, for leaves like those of a tree."""
  one = jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), tree)
  with jax.ensure_compile_time_eval():
    _, unravel = flatten_util.ravel_pytree(one)
  return jax.vmap(unravel)(rows)


def _call(
  kernel: Any,
  config: interfaces.Memory,
  sizes: list[int],
  *operands: types.Array,
) -> list[types.Array]:
  """Runs a kernel with a program for each row; returns [B, size] each."""
  # Imported where they are needed: others may have a JAX without Triton.
  with import_guard.guarded():
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

  def block(size: int) -> Any:
    return pallas.BlockSpec((None, size), lambda row: (row, 0))

  num_rows = operands[0].shape[0]
  return pallas.pallas_call(
    functools.partial(kernel, config),
    out_shape=[
      jax.ShapeDtypeStruct((num_rows, size), operands[0].dtype)
      for size in sizes
    ],
    grid=(num_rows,),
    in_specs=[block(operand.shape[1]) for operand in operands],
    out_specs=[block(size) for size in sizes],
    # Within a warp a sum needs no barrier.
    compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
    interpret=jax.default_backend() == 'cpu',
    name=kernel.__name__.strip('_'),
  )(*operands)


def _forward_kernel(config: interfaces.Memory, row: Any, after: Any) -> None:
  parts = _lay_out(config)
  _store(after, parts.state, _step(config, *_load(row, parts)))


def _backward_kernel(
  config: interfaces.Memory,
  row: Any,
  cotangent: Any,
  of_state: Any,
  of_numbers: Any,
) -> None:
  parts = _lay_out(config)
  _, pull = jax.vjp(functools.partial(_step, config), *_load(row, parts))
  state, numbers, _ = pull(_load(cotangent, parts.state))
  _store(of_state, parts.state, state)
  _store(of_numbers, parts.numbers, numbers, start=of_state.shape[0])


@dataclasses.dataclass(frozen=True)
class _Part:
  """Where in a row an array is that a kernel loads or stores."""

  start: int
  shape: tuple[int, ...]

  @property
  def index(self) -> Any:
    """A slice, or a number for a scalar."""
    size = math.prod(self.shape)
    return slice(self.start, self.start + size) if self.shape else self.start


class _Inputs(NamedTuple):
  """Inputs of an access, in the order of a row.

  Attributes:
    state: a `MemoryState`.
    numbers: the controller's output; within a kernel, the parts of an interface
      by name, before their activations.
    mask: 1 if the row does the access, or 0.
  """

  state: Any
  numbers: Any
  mask: Any


def _lay_out(config: interfaces.Memory) -> _Inputs:
  """Returns where each array of a row is."""
  start = 0

  def take(*shape: int) -> _Part:
    nonlocal start
    start += math.prod(shape)
    return _Part(start - math.prod(shape), shape)

  n, w, heads = config.num_slots, config.word_size, range(config.num_reads)
  state = _State(
    memory=take(n, w),
    read_weights=[take(n) for _ in heads],
    write_weights=take(n),
    usage=take(n),
    words=[take(w) for _ in heads],
    links=_Links(take(n, n), take(n)),
  )
  numbers: dict[str, Any] = {}
  for name, (shape, _) in interfaces.make_layout(config).items():
    if name == 'read_modes':
      # Their number is no power of two.
      numbers[name] = [[take() for _ in range(shape[1])] for _ in heads]
    else:
      numbers[name] = [take(*shape[1:]) for _ in range(shape[0])]
  return _Inputs(state, numbers, take())


def _load(row: Any, parts: Any) -> Any:
  return jax.tree.map(lambda part: row[part.index].reshape(part.shape), parts)


def _store(row: Any, parts: Any, values: Any, start: int = 0) -> None:
  def store(part: _Part, value: types.Array) -> None:
    moved = dataclasses.replace(part, start=part.start - start)
    row[moved.index] = value.reshape(-1) if part.shape else value

  jax.tree.map(store, parts, values)


def _step(
  config: interfaces.Memory,
  state: Any,
  numbers: Any,
  mask: types.Array,
) -> Any:
  """Does the access of a row, with no operation that Triton lacks."""
  n, w = config.num_slots, config.word_size
  mask = jax.lax.stop_gradient(mask)
  parts = {
    name: jax.tree.map(part.activation, numbers[name])
    for name, part in interfaces.make_layout(config).items()
    if name != 'read_modes'
  }
  # Of the only write head, a vector or a number each.
  (key,), (strength,) = parts['write_keys'], parts['write_strengths']
  (erase,), (vector,) = parts['erase'], parts['write_vectors']
  (gate,), (share,) = parts['write_gates'], parts['allocation_gates']

  unwritten = 1.0 - state.write_weights
  if not config.usage_gradient:
    unwritten = jax.lax.stop_gradient(unwritten)
  usage = 1.0 - (1.0 - state.usage) * unwritten
  for free, weights in zip(
    parts['free_gates'], state.read_weights, strict=True
  ):
    usage = usage * (1.0 - mask * free * weights)
  content = _content(state.memory, key, strength)
  write = (
    mask
    * gate
    * (share * addressing.allocation(usage) + (1.0 - share) * content)
  )

  memory = state.memory * (1.0 - _down(write, w) * _across(erase, n))
  memory = memory + _down(write, w) * _across(vector, n)

  precedence = state.links.precedence
  rows, columns = _down(write, n), _across(write, n)
  link = (1.0 - rows - columns) * state.links.link
  link = link + rows * _across(precedence, n)
  link = jnp.where(_slots(n, 0) == _slots(n, 1), 0.0, link)
  precedence = (1.0 - jnp.sum(write)) * precedence + write

  all_weights, all_words = [], []
  for head, weights in enumerate(state.read_weights):
    backward, forward, by_content = _softmax(numbers['read_modes'][head])
    content = _content(
      memory, parts['read_keys'][head], parts['read_strengths'][head]
    )
    new = by_content * content
    new = new + backward * jnp.sum(_down(weights, n) * link, axis=0)
    new = new + forward * jnp.sum(_across(weights, n) * link, axis=1)
    words = jnp.sum(_down(new, w) * memory, axis=0)
    all_weights.append(_select(mask, new, weights))
    all_words.append(_select(mask, words, state.words[head]))
  return _State(
    memory=memory,
    read_weights=all_weights,
    write_weights=_select(mask, write, state.write_weights),
    usage=_select(mask, usage, state.usage),
    words=all_words,
    links=_Links(link, precedence),
  )


def _content(
  memory: types.Array, key: types.Array, strength: types.Array
) -> types.Array:
  """Returns `addressing.content_weights` of one head, [N]."""
  epsilon = addressing.EPSILON
  dot = jnp.sum(memory * _across(key, memory.shape[0]), axis=1)
  memory_norm = jnp.sqrt(jnp.sum(memory * memory, axis=1) + epsilon)
  key_norm = jnp.sqrt(jnp.sum(key * key) + epsilon)
  logits = strength * (dot / (key_norm * memory_norm + epsilon))
  powers = jnp.exp(logits - jnp.max(jax.lax.stop_gradient(logits)))
  return powers / jnp.sum(powers)


def _softmax(logits: list[types.Array]) -> list[types.Array]:
  """Returns the softmax of a list of numbers."""
  largest = functools.reduce(jnp.maximum, map(jax.lax.stop_gradient, logits))
  powers = [jnp.exp(each - largest) for each in logits]
  total = functools.reduce(jnp.add, powers)
  return [each / total for each in powers]


def _select(mask: types.Array, new: types.Array, old: types.Array) -> Any:
  """Returns one of the two, to the bit, by a mask of 1 or 0."""
  return mask * new + (1.0 - mask) * old


def _down(x: types.Array, num_columns: int) -> types.Array:
  """Returns a matrix [n, num_columns] of equal columns, from [n]."""
  return jax.lax.broadcast_in_dim(x, (x.shape[0], num_columns), (0,))


def _across(x: types.Array, num_rows: int) -> types.Array:
  """Returns a matrix [num_rows, n] of equal rows, from [n]."""
  return jax.lax.broadcast_in_dim(x, (num_rows, x.shape[0]), (1,))


def _slots(num_slots: int, axis: int) -> types.Array:
  """Returns the index along an axis of each element of [N, N]."""
  return jax.lax.broadcasted_iota(jnp.int32, (num_slots, num_slots), axis)
