"""Maps functions over the member axis, or squeezes an axis of size one."""

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
  """Maps a function over members; with one member, squeezes the axis instead.

  The results equal those of `jax.vmap`, but a single agent avoids the cost of a
  batch axis: under `vmap`, `lax.cond` computes both branches instead of
  skipping one, and convolutions become grouped convolutions.

  Args:
    function: a function of one member.
    num_members: N.
    in_axes: the member axis of each argument; an integer for all arguments, or
      a tuple with a prefix tree for each.
    out_axes: the member axis of the results, as a prefix tree.

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
  """Applies `function(leaf, axis)`, where `axes` is a prefix tree of `tree`."""
  return jax.tree.map(
    lambda axis, branch: jax.tree.map(
      lambda leaf: function(leaf, axis), branch
    ),
    axes,
    tree,
  )
