"""Compiles the call that a run repeats, and tells who waits what for."""

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
  """Compiles `function(state)`; the compiled one takes the state over.

  Args:
    function: pure; returns a state like its argument and something else.
    state: its argument or one like it; not taken over here.
    label: what is compiled, for who waits.

  Returns:
    The compiled function, whose argument may not be used again. Its state lies
    on the devices on which `state` lies.
  """
  shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
  compiled = jax.jit(
    function, donate_argnums=0, out_shardings=(shardings, None)
  )
  with _told(f'{label}: compiling'):
    return compiled.lower(state).compile()


@contextlib.contextmanager
def _told(text: str) -> Iterator[None]:
  """Shows a spinner on a terminal, and a line when it took long elsewhere."""
  if sys.stdout.isatty() and os.environ.get('TERM') != 'dumb':
    import rich.console  # Not for those who write into files.

    with rich.console.Console().status(text):
      yield
    return
  start = time.monotonic()
  yield
  print(f'{text} took {time.monotonic() - start:.1f} s', flush=True)
