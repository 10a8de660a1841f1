"""Compiles the function that a run calls repeatedly, and reports progress."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax


def compile_call(
  function: Callable[[Any], Any], state: Any, label: str
) -> Callable[[Any], Any]:
  """Compiles `function(state)` ahead of time, with the state donated.

  Args:
    function: a pure function that returns a new state, with the same structure
      and shapes as its argument, and a second value.
    state: an example argument, which is not donated here.
    label: name of the run, shown while it compiles.

  Returns:
    The compiled function. It donates its argument, which must not be used
    afterwards, and returns a state with the shardings of `state`.
  """
  # A donated buffer can be reused only if the output has its sharding, and the
  # next call accepts only the shardings it was compiled for.
  shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
  compiled = jax.jit(
    function, donate_argnums=0, out_shardings=(shardings, None)
  )
  with _shown(f'{label}: compiling'):
    return compiled.lower(state).compile()


@contextlib.contextmanager
def _shown(text: str) -> Iterator[None]:
  """Shows a spinner on a terminal; elsewhere prints the elapsed seconds."""
  if sys.stdout.isatty() and os.environ.get('TERM') != 'dumb':
    import rich.console  # Loaded only where it is used.

    with rich.console.Console().status(text):
      yield
    return
  start = time.monotonic()
  yield
  print(f'{text} took {time.monotonic() - start:.1f} s', flush=True)
