"""The policy's distribution over actions, discrete or of discrete parts.

An action is an int32 array [...] or a tuple or dict of such; its logits have
the same structure with an axis of choices added, [..., num_actions]. Parts are
independent given the logits (Jaderberg et al., 2019, supplement: the joint
policy is the outer product of its parts), so that log-probabilities, entropies
and divergences add up over them.
"""

import functools
import operator
from typing import Any

import dm_env
import jax
import jax.numpy as jnp

from ftwax import types

# Added to the logit of a forbidden action: its probability is exactly zero in
# float32, while entropies and gradients stay finite.
_FORBIDDEN = -1e9


def check_action_spec(action_spec: types.SpecTree) -> None:
  """Raises a ValueError unless each part of the action is a discrete scalar."""
  leaves = jax.tree.leaves_with_path(action_spec)
  if not leaves:
    raise ValueError(
      f'action_spec ({action_spec!r}) must have at least one part; give the'
      ' environment a discrete action.'
    )
  for path, leaf in leaves:
    if not isinstance(leaf, dm_env.specs.DiscreteArray):
      raise ValueError(
        f'action_spec{jax.tree_util.keystr(path)} ({leaf!r}) must be a'
        ' dm_env.specs.DiscreteArray, or a tuple or dict of such; wrap the'
        ' environment so that its actions are discrete.'
      )


def num_actions(action_spec: types.SpecTree) -> Any:
  """Returns the number of choices of each part, in the action's structure."""
  return jax.tree.map(lambda leaf: int(leaf.num_values), action_spec)


def mask_logits(
  logits: types.ArrayTree, action_mask: types.ArrayTree
) -> types.ArrayTree:
  """Forbids the actions whose entry in `action_mask` is zero.

  Args:
    logits: [..., num_actions] for each part.
    action_mask: any dtype, same structure and shapes, non-zero where allowed.

  Returns:
    Logits in which forbidden actions have probability zero.
  """
  return jax.tree.map(
    lambda logit, mask: jnp.where(mask.astype(bool), logit, _FORBIDDEN),
    logits,
    action_mask,
  )


def sample(key: types.Key, logits: types.ArrayTree) -> types.ArrayTree:
  """Draws an int32 action [...] for each part."""
  leaves, structure = jax.tree.flatten(logits)
  keys = jax.random.split(key, len(leaves))
  actions = [
    jax.random.categorical(part_key, leaf).astype(jnp.int32)
    for part_key, leaf in zip(keys, leaves, strict=True)
  ]
  return jax.tree.unflatten(structure, actions)


def mode(logits: types.ArrayTree) -> types.ArrayTree:
  """Returns the most probable int32 action [...] of each part."""
  return jax.tree.map(
    lambda leaf: jnp.argmax(leaf, axis=-1).astype(jnp.int32), logits
  )


def _sum_over_parts(parts: Any) -> types.Array:
  return functools.reduce(operator.add, jax.tree.leaves(parts))


def log_prob(logits: types.ArrayTree, action: types.ArrayTree) -> types.Array:
  """Returns the log-probability [...] of `action`, summed over its parts.

  `types.NO_ACTION` gets that of the first choice; mask such steps out.
  """

  def part_log_prob(part_logits, part_action):
    log_probs = jax.nn.log_softmax(part_logits)
    index = jnp.maximum(part_action, 0)[..., None]
    return jnp.take_along_axis(log_probs, index, axis=-1)[..., 0]

  return _sum_over_parts(jax.tree.map(part_log_prob, logits, action))


def entropy(logits: types.ArrayTree) -> types.Array:
  """Returns the entropy [...] in nats, summed over parts."""

  def part_entropy(part_logits):
    log_probs = jax.nn.log_softmax(part_logits)
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

  return _sum_over_parts(jax.tree.map(part_entropy, logits))


def kl_divergence(
  logits_p: types.ArrayTree, logits_q: types.ArrayTree
) -> types.Array:
  """Returns KL(p || q) [...] in nats, summed over parts."""

  def part_kl(part_p, part_q):
    log_p = jax.nn.log_softmax(part_p)
    log_q = jax.nn.log_softmax(part_q)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)

  return _sum_over_parts(jax.tree.map(part_kl, logits_p, logits_q))
