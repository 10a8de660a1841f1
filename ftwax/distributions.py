"""The policy's distribution over actions with one or several parts.

A discrete part is an int32 array [...], and its distribution an array of logits
[..., num_actions]. A continuous part is a float32 array [..., n], and its
distribution a `continuous.Normal` or a `continuous.Dirichlet`. An action is a
part or a tuple or dict of parts; the distributions of its parts, in the same
structure, are called logits.

Parts are independent given the logits (Jaderberg et al., 2019, supplement: the
joint policy is the outer product of its parts), so that log-probabilities,
entropies and KL divergences are sums over parts.

The functions of discrete parts do not use rlax's, which rlax plans to
deprecate. With rlax's entropy, value and gradient of A2C's loss take 1.1 to 1.2
times as long; with its log-probability, the same time. Its KL divergence takes
1.4 to 1.6 times as long.
"""

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import continuous, shapes, types

# Logit of a forbidden action: its probability is exactly zero in float32, while
# entropies and gradients stay finite.
_FORBIDDEN = -1e9


def check_action_spec(action_spec: types.SpecTree) -> None:
  """Raises a ValueError unless all parts are discrete scalars or vectors."""
  leaves = jax.tree.leaves_with_path(action_spec)
  if not leaves:
    raise ValueError(
      f'action_spec ({action_spec!r}) must have at least one part; give the'
      ' environment an action.'
    )
  for path, leaf in leaves:
    if num_choices(leaf) is None and not continuous.is_spec(leaf):
      raise ValueError(
        f'action_spec{jax.tree_util.keystr(path)} ({leaf!r}) must be a'
        ' dm_env.specs.DiscreteArray, or an array of floats with one axis; wrap'
        ' the environment to convert its actions.'
      )


def num_choices(part: Any) -> int | None:
  """Returns the number of choices of a part; None if it is continuous.

  Args:
    part: spec of the part, or the number itself.
  """
  if isinstance(part, dm_env.specs.DiscreteArray):
    return int(part.num_values)
  return part if isinstance(part, int) else None


def num_actions(action_spec: types.SpecTree) -> Any:
  """Returns the number of choices of each part, in the action's structure.

  Raises:
    ValueError: if a part is continuous.
  """

  def of_part(path: tuple[Any, ...], leaf: Any) -> int:
    choices = num_choices(leaf)
    if choices is None:
      raise ValueError(
        f'action_spec{jax.tree_util.keystr(path)} ({leaf!r}) must be discrete'
        ' for action values; turn these off, or wrap the environment.'
      )
    return choices

  return jax.tree_util.tree_map_with_path(of_part, action_spec)


def zero_logits(
  action_spec: types.SpecTree, prefix: tuple[int, ...]
) -> types.ArrayTree:
  """Returns logits of zero, NumPy arrays [*prefix, ...]."""

  def of_part(leaf: Any) -> Any:
    choices = num_choices(leaf)
    if choices is None:
      return continuous.make_zero(leaf, prefix)
    return np.zeros((*prefix, choices), np.float32)

  return jax.tree.map(of_part, action_spec)


def no_action(
  action_spec: types.SpecTree, prefix: tuple[int, ...]
) -> types.ArrayTree:
  """Returns the code for no action, NumPy arrays [*prefix, ...]."""

  def of_part(leaf: Any) -> Any:
    if num_choices(leaf) is None:
      return np.zeros((*prefix, *leaf.shape), np.float32)
    return np.full(prefix, types.NO_ACTION, np.int32)

  return jax.tree.map(of_part, action_spec)


def none_of(part: Any) -> int | float:
  """Returns the value of the entries of `part` that encodes no action."""
  return types.NO_ACTION if np.issubdtype(part.dtype, np.integer) else 0.0


def to_environment(
  action_spec: types.SpecTree, action: types.ArrayTree
) -> types.ArrayTree:
  """Converts a sampled action to the one that the environment receives.

  Args:
    action_spec: action spec of the environment.
    action: as sampled, [...] or [..., n] for each part.

  Returns:
    Discrete parts and points on a simplex unchanged, other vectors within the
    bounds of their spec; see `continuous.to_environment`.
  """

  def of_part(leaf: Any, part: types.Array) -> types.Array:
    if num_choices(leaf) is None:
      return continuous.to_environment(leaf, part)
    return part

  return jax.tree.map(of_part, action_spec, action)


def from_environment(
  action_spec: types.SpecTree, action: types.ArrayTree
) -> types.ArrayTree:
  """Returns an action that `to_environment` maps to `action`.

  Args:
    action_spec: action spec of the environment.
    action: the environment's action, [...] or [..., n] for each part.

  Returns:
    int32 [...] or float32 [..., n] for each part.
  """

  def of_part(leaf: Any, part: Any) -> Any:
    if num_choices(leaf) is None:
      return continuous.from_environment(leaf, part)
    return part.astype(jnp.int32)

  return jax.tree.map(of_part, action_spec, action)


def split_mask(parts: types.ArrayTree, action_mask: Any) -> list[Any]:
  """Returns the mask of each part, in the order of the leaves of `parts`.

  A mask has the action's structure and belongs to discrete parts: continuous
  ones have none, or None. Discrete parts that a dict leaves out may take all of
  their choices. A single array may stand for all discrete parts below it: flat,
  one after another, or as rows of the largest number of choices.

  Args:
    parts: number of choices of each part, 0 if it is continuous, in the
      action's structure; see `part_sizes`.
    action_mask: arrays [..., n] of NumPy or JAX, nonzero where allowed.

  Returns:
    For each part an array [..., num_choices], or None.

  Raises:
    ValueError: if the mask does not fit the parts.
  """
  try:
    return _split_mask(parts, action_mask)
  except _MismatchError:
    shapes = jax.tree.map(np.shape, action_mask)
    sizes = jax.tree.map(lambda size: (size,) if size else None, parts)
    total = sum(jax.tree.leaves(parts))
    raise ValueError(
      f'The shapes of {types.ACTION_MASK!r} ({shapes}) must be those of the'
      f' logits of discrete parts, {sizes}; give one entry for each choice, in'
      ' the structure of the action (tuples, dicts), or in one flat array of'
      f' {total}.'
    ) from None


class _MismatchError(Exception):
  """A mask does not fit the parts of an action."""


def _split_mask(parts: Any, mask: Any) -> list[Any]:
  sizes = jax.tree.leaves(parts)
  if mask is None:
    return [None] * len(sizes)
  if isinstance(mask, Mapping):
    if not isinstance(parts, Mapping) or not mask.keys() <= parts.keys():
      raise _MismatchError
    # In the order of leaves.
    own = [_split_mask(parts[key], mask.get(key)) for key in sorted(parts)]
    return [part for below in own for part in below]
  if isinstance(mask, tuple | list):
    if not isinstance(parts, tuple | list):
      raise _MismatchError
    masks: list[Any] = list(mask)
    if len(masks) < len(parts):  # Continuous parts are left out.
      rest = iter(masks)
      is_discrete = [any(jax.tree.leaves(part)) for part in parts]
      if sum(is_discrete) != len(masks):
        raise _MismatchError
      masks = [next(rest) if discrete else None for discrete in is_discrete]
    if len(masks) != len(parts):
      raise _MismatchError
    own = [_split_mask(*pair) for pair in zip(parts, masks, strict=True)]
    return [part for below in own for part in below]
  return _split_array([int(size) for size in sizes], mask)


def _split_array(sizes: Sequence[int], mask: Any) -> list[Any]:
  """Splits an array that is the mask of all parts below a node."""
  shape = np.shape(mask)
  discrete = [size for size in sizes if size]
  if not shape or not discrete:
    raise _MismatchError
  if shape[-1] == sum(discrete):
    ends = np.cumsum(discrete).tolist()
    own = [
      mask[..., end - size : end]
      for size, end in zip(discrete, ends, strict=True)
    ]
  elif len(shape) > 1 and shape[-2:] == (len(discrete), max(discrete)):
    own = [mask[..., row, :size] for row, size in enumerate(discrete)]
  else:
    raise _MismatchError
  rest = iter(own)
  return [next(rest) if size else None for size in sizes]


def part_sizes(action_spec: types.SpecTree) -> Any:
  """Returns the number of choices of each part, 0 for a continuous one."""
  return jax.tree.map(lambda leaf: num_choices(leaf) or 0, action_spec)


def count_choices(action_spec: types.SpecTree) -> list[int]:
  """Returns the number of choices of each discrete part, in order."""
  sizes: list[int] = jax.tree.leaves(part_sizes(action_spec))
  return [size for size in sizes if size]


def join_mask(parts: types.ArrayTree, action_mask: Any) -> types.NumpyArray:
  """Returns a mask as one flat array, int8 [..., num_choices of all parts].

  Parts without a mask may take all choices; see `split_mask`.
  """
  own = split_mask(parts, action_mask)
  found = [np.asarray(part) for part in own if part is not None]
  prefix = found[0].shape[:-1] if found else ()
  return np.concatenate(
    [
      np.ones((*prefix, size), np.int8)
      if part is None
      else np.asarray(part, bool).astype(np.int8)
      for size, part in zip(jax.tree.leaves(parts), own, strict=True)
      if size
    ],
    axis=-1,
  )


def has_choices(action_spec: types.SpecTree, action_mask: Any) -> Any:
  """Returns whether a mask allows a choice in each part, bool [...]."""
  own = split_mask(part_sizes(action_spec), action_mask)
  allowed = [(part != 0).any(axis=-1) for part in own if part is not None]
  return functools.reduce(operator.and_, allowed, np.bool_(True))


def is_allowed(
  action_spec: types.SpecTree, action: types.ArrayTree, action_mask: Any
) -> Any:
  """Returns whether a mask allows an action, bool [...] of NumPy.

  Args:
    action_spec: spec of the action.
    action: int32 [...] or float32 [..., n] for each part.
    action_mask: see `split_mask`; None allows all actions.
  """
  leaves = jax.tree.leaves(action)
  allowed = np.ones(leaves[0].shape[: _num_axes(action_spec, leaves)], bool)
  if action_mask is None:
    return allowed
  masks = split_mask(part_sizes(action_spec), action_mask)
  for mask, part in zip(masks, leaves, strict=True):
    if mask is not None:
      index = np.maximum(part, 0)[..., None]
      allowed &= np.take_along_axis(mask, index, axis=-1)[..., 0] != 0
  return allowed


def _num_axes(action_spec: types.SpecTree, leaves: Any) -> int:
  """Returns the number of axes before those of an action."""
  shape: Any = jax.tree.leaves(action_spec)[0].shape
  return leaves[0].ndim - len(shape)


def mask_logits(
  logits: types.ArrayTree, action_mask: types.ArrayTree
) -> types.ArrayTree:
  """Forbids the actions whose entry in `action_mask` is zero.

  Args:
    logits: [..., num_actions], or a continuous distribution, for each part.
    action_mask: a mask of discrete parts; see `split_mask`. Any dtype.

  Returns:
    Logits in which forbidden actions have probability zero.
  """
  leaves, structure = jax.tree.flatten(logits, is_leaf=continuous.is_part)
  sizes = [0 if continuous.is_part(leaf) else leaf.shape[-1] for leaf in leaves]
  masks = split_mask(jax.tree.unflatten(structure, sizes), action_mask)
  masked = [
    leaf if mask is None else jnp.where(mask.astype(bool), leaf, _FORBIDDEN)
    for leaf, mask in zip(leaves, masks, strict=True)
  ]
  return jax.tree.unflatten(structure, masked)


# Maps over parts, treating a continuous distribution as a leaf.
_map_parts = functools.partial(jax.tree.map, is_leaf=continuous.is_part)


def sample(key: types.Key, logits: types.ArrayTree) -> types.ArrayTree:
  """Samples an action: int32 [...] or float32 [..., n] for each part."""
  leaves, structure = jax.tree.flatten(logits, is_leaf=continuous.is_part)
  keys = jax.random.split(key, len(leaves))
  # One draw for all: on a CPU each takes a loop, which takes long to compile.
  sizes = [0 if continuous.is_part(leaf) else leaf.size for leaf in leaves]
  noise = jax.vmap(lambda key: jax.random.gumbel(key, (max(sizes),)))(keys)

  def sample_part(key: types.Key, noise: types.Array, part: Any) -> types.Array:
    if continuous.is_part(part):
      return part.sample(key)
    perturbed = part + noise[: part.size].reshape(part.shape)
    return perturbed.argmax(-1).astype(jnp.int32)

  actions = map(sample_part, keys, noise, leaves)
  return jax.tree.unflatten(structure, actions)


def uniform_over_allowed(logits: types.ArrayTree) -> types.ArrayTree:
  """Returns logits of zero for all actions that are not forbidden.

  Args:
    logits: [..., num_actions] for each part, all discrete; see `mask_logits`.
  """
  return jax.tree.map(
    lambda part: jnp.where(part > 0.5 * _FORBIDDEN, 0.0, part), logits
  )


def mode(logits: types.ArrayTree) -> types.ArrayTree:
  """Returns the mode of each part, int32 [...] or float32 [..., n]."""

  def part_mode(part: Any) -> types.Array:
    if continuous.is_part(part):
      return part.mode()
    return jnp.argmax(part, axis=-1).astype(jnp.int32)

  return _map_parts(part_mode, logits)


def _sum_over_parts(parts: Any) -> types.Array:
  return functools.reduce(operator.add, jax.tree.leaves(parts))


def log_prob(logits: types.ArrayTree, action: types.ArrayTree) -> types.Array:
  """Returns the log-probability [...] of `action`, summed over its parts.

  For continuous parts it is the log-density. `types.NO_ACTION` is treated as
  the first choice; such steps must be masked.

  Args:
    logits: [..., num_actions], or a continuous distribution, for each part.
    action: int32 [...] or float32 [..., n] for each part.

  Raises:
    ValueError: if the axes of a part's logits and action do not agree.
  """

  def part_log_prob(part: Any, part_action: types.Array) -> types.Array:
    if continuous.is_part(part):
      return part.log_prob(part_action)
    shapes.check(
      'log_prob', logits=(part, '... _'), action=(part_action, '...')
    )
    log_probs = jax.nn.log_softmax(part)
    # A one-hot sum instead of a gather, whose gradient is slow.
    is_taken = jax.nn.one_hot(
      jnp.maximum(part_action, 0), part.shape[-1], dtype=bool
    )
    return jnp.sum(jnp.where(is_taken, log_probs, 0.0), axis=-1)

  return _sum_over_parts(_map_parts(part_log_prob, logits, action))


def entropy(logits: types.ArrayTree) -> types.Array:
  """Returns the entropy [...] in nats, summed over parts.

  For continuous parts it is the differential entropy, which may be negative.
  """

  def part_entropy(part: Any) -> types.Array:
    if continuous.is_part(part):
      return part.entropy()
    log_probs = jax.nn.log_softmax(part)
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

  return _sum_over_parts(_map_parts(part_entropy, logits))


def kl_divergence(
  logits_p: types.ArrayTree, logits_q: types.ArrayTree
) -> types.Array:
  """Returns KL(p || q) [...] in nats, summed over parts.

  Raises:
    ValueError: if the two differ in shape.
  """

  def part_kl(part_p: Any, part_q: Any) -> types.Array:
    if continuous.is_part(part_p):
      return part_p.kl_divergence(part_q)
    shapes.check(
      'kl_divergence', logits_p=(part_p, '...'), logits_q=(part_q, '...')
    )
    log_p = jax.nn.log_softmax(part_p)
    log_q = jax.nn.log_softmax(part_q)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)

  return _sum_over_parts(_map_parts(part_kl, logits_p, logits_q))
