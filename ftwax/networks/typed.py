"""Typed versions of Haiku and JAX functions that lack annotations."""

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types

# `(function, carry, inputs) -> (carry, outputs)`; also carries Haiku's state.
scan: Callable[..., tuple[Any, Any]] = hk.scan

variance_scaling: Callable[..., hk.initializers.Initializer] = (
  hk.initializers.VarianceScaling
)
random_uniform: Callable[..., hk.initializers.Initializer] = (
  hk.initializers.RandomUniform
)

optimization_barrier: Callable[[types.Array], types.Array] = (
  jax.lax.optimization_barrier
)
padtype_to_pads: Callable[..., list[tuple[int, int]]] = jax.lax.padtype_to_pads


def batch_apply(function: Callable[..., Any]) -> Callable[..., Any]:
  """Merges the time and batch axes around a function of [B, ...].

  The batch comes first in the merged axis. With time first, XLA would gather a
  batch that is sharded over devices on all of them, since no contiguous part of
  the merged axis would belong to one device.

  Args:
    function: a function between arrays [B * T, ...].

  Returns:
    A function between arrays [T, B, ...].
  """
  apply: Callable[..., Any] = hk.BatchApply(function)  # type: ignore[no-untyped-call]
  return lambda *args: _swap(apply(*_swap(args)))


def _swap(tree: Any) -> Any:
  return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), tree)
