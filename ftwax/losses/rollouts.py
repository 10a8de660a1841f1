"""Conversions of rollouts: streams padded to a length, and single steps.

The agents of this library need neither, since their streams cross episode
boundaries and all have the same length. They are for streams from other sources
and for learners without memory, which may shuffle steps.
"""

import jax
import jax.numpy as jnp

from ftwax import shapes, types
from ftwax.losses import policy_loss


def pad(
  transitions: policy_loss.Transitions, length: int
) -> policy_loss.Transitions:
  """Pads a stream with masked steps, on which all losses are zero.

  Args:
    transitions: leaves [T, ...], of one stream.
    length: at least T.

  Returns:
    Leaves [length, ...], zero from T on.

  Raises:
    ValueError: if the stream is longer than `length`, or its leaves differ in
      their first axis.
  """
  num_steps = transitions.r_t.shape[0]
  if num_steps > length:
    raise ValueError(
      f'length ({length}) must be at least that of the stream ({num_steps});'
      ' cut the stream into several.'
    )
  shapes.check_leaves('pad', 'transitions', transitions, (num_steps,))

  def pad_leaf(leaf: types.Array) -> types.Array:
    widths = [(0, length - num_steps)] + [(0, 0)] * (leaf.ndim - 1)
    return jnp.pad(leaf, widths)

  return jax.tree.map(pad_leaf, transitions)


def flatten(tree: types.ArrayTree) -> types.ArrayTree:
  """Merges time and batch axes, leaves [T, B, ...] to [T * B, ...].

  Anything that depends on later steps, such as advantages, must be computed
  first: set `Transitions.targets` before flattening.

  Raises:
    ValueError: if leaves differ in their first two axes.
  """
  prefix = jax.tree.leaves(tree)[0].shape[:2]
  shapes.check_leaves('flatten', 'tree', tree, prefix)
  return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)
