"""Names that the documents tell exist, and have the defaults told."""

import dataclasses
import importlib
import math
import pathlib
import re
import types
from typing import Any

import pytest

import ftwax
from ftwax import hyperparameters

ROOT = pathlib.Path(__file__).parents[1]
# The changelog tells names of the past, too.
DOCUMENTS = [
  *(ROOT / f'{name}.md' for name in ('CONTRIBUTING', 'README', 'SECURITY')),
  *sorted((ROOT / 'docs').rglob('*.md')),
]

# Its names are told below `ftwax`, and those of classes, once told in full, by
# the last part alone.
COMING_FROM = ROOT / 'docs' / 'coming_from.md'

_BLOCK = re.compile(r'^```.*?^```$', re.DOTALL | re.MULTILINE)
# What is in code font and, in brackets behind it, a default.
_SPAN = re.compile(r'`(?P<code>[^`]+)`(?: \(`(?P<default>[^`]+)`)?')
_NAME = re.compile(r'[A-Za-z_]\w*(\.[A-Za-z_]\w*)*')

# Told instead of what is named: it does not import on this machine.
_ABSENT = object()


def _rooms() -> set[str]:
  entries = pathlib.Path(ftwax.__file__).parent.iterdir()
  return {e.stem for e in entries if e.suffix in ('', '.py')} - {'__init__'}


def _import(name: str) -> Any:
  """Imports a module; `_ABSENT` if it needs what is not installed here.

  Raises:
    LookupError: there is no such module.
  """
  try:
    return importlib.import_module(name)
  except ImportError as error:
    if error.name == name:
      raise LookupError(name) from None
    # A room of Python 3.10, or an environment that needs an extra.
    return _ABSENT


def _get(thing: Any, part: str) -> Any:
  """Returns what `part` names in a module, a class, or a value."""
  defaults = getattr(thing, '_field_defaults', {})  # Of a NamedTuple.
  if part in defaults:
    return defaults[part]
  if hasattr(thing, part):
    return getattr(thing, part)
  if isinstance(thing, types.ModuleType) and hasattr(thing, '__path__'):
    return _import(f'{thing.__name__}.{part}')
  # Fields without a default are no attributes.
  if dataclasses.is_dataclass(thing) and part in thing.__dataclass_fields__:
    return thing.__dataclass_fields__[part]
  raise LookupError(part)


def _resolve(name: str, known: dict[str, Any]) -> Any:
  """Returns what a name means; `_ABSENT` if it cannot be seen here.

  Raises:
    LookupError: names the name that means nothing.
  """
  first, *parts = name.split('.')
  thing = known[first]
  for part in parts:
    if thing is _ABSENT:
      break
    try:
      thing = _get(thing, part)
    except LookupError:
      raise LookupError(name) from None
  return thing


def _named(document: pathlib.Path) -> list[tuple[str, str | None]]:
  """Returns names in code font outside of blocks, and what is told of each."""
  text = _BLOCK.sub('', document.read_text('utf-8'))
  spans = _SPAN.finditer(text.replace('\n', ' '))
  named = [(_NAME.match(span['code']), span['default']) for span in spans]
  return [(name[0], default) for name, default in named if name]


def _tell(document: pathlib.Path) -> list[tuple[str, str | None, Any]]:
  """Returns the names that a document tells of this library.

  Raises:
    LookupError: names one that does not exist.
  """
  known: dict[str, Any] = {'ftwax': ftwax}
  if document == COMING_FROM:
    known |= {room: _import(f'ftwax.{room}') for room in _rooms()}
  told = []
  for name, default in _named(document):
    if name.split('.')[0] not in known:
      continue
    thing = _resolve(name, known)
    told.append((name, default, thing))
    if document == COMING_FROM and isinstance(thing, type):
      known[name.split('.')[-1]] = thing
  return told


@pytest.mark.parametrize(
  'document', DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_names_of_this_library_exist(document):
  try:
    _tell(document)
  except LookupError as error:
    pytest.fail(f'{document.name} tells of {error}, which does not exist')


def test_defaults_are_those_told():
  namespace = {'inf': math.inf, **vars(hyperparameters)}
  checked = 0
  for name, default, thing in _tell(COMING_FROM):
    if default is None or thing is _ABSENT:
      continue
    told = eval(default, dict(namespace))
    assert told == thing, (
      f'{name} is {thing!r}; {COMING_FROM.name} tells {told}'
    )
    checked += 1
  assert checked > 50


def test_a_name_that_does_not_exist_is_found(tmp_path):
  document = tmp_path / 'guide.md'
  document.write_text('Ask `ftwax.losses.vtrace.no_such_loss(x)`.')
  with pytest.raises(LookupError, match='no_such_loss'):
    _tell(document)


def test_links_between_documents_lead_somewhere():
  for document in DOCUMENTS:
    links = re.findall(
      r'\]\(([^)#:]+\.\w+)(?:#[^)]*)?\)', document.read_text('utf-8')
    )
    for link in links:
      assert (document.parent / link).exists(), f'{document.name}: {link}'
