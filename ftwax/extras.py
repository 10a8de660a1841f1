"""Packages that only some parts of the library need, imported when they do."""

import contextlib
import pathlib
from collections.abc import Iterator

from ftwax import import_guard


@contextlib.contextmanager
def required(
  package: str, extra: str = '', remedy: str | None = None
) -> Iterator[None]:
  """Lets imports in the block find installed packages only; names a remedy.

  Every import in a function goes through this, so that no folder beside the
  program is taken for a package; see `import_guard`.

  Args:
    package: name under which the package is installed.
    extra: the extra of ftwax that installs it; '' if none does.
    remedy: how to install it, if not as this extra.

  Raises:
    ImportError: if an import fails; the message names the package and how to
      install it.
  """
  try:
    with import_guard.guarded():
      yield
  except ImportError as error:
    remedy = remedy or (install(extra) if extra else f'pip install {package}')
    raise ImportError(
      f'{package} must be installed ({error}); run {remedy}.'
    ) from None


def install(extra: str) -> str:
  """Returns the command that installs an extra, here or in a clone."""
  part = f'[{extra}]' if extra else ''
  if (pathlib.Path(__file__).parents[1] / 'setup.py').exists():
    option = f' --extra {extra}' if extra else ''
    pins = 'constraints-acme.txt' if extra == 'acme' else 'constraints.txt'
    return f'uv sync{option}, or pip install -c {pins} -e ".{part}"'
  return f'pip install "ftwax{part}"'
