"""A scan that stacks and carries few arrays.

On an accelerator each array that a step of a loop stacks or carries is a launch
of a kernel or a copy, which takes longer than what it moves. There a packed
scan has one vector of all 4-byte numbers and one of each other dtype.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ftwax import import_guard, trees, types


def counts_launches() -> bool:
  """Returns whether few kernels matter more than few operations.

  Not on CPUs: packing costs acting 5% there, `unrolling` costs an LSTM 28%, and
  unrolled returns take up to twice as long. Not with several devices either:
  one vector would gather the rows that are split over them.
  """
  return jax.default_backend() != 'cpu' and jax.device_count() == 1


def has_kernels() -> bool:
  """Returns whether kernels of Pallas run here, by its Triton back end.

  JAX has announced that this back end will go; then there are none.
  """
  return (
    counts_launches()
    and jax.devices()[0].device_kind.startswith('NVIDIA')
    and import_guard.is_installed('jax.experimental.pallas.triton')
  )


def num_operations(function: Callable[..., Any], *args: Any) -> int:
  """Returns the number of operations, those of inner functions included."""
  return str(jax.make_jaxpr(function)(*args)).count(' = ')  # A line each.


def scan(
  step: Callable[[Any, Any], tuple[Any, Any]],
  carry: Any,
  xs: Any = None,
  length: int | None = None,
  reverse: bool = False,
  in_blocks: bool = False,
) -> tuple[Any, Any]:
  """Does what `jax.lax.scan` does, to the bit, packed where that is faster.

  With `in_blocks`, a few small steps are one of the loop there: they are
  compiled one by one, and a single kernel stacks their outputs.
  """
  if not counts_launches():
    return jax.lax.scan(step, carry, xs, length=length, reverse=reverse)
  num_steps, size = length or jax.tree.leaves(xs)[0].shape[0], 1
  # Large steps would take long to compile, for few kernels less.
  if in_blocks and num_operations(step, carry, trees.take(xs, 0)) <= 1_500:
    size = max(n for n in range(1, 6) if num_steps % n == 0)
  order = -1 if reverse else 1
  carried, unpack = pack(carry)
  unpack_output: Any = None

  def do_block(carried: Any, block: Any) -> tuple[Any, Any]:
    nonlocal unpack_output  # The same at each step, and only known when traced.
    carry, rows = unpack(carried), []
    for i in range(size)[::order]:
      carry, output = step(carry, trees.take(block, i))
      packed, unpack_output = pack(output)
      rows.append(packed)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows[::order])
    return pack(carry)[0], stacked

  blocks = jax.tree.map(  # Without -1, since a leaf may be empty.
    lambda leaf: leaf.reshape(num_steps // size, size, *leaf.shape[1:]), xs
  )
  carried, stacked = jax.lax.scan(
    do_block, carried, blocks, length=num_steps // size, reverse=reverse
  )
  stacked = jax.tree.map(
    lambda leaf: leaf.reshape(num_steps, *leaf.shape[2:]), stacked
  )
  return unpack(carried), unpack_output(stacked)


def while_loop(
  is_on: Callable[[Any], types.Array], step: Callable[[Any], Any], carry: Any
) -> Any:
  """Does what `jax.lax.while_loop` does, packed where that is faster."""
  if not counts_launches():
    return jax.lax.while_loop(is_on, step, carry)
  packed, unpack = pack(carry)
  return unpack(
    jax.lax.while_loop(
      lambda packed: is_on(unpack(packed)),
      lambda packed: pack(step(unpack(packed)))[0],
      packed,
    )
  )


def pack(tree: Any) -> tuple[dict[str, types.Array], Callable[[Any], Any]]:
  """Joins leaves to one vector of all 4-byte numbers and one a dtype of others.

  It has no gradient, since numbers are joined as bits.

  Returns:
    The vectors by dtype; and the function from them to the tree, which also
    takes many of them, [..., n].
  """
  leaves, structure = jax.tree.flatten(tree)
  shapes = [jnp.shape(leaf) for leaf in leaves]
  dtypes = [jnp.result_type(leaf) for leaf in leaves]
  groups: dict[str, list[int]] = {}
  for index, dtype in enumerate(dtypes):
    is_word = dtype.itemsize == 4 or dtype.kind == 'b'
    groups.setdefault('uint32' if is_word else dtype.name, []).append(index)
  packed = {
    name: jnp.concatenate([_as(name, leaves[i]).ravel() for i in members])
    for name, members in groups.items()
  }

  def unpack(packed: dict[str, types.Array]) -> Any:
    parts: dict[int, types.Array] = {}
    for name, members in groups.items():
      sizes = [math.prod(shapes[i]) for i in members]
      ends = list(itertools.accumulate(sizes))[:-1]
      rows = jnp.split(packed[name], ends, axis=-1)
      for i, row in zip(members, rows, strict=True):
        parts[i] = _as(dtypes[i], row).reshape(*row.shape[:-1], *shapes[i])
    return jax.tree.unflatten(structure, [parts[i] for i in range(len(leaves))])

  return packed, unpack


def _as(dtype: Any, leaf: Any) -> types.Array:
  """Returns the same bits as another dtype, or booleans as numbers."""
  leaf = jnp.asarray(leaf)
  if bool in (leaf.dtype, dtype):
    return leaf.astype(dtype)
  return jax.lax.bitcast_convert_type(leaf, dtype)
