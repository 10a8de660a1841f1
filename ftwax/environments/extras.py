"""One clear error for packages that only some environments need."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def required(package: str, remark: str = '') -> Iterator[None]:
  """Turns a failing import inside the block into an error with a remedy.

  Args:
    package: name under which the package is installed.
    remark: what else the user must know, a clause.

  Raises:
    ImportError: names the package and the extra that brings it.
  """
  try:
    yield
  except ImportError as error:
    raise ImportError(
      f'{package} must be importable for this environment ({error}); install'
      f' it with `pip install "ftwax[envs]"`{remark}.'
    ) from error
