"""Clear errors for packages that only some parts of the library need."""

import contextlib
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def required(
  package: str, extra: str = '', remedy: str | None = None
) -> Iterator[None]:
  """Turns an ImportError inside the block into one that names a remedy.

  Args:
    package: name under which the package is installed.
    extra: the extra of ftwax that installs it; '' if none does.
    remedy: how to install it, if not as this extra.

  Raises:
    ImportError: if an import fails; the message names the package and how to
      install it.
  """
  try:
    yield
  except ImportError as error:
    remedy = remedy or (install(extra) if extra else f'pip install {package}')
    raise ImportError(
      f'{package} must be installed ({error}); run {remedy}.'
    ) from error


def install(extra: str) -> str:
  """Returns the command that installs an extra, here or in a clone."""
  part = f'[{extra}]' if extra else ''
  if (pathlib.Path(__file__).parents[1] / 'setup.py').exists():
    return f'uv sync, or pip install -c constraints.txt -e ".{part}"'
  return f'pip install "ftwax{part}"'
