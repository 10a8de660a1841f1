"""Forms of rollouts: streams padded to a length, and single steps.

The agents of this library need neither, since their streams run across ends of
episodes and all have one length. They are for streams that come from elsewhere
and for learners without memory, which may shuffle steps.
"""

import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.losses import policy_loss


def pad(
  transitions: policy_loss.Transitions, length: int
) -> policy_loss.Transitions:
  """Appends steps without an action, so that all losses of them are zero.

  Args:
    transitions: leaves [T, ...], of one stream.
    length: at least T.

  Returns:
    Leaves [length, ...], zero behind T.

  Raises:
    ValueError: if the stream is longer than that.
  """
  num_steps = transitions.r_t.shape[0]
  if num_steps > length:
    raise ValueError(
      f'length ({length}) must be at least that of the stream ({num_steps});'
      ' cut the stream into several.'
    )

  def pad_leaf(leaf: types.Array) -> types.Array:
    widths = [(0, length - num_steps)] + [(0, 0)] * (leaf.ndim - 1)
    return jnp.pad(leaf, widths)

  padded: policy_loss.Transitions = jax.tree.map(pad_leaf, transitions)
  return padded


def flatten(tree: types.ArrayTree) -> types.ArrayTree:
  """Merges time and batch, leaves [T, B, ...] to [T * B, ...].

  What looks ahead, such as advantages, must have been computed before: give
  `Transitions` with targets.
  """
  return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)
