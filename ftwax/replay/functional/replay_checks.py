"""Input checks, inside and outside `jit`.

Outside `jit`, values are checked on the host and raise a `ValueError`. Under
`jit` values cannot be read: every replay function documents its result for bad
input. On request it also emits a check for `jax.experimental.checkify` with the
same message. It does so only on request, since an emitted check, even if
unused, disables JAX's fast path of dispatch (about 50 us per call).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from ftwax import types


def check(
  emit: bool, predicate: types.Array, message: str, **values: Any
) -> None:
  """Checks that all of `predicate` is true.

  Args:
    emit: whether to emit a check for `checkify` where values cannot be read.
    predicate: bool [...].
    message: error message, with a field `{name}` for each of `values`.
    **values: scalars, or arrays that broadcast to `predicate`; the message
      shows the first entry that fails.

  Raises:
    ValueError: outside `jit`, if any of `predicate` is false.
  """
  is_readable = not any(
    isinstance(leaf, jax.core.Tracer)
    for leaf in jax.tree.leaves((predicate, values))
  )
  if not np.size(predicate) or (np.all(predicate) if is_readable else not emit):
    return
  xp: Any = np if is_readable else jnp
  first = xp.argmin(predicate)
  shown = {
    name: xp.broadcast_to(value, np.shape(predicate)).reshape(-1)[first]
    for name, value in values.items()
  }
  if is_readable:
    raise ValueError(message.format(**shown))
  checkify.debug_check(jnp.all(predicate), message, **shown)


def check_scalar(
  emit: bool, name: str, value: types.Array | float, highest: float = np.inf
) -> types.Array:
  """Checks that a hyperparameter is finite and in [0, highest].

  Args:
    emit: whether to emit a check for `checkify` where it cannot be read.
    name: name of the hyperparameter.
    value: value of the hyperparameter.
    highest: largest allowed value.

  Returns:
    Whether it is valid, bool [].

  Raises:
    ValueError: outside `jit`, if it is not valid.
  """
  number = jnp.asarray(value, jnp.float32)
  is_good = (number >= 0) & (number <= highest) & jnp.isfinite(number)
  bound = 'be finite and not negative'
  if highest < np.inf:
    bound = f'lie in [0, {highest:g}]'
  check(
    emit,
    is_good,
    f'{name} must {bound}, got {{value}}; give such a number.',
    value=number,
  )
  return is_good


def as_array(value: Any, name: str) -> types.Array:
  """Converts a value to a JAX array without changing its numbers.

  By default JAX holds integers in 32 bits and drops the upper ones.

  Args:
    value: an array, or anything that NumPy converts to one.
    name: name of the argument, for messages.

  Raises:
    ValueError: if a number does not fit into the dtype that JAX gives it.
  """
  if isinstance(value, jax.Array):
    return value
  given = np.asarray(value)
  dtype = jax.dtypes.canonicalize_dtype(given.dtype)
  if dtype == given.dtype:
    return jnp.asarray(given)
  with np.errstate(over='ignore'):
    kept = given.astype(dtype)
  if np.issubdtype(given.dtype, np.integer):
    fits = kept == given
  else:
    fits = np.isfinite(kept) == np.isfinite(given)
  check(
    False,
    fits,
    f'{name} must fit into {kept.dtype}, which JAX uses for {given.dtype}, got'
    f' {{value}}; scale it, or enable jax_enable_x64.',
    value=given,
  )
  return jnp.asarray(kept)


def as_batch(data: types.ArrayTree, batch: Any) -> types.ArrayTree:
  """Converts a batch to JAX arrays, checking its structure and dtypes.

  Args:
    data: leaves [num_environments, max_length, ...].
    batch: leaves that are arrays, or that NumPy converts to arrays.

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

  def convert(path: Any, stored: types.Array, leaf: Any) -> types.Array:
    name = f'batch{jax.tree_util.keystr(path)}'
    array = as_array(leaf, name)
    if array.dtype != stored.dtype:
      raise ValueError(
        f'{name} must have dtype {stored.dtype}, got {array.dtype}; cast it, or'
        ' make the replay for the dtype you add.'
      )
    return array

  return jax.tree_util.tree_map_with_path(convert, data, batch)


def check_shapes(data: types.ArrayTree, batch: types.ArrayTree) -> None:
  """Checks that the shapes of a batch match those of `data`.

  Args:
    data: leaves [num_environments, max_length, ...].
    batch: leaves [T, K, ...], of the same structure.

  Raises:
    ValueError: naming the first leaf that differs.
  """
  prefix = jax.tree.leaves(batch)[0].shape[:2]
  for (path, stored), leaf in zip(
    jax.tree.leaves_with_path(data), jax.tree.leaves(batch), strict=True
  ):
    shape = (*prefix, *stored.shape[2:])
    if leaf.shape != shape:
      raise ValueError(
        f'batch{jax.tree_util.keystr(path)} must have shape {shape}, [time,'
        f' environments, ...], got {leaf.shape}; add() takes one step and'
        ' add_sequence() several.'
      )
