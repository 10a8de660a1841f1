"""Imports rlax when a loss is first computed.

rlax loads TensorFlow Probability: 2 seconds and 40 MB. `import ftwax` and
actors, which compute no loss, do not pay for them.
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

  It may be called inside a JAX transformation, and before or after TensorFlow
  and Reverb are imported.

  Raises:
    ImportError: if rlax cannot be imported.
  """
  # Modules make arrays as they load, which must not be tracers of the caller.
  with _lock, jax.ensure_compile_time_eval(), _hidden_tensorflow():
    try:
      import rlax
    except ImportError as error:
      raise ImportError(
        f'Losses need rlax, which cannot be imported: {error} Install the'
        ' versions that ftwax names.'
      ) from error
  return rlax


@contextlib.contextmanager
def _hidden_tensorflow() -> Iterator[None]:
  """Lets imports see an empty TensorFlow.

  TensorFlow Probability loads it where it is installed, 8 seconds, and refuses
  the old one that Reverb runs with. rlax uses only the half for JAX.
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
