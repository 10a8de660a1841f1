"""Compilation of functions that run a few times only; tells what takes time."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

_LEVEL = 'xla_backend_optimization_level'


def jit_unoptimized(
  function: Callable[..., Any], **options: Any
) -> jax.stages.Wrapped:
  """Returns `jax.jit(function, **options)` that compiles fast and runs slowly.

  Random initialization and resets are large programs that run once or once in
  a round. On CPUs optimizing them takes four times as long as compiling them
  without.
  """
  return _jit_at_level(0, function, options)


def jit_less_optimized(
  function: Callable[..., Any], **options: Any
) -> jax.stages.Wrapped:
  """Returns `jax.jit(function, **options)` for what runs for seconds only.

  On a CPU, playing capture the flag compiles in 0.6 of the time so, and runs a
  tenth slower; not optimized at all, it would run six times slower.
  """
  return _jit_at_level(1, function, options)


def _jit_at_level(
  level: int, function: Callable[..., Any], options: dict[str, Any]
) -> jax.stages.Wrapped:
  """Returns a compiled function; XLA_FLAGS may ask for another level."""
  if _LEVEL in os.environ.get('XLA_FLAGS', ''):
    return jax.jit(function, **options)
  return jax.jit(function, compiler_options={_LEVEL: level}, **options)


@contextlib.contextmanager
def shown(text: str) -> Iterator[None]:
  """Shows a spinner on a terminal; elsewhere prints the elapsed seconds."""
  if sys.stdout.isatty() and os.environ.get('TERM') != 'dumb':
    import rich.console  # Loaded only where it is used.

    with rich.console.Console().status(text):
      yield
    return
  start = time.monotonic()
  yield
  print(f'{text} took {time.monotonic() - start:.1f} s', flush=True)
