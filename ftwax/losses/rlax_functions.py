"""rlax's functions, imported when a loss that needs them is traced.

rlax takes seconds to import, which actors and most agents need not pay. On
Python 3.10 it must be imported before TensorFlow and thus before Reverb.
"""

from typing import Any


def load() -> Any:
  """Imports rlax.

  Raises:
    ImportError: if it is imported too late, on Python 3.10.
  """
  try:
    import rlax
  except ImportError as error:
    raise ImportError(
      f'rlax must be imported before TensorFlow and Reverb ({error}); put'
      ' `import rlax` above them.'
    ) from error
  return rlax
