"""Imports from where packages are installed, and from nowhere else.

Python looks for a module first in the folder of the script, which is the
working directory in a notebook. A folder that somebody sent you may lie there,
and may be called `jaxmarl`. So whatever this library imports, and whatever that
imports in turn, is found only

- in the standard library;
- in folders called `site-packages` or `dist-packages`;
- in the folder that an editable install has put into the path, if it has the
  name of that install;
- by another finder than that of paths, as of a frozen program.

What is imported already is taken as it is: a program that imports a package
itself has chosen it, wherever it lies. Imports of the program are not changed.
"""

# Only what Python has loaded before a program begins: all else could lie beside
# it.
import _frozen_importlib_external as machinery
import _thread
import _warnings
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
  from collections.abc import Callable, Iterator, Sequence
  from contextlib import AbstractContextManager
  from importlib.machinery import ModuleSpec
  from types import ModuleType, TracebackType
  from typing import Any

_PACKAGE = __name__.partition('.')[0]
_FOLDERS = ('site-packages', 'dist-packages')


def _find_standard() -> 'frozenset[str]':
  """Returns the folders of the standard library, as in `sys.path`."""
  name = 'python' + '.'.join(map(str, sys.version_info[:2]))
  folders = {os.path.dirname(os.__file__)}
  for prefix in (sys.base_prefix, sys.base_exec_prefix):
    library = os.path.join(prefix, sys.platlibdir)
    folders |= {
      os.path.join(library, name),
      os.path.join(library, name.replace('.', '') + '.zip'),
    }
  dynamic = {os.path.join(folder, 'lib-dynload') for folder in folders}
  return frozenset(folders | dynamic)


_STANDARD = _find_standard()
_PREFIXES = (sys.prefix + os.sep, sys.base_prefix + os.sep)
_local = _thread._local()
# Whether threads are in a guarded block that have entered none themselves.
_everywhere = [False]
_shadows: 'set[str]' = set()


class ShadowedPackageWarning(UserWarning):
  """A file beside the program has the name of an installed package."""


class guarded:  # noqa: N801 Used as a function.
  """Lets all imports in a `with` block find installed packages only.

  It holds for this thread, and for imports by what is imported.
  """

  def __init__(self, all_threads: bool = False):
    """Makes a block.

    Args:
      all_threads: whether it holds for all threads, unless they are in a block
        of their own: a page, for example, is served by several.
    """
    self._all_threads = all_threads

  def __enter__(self) -> None:
    """Begins the block, which may be inside another one."""
    self._before = getattr(_local, 'is_guarding', None), _everywhere[0]
    _local.is_guarding = True
    if self._all_threads:
      _everywhere[0] = True

  def __exit__(
    self,
    kind: 'type[BaseException] | None',
    error: 'BaseException | None',
    traceback: 'TracebackType | None',
  ) -> None:
    """Ends the block."""
    del kind, error, traceback
    _local.is_guarding, everywhere = self._before
    if self._all_threads:
      _everywhere[0] = everywhere


def release() -> None:
  """Ends the guard for the rest of the block, in which the user's code runs.

  Called where the user has named a file or module of his own. A block of all
  threads ends for all of them.
  """
  _local.is_guarding = False
  _everywhere[0] = False


def _is_guarding() -> bool:
  is_guarding = getattr(_local, 'is_guarding', None)
  return _everywhere[0] if is_guarding is None else is_guarding


def is_installed(package: str) -> bool:
  """Returns whether a package could be imported, without importing it."""
  with guarded():
    import importlib.util

    try:
      return importlib.util.find_spec(package) is not None
    except ImportError:
      return False


def around(made: 'Any') -> 'Callable[[], AbstractContextManager[None]]':
  """Returns `guarded`, or what guards nothing if the program made something.

  A program's own classes may import its own modules when they are used; those
  of installed packages may not.

  Args:
    made: an object, which may wrap others as its `env`; or the name of a
      module.
  """
  with guarded():
    import contextlib

  if isinstance(made, str):
    return contextlib.nullcontext if _is_of_program(made) else guarded
  while made is not None:
    if _is_of_program(type(made).__module__):
      return contextlib.nullcontext
    made = getattr(made, '__dict__', {}).get('env')
  return guarded


def _is_of_program(name: str) -> bool:
  """Returns whether a module was imported, and is of no installed package."""
  top = name.partition('.')[0]
  if top not in sys.modules or top == _PACKAGE:
    return False
  file = getattr(sys.modules[top], '__file__', None)
  file = file and os.path.abspath(file)
  return not (file and _is_below(file)) and not _is_editable(top, file)


def install() -> None:
  """Guards the imports of this library's modules, from now on."""
  if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())
    find = machinery.PathFinder.find_distributions
    found = staticmethod(_only_installed(find))
    setattr(machinery.PathFinder, 'find_distributions', found)  # noqa: B010


def _only_installed(
  find: 'Callable[..., Any]',
) -> 'Callable[..., Any]':
  """Returns a function that, in guarded blocks, finds what is installed.

  Packages ask `importlib.metadata` for plug-ins, and import or call what they
  name. A folder beside the program may be called `run-1.0.dist-info`.

  Args:
    find: the function by which Python finds distributions in its path.
  """

  def find_installed(*context: 'Any') -> 'Any':
    if _is_guarding() and context and 'path' not in vars(context[0]):
      (before,) = context
      context = (type(before)(**vars(before), path=_folders()),)
    return find(*context)

  return find_installed


class _Loader(machinery.SourceFileLoader):
  """Runs a module of this library, whose imports are guarded."""

  def exec_module(self, module: 'ModuleType') -> None:
    """Runs the module."""
    with guarded():
      super().exec_module(module)


class _Finder:
  """Finds this library's modules and, in guarded blocks, all modules."""

  def find_spec(
    self,
    name: str,
    path: 'Sequence[str] | None' = None,
    target: 'ModuleType | None' = None,
  ) -> 'ModuleSpec | None':
    """Returns the spec of a module; None to let other finders find it.

    Raises:
      ModuleNotFoundError: if it lies only where nothing is installed.
    """
    if name.startswith(f'{_PACKAGE}.'):
      spec = machinery.PathFinder.find_spec(name, path, target)
      # Not of a subclass, such as one that counts lines for tests.
      if spec and type(spec.loader) is machinery.SourceFileLoader:
        spec.loader = _Loader(spec.loader.name, spec.loader.path)
      return spec
    if not _is_guarding():
      return None
    for finder in sys.meta_path:
      if isinstance(finder, _Finder):
        continue
      if finder is machinery.PathFinder:
        spec = _find_in_path(name, path)
      elif hasattr(finder, 'find_spec'):
        spec = finder.find_spec(name, path, target)
        if spec and path is None and not _may_load(spec):
          spec = None
      if spec is not None:
        if path is None:
          _warn_of_shadow(spec)
        return spec
    beside = machinery.PathFinder.find_spec(name, path)
    if beside is None:
      return None  # Others find it no more than this.
    if beside.origin is None or path is not None:
      raise ModuleNotFoundError(f'No module named {name!r}', name=name)
    raise ModuleNotFoundError(_refusal(name, beside.origin), name=name)


def _find_in_path(
  name: str, path: 'Sequence[str] | None'
) -> 'ModuleSpec | None':
  """Returns the spec of a module in one of the folders that may hold it."""
  find = machinery.PathFinder.find_spec
  if path is None:
    spec = find(name, _folders())
    if spec is None:
      spec = _find_editable(name)
  else:
    spec = find(name, _inside(name.rpartition('.')[0], path))
  if spec is not None and spec.origin is None:
    # A namespace would later grow by folders of the path.
    places = spec.submodule_search_locations
    spec.submodule_search_locations = [*places] if places else places
  return spec


def _in_path(name: str) -> 'ModuleSpec | None':
  """Returns what Python would find in its path."""
  return machinery.PathFinder.find_spec(name)


def _inside(parent: str, path: 'Sequence[str]') -> list[str]:
  """Returns the folders of a package that are installed, or its own."""
  spec = getattr(sys.modules.get(parent), '__spec__', None)
  own = os.path.dirname(spec.origin) if spec and spec.origin else None
  return [place for place in path if place == own or _is_below(place)]


def _is_below(place: str) -> bool:
  """Returns whether a path lies where packages are installed."""
  return any(place.startswith(entry + os.sep) for entry in _folders())


def _folders() -> list[str]:
  """Returns the entries of `sys.path` in which packages are installed.

  A package may put a folder of its own there, as OpenCV does.
  """
  beside = _beside()
  installed = [
    entry
    for entry in sys.path
    if os.path.isabs(entry)
    and (os.path.basename(entry) in _FOLDERS or entry in _STANDARD)
    and (entry not in beside or entry.startswith(_PREFIXES))
  ]
  own = tuple(entry + os.sep for entry in installed)
  return [
    entry for entry in sys.path if entry in installed or entry.startswith(own)
  ]


def _beside() -> 'set[str]':
  """Returns the working directory, and the folder of the program.

  They may be called `site-packages`, too.
  """
  program = getattr(sys.modules.get('__main__'), '__file__', None)
  try:
    here = os.getcwd()
  except OSError:  # It was deleted.
    here = ''
  folder = os.path.dirname(os.path.abspath(program)) if program else here
  return {here, folder, os.path.realpath(folder)}


def _may_load(spec: 'ModuleSpec') -> bool:
  """Returns whether a spec of another finder is not one of the path."""
  if spec.origin is None or not os.path.isabs(spec.origin):
    return True  # Built in, frozen, or without a file.
  if _is_below(spec.origin):
    return True
  beside = _in_path(spec.name)
  if beside is None or beside.origin != spec.origin:
    return True
  editable = _find_editable(spec.name)
  return editable is not None and editable.origin == spec.origin


def _find_editable(name: str) -> 'ModuleSpec | None':
  """Returns the spec of a module of an editable install.

  Only folders count that an installed `.pth` file has put into the path: below
  the project a folder of its name may lie anywhere, too.
  """
  spec = machinery.PathFinder.find_spec(name, _linked())
  return spec if spec and _is_editable(name, spec.origin) else None


def _linked() -> list[str]:
  """Returns the entries of `sys.path` that `.pth` files name."""
  lines = {
    os.path.abspath(os.path.join(folder, line.strip()))
    for folder in _folders()
    for name in (os.listdir(folder) if os.path.isdir(folder) else ())
    if name.endswith('.pth')
    for line in _read(os.path.join(folder, name)).splitlines()
    if line.strip() and not line.startswith(('#', 'import ', 'import\t'))
  }
  return [entry for entry in sys.path if entry in lines]


def _is_editable(name: str, origin: str | None) -> bool:
  """Returns whether a module is that of an editable install.

  An editable install puts a folder of yours into the path. Only the packages of
  its name count, since anything may lie beside these.
  """
  return origin is not None and any(
    name in names and origin.startswith(project + os.sep)
    for project, names in _editable_installs()
  )


def _editable_installs() -> 'Iterator[tuple[str, list[str]]]':
  """Yields the folder of each editable install and the names of its packages.

  Read here, since an import within an import could be one of itself.
  """
  for folder in _folders():
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
      about = os.path.join(folder, name)
      url = _read(os.path.join(about, 'direct_url.json'))
      if name.endswith('.dist-info') and '"editable"' in url:
        own = name.partition('-')[0].lower()
        names = _read(os.path.join(about, 'top_level.txt')).split()
        first, *escaped = (
          url.partition('"file://')[2].partition('"')[0].split('%')
        )
        path = first.encode() + b''.join(
          bytes.fromhex(part[:2]) + part[2:].encode() for part in escaped
        )
        yield os.fsdecode(path).rstrip(os.sep), [*names, own]


def _read(path: str) -> str:
  try:
    with open(path, encoding='utf-8', errors='surrogateescape') as file:
      return file.read()
  except OSError:
    return ''


def _refusal(name: str, origin: str) -> str:
  return (
    f'{name} must be installed, and lies in {os.path.dirname(origin)}, where no'
    ' packages are installed: whoever sent you a folder may have put it there;'
    f' run pip install {name}, or, if it is yours, import it before {_PACKAGE}'
    ' does'
  )


def _warn_of_shadow(spec: 'ModuleSpec') -> None:
  """Warns if Python would have taken a file that is not installed."""
  if spec.origin is None or spec.name in _shadows:
    return
  beside = _in_path(spec.name)
  if beside is None or beside.origin in (None, spec.origin):
    return
  if not spec.has_location or not beside.has_location:
    return
  _shadows.add(spec.name)
  _warnings.warn(
    f'{spec.name} is that of {spec.origin}, and not {beside.origin}, which is'
    f' not where packages are installed; import it before {_PACKAGE} does, if'
    ' it is meant.',
    ShadowedPackageWarning,
    stacklevel=2,
  )
