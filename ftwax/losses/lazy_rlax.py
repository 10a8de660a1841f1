"""Imports rlax where a loss is traced, since it takes seconds."""

from typing import Any

from ftwax import import_guard


def load() -> Any:
  """Returns the module rlax.

  Raises:
    ImportError: if rlax cannot be imported any more, on Python 3.10.
  """
  try:
    with import_guard.guarded():
      import rlax
  except ImportError as error:  # Too late, on Python 3.10.
    raise ImportError(
      f'rlax must be imported before TensorFlow and Reverb ({error}); put'
      ' `import rlax` above them.'
    ) from error
  return rlax
