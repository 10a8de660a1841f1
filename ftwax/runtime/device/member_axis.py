"""The axis of members, mapped over or, where it has size one, squeezed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def over_members(
  function: Callable[..., Any],
  num_members: int,
  in_axes: Any = 0,
  out_axes: Any = 0,
) -> Callable[..., Any]:
  """Maps a function over members; a single one is squeezed instead.

  The results are those of `jax.vmap`. Without a batch axis a single agent
  keeps what batching takes away: `lax.cond` skips a branch rather than
  computes both, and convolutions have one kernel rather than a group each.

  Args:
    function: of one member.
    num_members: N.
    in_axes: the axis of members in each argument; an integer for all, or a
      tuple with a prefix of each argument.
    out_axes: that in each result, a prefix of the results.

  Returns:
    The function of all members.
  """
  if num_members > 1:
    return jax.vmap(function, in_axes, out_axes)

  def call(*args: Any) -> Any:
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
    return _map_axes(
      jnp.expand_dims, out_axes, function(*_map_axes(jnp.squeeze, axes, args))
    )

  return call


def _map_axes(
  function: Callable[[jax.Array, int], jax.Array], axes: Any, tree: Any
) -> Any:
  """Applies `function(leaf, axis)`, with a prefix of axes."""
  return jax.tree.map(
    lambda axis, branch: jax.tree.map(
      lambda leaf: function(leaf, axis), branch
    ),
    axes,
    tree,
  )
