"""Imports rlax when a loss is first computed.

rlax loads TensorFlow Probability and, where it is installed, TensorFlow: 8
seconds and 450 MB. `import ftwax` and actors, which compute no loss, do not
pay for them.
"""

import functools
import importlib
import sys
import threading
import types

import jax

_lock = threading.Lock()


@functools.cache
def load() -> types.ModuleType:
  """Returns rlax, imported on the first call.

  It may be called inside a JAX transformation, and before or after TensorFlow
  and Reverb are imported.

  Raises:
    ImportError: if rlax cannot be imported, with a remedy where TensorFlow was
      loaded before it.
  """
  # Modules make arrays as they load, which must not be tracers of the caller.
  with _lock, jax.ensure_compile_time_eval():
    is_late = 'tensorflow' in sys.modules
    if is_late:
      _import_tensorflow_probability()
    try:
      import rlax
    except ImportError as error:
      if not is_late:
        raise
      raise ImportError(
        f'Losses need rlax, which cannot be imported after TensorFlow: {error}'
        ' Call `ftwax.losses.lazy_rlax.load()` before the first import of'
        ' tensorflow, reverb or acme.'
      ) from error
  return rlax


def _import_tensorflow_probability() -> None:
  """Imports TensorFlow Probability as if TensorFlow were not loaded.

  Where it is, the package registers its classes there and refuses the old
  TensorFlow that Reverb runs with. rlax uses only the half for JAX.
  """
  tensorflow = sys.modules['tensorflow']
  sys.modules['tensorflow'] = types.ModuleType('tensorflow')
  try:
    importlib.import_module('tensorflow_probability')
  except ImportError:
    pass  # `import rlax` reports it.
  finally:
    sys.modules['tensorflow'] = tensorflow
