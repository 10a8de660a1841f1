"""Imports rlax when a loss is first computed.

rlax loads TensorFlow Probability, which takes 2 seconds and 40 MB. Neither
`import ftwax` nor actors, which compute no loss, pay for it.
"""

import contextlib
import functools
import sys
import threading
import types
from collections.abc import Iterator

import jax

_lock = threading.Lock()


@functools.cache
def load() -> types.ModuleType:
  """Returns rlax, imported on the first call.

  It can be called inside a JAX transformation, before or after TensorFlow and
  Reverb are imported.

  Raises:
    ImportError: if rlax cannot be imported.
  """
  # Modules create arrays at import; these must not be tracers of the caller.
  with _lock, jax.ensure_compile_time_eval(), _hidden_tensorflow():
    try:
      import rlax
    except ImportError as error:
      raise ImportError(
        f'Losses need rlax, which cannot be imported: {error} Install the'
        ' versions that ftwax requires.'
      ) from error
  return rlax


@contextlib.contextmanager
def _hidden_tensorflow() -> Iterator[None]:
  """Replaces TensorFlow by an empty module during an import.

  TensorFlow Probability imports TensorFlow if it is installed, which takes 8
  seconds, and rejects the old version that Reverb needs. rlax only uses its JAX
  backend.
  """
  name = 'tensorflow'
  loaded = sys.modules.get(name)
  sys.modules[name] = types.ModuleType(name)
  try:
    yield
  finally:
    del sys.modules[name]
    if loaded is not None:
      sys.modules[name] = loaded
