"""What the rooms of Python 3.10 need before they are imported."""

import contextlib
import sys

from ftwax import extras, import_guard

_NEEDED = ('acme', 'launchpad', 'reverb', 'tensorflow')


def require_python_310(room: str) -> None:
  """Raises an ImportError without the extra acme; else imports rlax.

  dm-acme requires dm-launchpad, which has no wheel for Python 3.11, and the
  matching releases of dm-reverb are older still.

  Args:
    room: name of the importing module, for the message.

  Raises:
    ImportError: on Python 3.11 and newer, and without the extra.
  """
  if sys.version_info >= (3, 11):
    version = '.'.join(map(str, sys.version_info[:2]))
    raise ImportError(
      f'{room} needs Python 3.10, as dm-acme, dm-reverb and dm-launchpad do,'
      f' and this is Python {version}; use Python 3.10, or leave out Reverb:'
      ' local runs need none.'
    )
  missing = [name for name in _NEEDED if not import_guard.is_installed(name)]
  if missing:
    raise ImportError(
      f'{room} needs {", ".join(missing)}, which the extra acme installs; run'
      f' {extras.install("acme")}'
    )
  # Losses say what to do about it.
  with contextlib.suppress(ImportError), import_guard.guarded():
    import rlax  # noqa: F401 It must come before TensorFlow.
