"""Compilation of functions that run a few times only."""

from collections.abc import Callable
from typing import Any

import jax


def jit_unoptimized(
  function: Callable[..., Any], **options: Any
) -> Callable[..., Any]:
  """Returns `jax.jit(function, **options)` that compiles fast and runs slowly.

  Random initialization and resets are large programs that run once or once in
  a round. On CPUs optimizing them takes four times as long as compiling them
  without.
  """
  return jax.jit(
    function,
    compiler_options={'xla_backend_optimization_level': 0},
    **options,
  )
