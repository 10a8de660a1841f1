"""One way to refuse bad input, inside and outside `jit`.

Values that can be read (outside `jit`) are checked on the host and raise a
`ValueError`. Under `jit` they cannot be read: then every function of this room
has a documented result for bad input, and, where asked for, it also emits a
check for `jax.experimental.checkify`, with the same message. Emitting is asked
for since an emitted check, even one that nobody reads, takes JAX's fast path
of dispatch away (some 50 us a call).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from ftwax import types


def is_concrete(*arrays: Any) -> bool:
  """Returns whether the values of `arrays` can be read now."""
  return not any(
    isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arrays)
  )


def check(
  emit: bool, predicate: types.Array, message: str, **values: Any
) -> None:
  """Refuses unless all of `predicate` is true.

  Args:
    emit: whether to emit a check for `checkify` where values cannot be read.
    predicate: bool [...].
    message: with a field `{name}` for each of `values`.
    **values: scalars that the message tells.

  Raises:
    ValueError: outside `jit`, if any of `predicate` is false.
  """
  if is_concrete(predicate, values):
    if not np.all(np.asarray(predicate)):
      texts = {name: np.asarray(value)[()] for name, value in values.items()}
      raise ValueError(message.format(**texts))
  elif emit:
    checkify.debug_check(
      jnp.all(predicate),
      message,
      **{name: jnp.asarray(value) for name, value in values.items()},
    )


def check_batch(data: types.ArrayTree, batch: types.ArrayTree) -> None:
  """Refuses a batch whose structure, shapes or dtypes are not those of `data`.

  Args:
    data: leaves [num_environments, max_length, ...].
    batch: leaves [T, K, ...].

  Raises:
    ValueError: naming the first leaf that differs.
  """
  expected: Any = jax.tree.structure(data)
  given: Any = jax.tree.structure(batch)
  if expected != given:
    raise ValueError(
      f'batch must have the structure that the replay was made for'
      f' ({expected}), got {given}; give the spec of what you add.'
    )
  prefix = jax.tree.leaves(batch)[0].shape[:2]
  for (path, stored), leaf in zip(
    jax.tree.leaves_with_path(data), jax.tree.leaves(batch), strict=True
  ):
    name = f'batch{jax.tree_util.keystr(path)}'
    shape = (*prefix, *stored.shape[2:])
    if leaf.shape != shape:
      raise ValueError(
        f'{name} must have shape {shape}, [time, environments, ...], got'
        f' {leaf.shape}; add() takes one step and add_sequence() several.'
      )
    if leaf.dtype != stored.dtype:
      raise ValueError(
        f'{name} must have dtype {stored.dtype}, got {leaf.dtype}; cast it, or'
        ' make the replay for the dtype you add.'
      )
