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
    function: pure.
    state: its argument or one of the same shapes; not taken over here.
    label: what is compiled, for who waits.

  Returns:
    The compiled function, whose argument may not be used again.
  """
  with _told(f'{label}: compiling'):
    return jax.jit(function, donate_argnums=0).lower(state).compile()


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
