"""Submodules and names that are imported on first use (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ftwax import import_guard


def on_first_use(
  package: str, names: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
  """Returns `__getattr__` and `__dir__` of a package.

  `package.name` then imports the submodule `name`, so that names can be typed
  as they are printed, and nobody pays for what they do not use.

  Args:
    package: its `__name__`.
    names: names that the package re-exports, by `submodule.name` of each.
  """
  exported = names or {}

  def get(name: str) -> Any:
    path, _, attribute = exported.get(name, name).partition('.')
    submodule = f'{package}.{path}'
    if not name.startswith('_'):
      try:
        module = importlib.import_module(submodule)
        return getattr(module, attribute) if attribute else module
      except ModuleNotFoundError as error:
        if error.name != submodule:  # It needs what is not installed.
          raise
    raise AttributeError(
      f'module {package!r} has no attribute {name!r}',
      name=name,
      obj=sys.modules[package],
    )

  def known() -> list[str]:
    with import_guard.guarded():  # It takes as long as all of `import ftwax`.
      import pkgutil

    module = sys.modules[package]
    found = {one.name for one in pkgutil.iter_modules(module.__path__)}
    return sorted({*vars(module), *getattr(module, '__all__', ()), *found})

  return get, known
