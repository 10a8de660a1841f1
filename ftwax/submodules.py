"""Submodules that are imported on first use, as attributes (PEP 562)."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from ftwax import import_guard


def on_first_use(
  package: str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
  """Returns `__getattr__` and `__dir__` of a package.

  `package.name` then imports the submodule `name`, so that names can be typed
  as they are printed, and nobody pays for what they do not use.

  Args:
    package: its `__name__`.
  """

  def get(name: str) -> Any:
    submodule = f'{package}.{name}'
    if not name.startswith('_'):
      try:
        return importlib.import_module(submodule)
      except ModuleNotFoundError as error:
        if error.name != submodule:  # It needs what is not installed.
          raise
    raise AttributeError(
      f'module {package!r} has no attribute {name!r}',
      name=name,
      obj=sys.modules[package],
    )

  def names() -> list[str]:
    with import_guard.guarded():  # It takes as long as all of `import ftwax`.
      import pkgutil

    module = sys.modules[package]
    found = {one.name for one in pkgutil.iter_modules(module.__path__)}
    return sorted({*vars(module), *getattr(module, '__all__', ()), *found})

  return get, names
