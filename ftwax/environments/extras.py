"""Clear errors for packages that only some environments need."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def required(package: str, remedy: str | None = None) -> Iterator[None]:
  """Turns an ImportError inside the block into one that names a remedy.

  Args:
    package: name under which the package is installed.
    remedy: how to install it; by default as one of the extra `envs`.

  Raises:
    ImportError: if an import fails; the message names the package and how to
      install it.
  """
  try:
    yield
  except ImportError as error:
    raise ImportError(
      f'{package} must be importable for this environment ({error}); '
      + (
        remedy
        or f'install it with `pip install {package}`. In a clone, install all'
        ' packages with `uv sync`, or `pip install -c constraints.txt -e'
        " '.[envs]'`."
      )
    ) from error
