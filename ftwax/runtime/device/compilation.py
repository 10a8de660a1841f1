"""Compiles the call that a run repeats, and shows that it does."""

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
    function: pure; returns a state like its argument, and something else.
    state: an argument, or one of the same shapes; not donated here.
    label: name of the run, shown while the user waits.

  Returns:
    The compiled function, whose argument may not be used again. The state that
    it returns has the shardings of `state`.
  """
  shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
  compiled = jax.jit(
    function, donate_argnums=0, out_shardings=(shardings, None)
  )
  with _shown(f'{label}: compiling'):
    return compiled.lower(state).compile()


@contextlib.contextmanager
def _shown(text: str) -> Iterator[None]:
  """Shows a spinner on a terminal, or prints the seconds that it took."""
  if sys.stdout.isatty() and os.environ.get('TERM') != 'dumb':
    import rich.console  # Loaded only where it is used.

    with rich.console.Console().status(text):
      yield
    return
  start = time.monotonic()
  yield
  print(f'{text} took {time.monotonic() - start:.1f} s', flush=True)
