"""Names in documents exist, and have the defaults that stand beside them."""

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
# They omit the prefix `ftwax`, and call a class by its last name after its
# first mention.
EQUIVALENTS = [
  ROOT / 'docs' / 'coming_from.md',
  *sorted((ROOT / 'tests' / 'docs' / 'equivalents').glob('*.md')),
]
# The changelog also has names of the past.
DOCUMENTS = [
  *(ROOT / f'{name}.md' for name in ('CONTRIBUTING', 'README', 'SECURITY')),
  *sorted({*(ROOT / 'docs').rglob('*.md'), *EQUIVALENTS}),
]

_BLOCK = re.compile(r'^```.*?^```$', re.DOTALL | re.MULTILINE)
# What is in code font and, in brackets behind it, a default.
_SPAN = re.compile(r'`(?P<code>[^`]+)`(?: \(`(?P<default>[^`]+)`)?')
_NAME = re.compile(r'[A-Za-z_]\w*(\.[A-Za-z_]\w*)*')

# Stands for what does not import on this machine.
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
  try:
    if hasattr(thing, part):
      return getattr(thing, part)
  except ImportError:  # A room of Python 3.10.
    return _ABSENT
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
  """Returns names in code font outside of blocks, with defaults in brackets."""
  text = _BLOCK.sub('', document.read_text('utf-8'))
  spans = _SPAN.finditer(text.replace('\n', ' '))
  named = [(_NAME.match(span['code']), span['default']) for span in spans]
  return [(name[0], default) for name, default in named if name]


def _find(document: pathlib.Path) -> list[tuple[str, str | None, Any]]:
  """Returns the names of this library in a document, defaults and things.

  Raises:
    LookupError: names one that does not exist.
  """
  known: dict[str, Any] = {'ftwax': ftwax}
  if document in EQUIVALENTS:
    known |= {room: _import(f'ftwax.{room}') for room in _rooms()}
  found = []
  for name, default in _named(document):
    if name.split('.')[0] not in known:
      continue
    thing = _resolve(name, known)
    found.append((name, default, thing))
    if document in EQUIVALENTS and isinstance(thing, type):
      known[name.split('.')[-1]] = thing
  return found


@pytest.mark.parametrize(
  'document', DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_names_of_this_library_exist(document):
  try:
    _find(document)
  except LookupError as error:
    pytest.fail(f'{document.name} names {error}, which does not exist')


def test_defaults_in_brackets_are_right():
  namespace = {'inf': math.inf, **vars(hyperparameters)}
  checked = 0
  for document in EQUIVALENTS:
    for name, default, thing in _find(document):
      if default is None or thing is _ABSENT:
        continue
      stated = eval(default, dict(namespace))
      assert stated == thing, f'{name} is {thing!r}; {document.name}: {stated}'
      checked += 1
  assert checked > 50


def test_a_name_that_does_not_exist_is_found(tmp_path):
  document = tmp_path / 'guide.md'
  document.write_text('Ask `ftwax.losses.vtrace.no_such_loss(x)`.')
  with pytest.raises(LookupError, match='no_such_loss'):
    _find(document)


def test_links_between_documents_lead_somewhere():
  for document in DOCUMENTS:
    links = re.findall(
      r'\]\(([^)#:]+\.\w+)(?:#[^)]*)?\)', document.read_text('utf-8')
    )
    for link in links:
      assert (document.parent / link).exists(), f'{document.name}: {link}'


def test_programs_in_documents_exist():
  pattern = re.compile(
    r'\b(?:benchmarks|docs|experiments|ftwax|research|tests)/[\w/]+\.(?:py|js)\b'
  )
  named = {
    (document.name, program)
    for document in DOCUMENTS
    for program in pattern.findall(document.read_text('utf-8'))
  }
  assert len(named) > 50
  assert not [each for each in named if not (ROOT / each[1]).exists()]
