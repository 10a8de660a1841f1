"""Functions of Haiku and JAX that are not annotated there, with types."""

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax

from ftwax import types

# `(function, carry, inputs) -> (carry, outputs)`; carries Haiku's state along.
scan: Callable[..., tuple[Any, Any]] = hk.scan

# Merges the axes of time and batch around a function of [B, ...].
batch_apply: Callable[[Callable[..., Any]], Callable[..., Any]] = hk.BatchApply

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
