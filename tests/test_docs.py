"""Names in documents exist, and have the defaults that stand beside them."""

import ast
import builtins
import functools
import inspect
import json
import math
import pathlib
import re
import subprocess
import sys
import typing
from typing import Any

import jax.numpy as jnp
import pytest

import ftwax
from ftwax import hyperparameters
from ftwax.agents import ftw, unreal
from ftwax.replay import functional
from ftwax.replay.functional import segment_tree

ROOT = pathlib.Path(__file__).parents[1]
# For users of other libraries; they omit the prefix `ftwax`.
COMING_FROM = [
  ROOT / 'docs' / 'coming_from.md',
  *sorted((ROOT / 'docs' / 'coming_from').glob('*.md')),
]
# The changelog also has names of the past.
DOCUMENTS = [
  *(ROOT / f'{name}.md' for name in ('CONTRIBUTING', 'README', 'SECURITY')),
  *sorted((ROOT / 'docs').rglob('*.md')),
]

_BLOCK = re.compile(r'^```.*?^```$', re.DOTALL | re.MULTILINE)
_PYTHON = re.compile(r'^```python\n(.*?)^```$', re.DOTALL | re.MULTILINE)
# What is in code font and, in brackets behind it, a default.
_SPAN = re.compile(r'`(?P<code>[^`]+)`(?: \(`(?P<default>[^`]+)`)?')
_NAME = re.compile(r'[A-Za-z_]\w*(\.[A-Za-z_]\w*)*')

_HEAD = re.compile(r'ftwax|here( \(default\))?')

# Stands for what does not import on this machine.
_ABSENT = object()


def _get(thing: Any, part: str) -> Any:
  """Returns what `part` names in a module, a class, or a value.

  Of a field or a property of a class, that is its default or else its type.
  """
  defaults = getattr(thing, '_field_defaults', {})  # Of a NamedTuple.
  if part in defaults:
    return defaults[part]
  try:
    found = inspect.getattr_static(thing, part, None)
    if isinstance(found, property):
      return typing.get_type_hints(found.fget)['return']
    is_field = isinstance(thing, type) and part in getattr(thing, '_fields', ())
    if not is_field and hasattr(thing, part):
      return getattr(thing, part)
  except ImportError:  # A room of Python 3.10, or it needs an extra.
    return _ABSENT
  if isinstance(thing, type) and part in (
    types := typing.get_type_hints(thing)
  ):
    return types[part]
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


def _named(text: str) -> list[tuple[str, str | None]]:
  """Returns names in code font outside of blocks, with defaults in brackets."""
  spans = _SPAN.finditer(_BLOCK.sub('', text).replace('\n', ' '))
  named = [(_NAME.match(span['code']), span['default']) for span in spans]
  return [(name[0], default) for name, default in named if name]


@functools.cache
def _rooms() -> dict[str, Any]:
  """Returns the modules of the library by their names."""
  folder = pathlib.Path(ftwax.__file__).parent
  names = {e.stem for e in folder.iterdir() if e.suffix in ('', '.py')}
  return {
    name: _get(ftwax, name)
    for name in sorted(names - {'trained'})  # It has no code.
    if not name.startswith('_')
  }


@functools.cache
def _known(document: pathlib.Path) -> dict[str, Any]:
  """Returns what the first parts of names mean in a document."""
  known: dict[str, Any] = {'ftwax': ftwax}
  if document in COMING_FROM:
    acme = _rooms()['acme']
    known |= {
      **_rooms(),
      'agent': ftwax.inference.LoadedAgent,
      'config': ftwax.agents.PPOConfig,
      'learner': acme if acme is _ABSENT else acme.Learner,
    }
    for block in _PYTHON.findall(document.read_text('utf-8')):
      if 'ftwax.run(' in block or 'train(' in block:  # Names of modules alone.
        imports = [
          ast.unparse(node)
          for node in ast.parse(block).body
          if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        block = '\n'.join(imports)
      exec(block, known)
  return {name: each for name, each in known.items() if name[:3] != 'jax'}


def _find(document: pathlib.Path) -> list[tuple[str, str | None, Any]]:
  """Returns the names of this library in a document, defaults and things.

  Raises:
    LookupError: names one that does not exist.
  """
  known = _known(document)
  return [
    (name, default, _resolve(name, known))
    for name, default in _named(document.read_text('utf-8'))
    if name.split('.')[0] in known
  ]


def _of_this_library(document: pathlib.Path) -> list[str]:
  """Returns the cells of the column of this library, in all tables."""
  cells, column = [], 0
  for line in document.read_text('utf-8').splitlines():
    row = re.split(r' ?\| ?', line)
    heads = [i for i, head in enumerate(row) if _HEAD.fullmatch(head)]
    if heads:
      (column,) = heads
    elif line.startswith('| '):
      cells.append(row[column])
  return [cell for cell in cells if '---' not in cell]


@pytest.mark.parametrize(
  'document', DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_names_of_this_library_exist(document):
  try:
    _find(document)
  except LookupError as error:
    pytest.fail(f'{document.name} names {error}, which does not exist')


@pytest.mark.parametrize('document', COMING_FROM, ids=lambda path: path.stem)
def test_the_column_of_this_library_has_names_of_it_alone(document):
  """A name with a dot, or of a class, resolves as it is printed."""
  known = {*vars(builtins), 'jax', 'dm_env', *_known(document)}
  cells = _of_this_library(document)
  assert len(cells) > 30
  for cell in cells:
    for code in re.findall(r'`([^`]+)`', cell):
      code = re.sub(r"'.*?'|--\S+|[\w/]+\.py|^ftwax .*", '', code)
      for match in _NAME.finditer(code):
        first = match[0].split('.')[0]
        if '.' in match[0] or first[0].isupper():
          assert first in known, f'{document.name} names {match[0]} in {cell}'


_OF = re.compile(r'((?:`\w+`(?:, | and )?)+) of `([\w.]+)`')


def test_things_have_the_arguments_and_fields_that_are_said_of_them():
  """That is, `port` of `ftwax.acme.make_server`."""
  checked = 0
  for document in COMING_FROM:
    known = _known(document)
    text = ' '.join(document.read_text('utf-8').split())
    for parts, name in _OF.findall(text):
      thing = _ABSENT
      if name.split('.')[0] in known and '.' in name:
        thing = _resolve(name, known)
      if thing is _ABSENT:
        continue
      for part in re.findall(r'`(\w+)`', parts):
        is_argument = (
          callable(thing) and part in inspect.signature(thing).parameters
        )
        assert is_argument or hasattr(thing, part), f'{part} of {name}'
        checked += 1
  assert checked >= 9


_RESOLVE = """
import json, sys
import ftwax
for name in json.load(sys.stdin):
  thing = ftwax
  for part in name.split('.'):
    try:
      thing = getattr(thing, part)
    except AttributeError:
      if part not in getattr(thing, '__annotations__', ()):  # A field.
        print(name)
      break
    except ImportError as error:
      if sys.version_info < (3, 11) or 'Python 3.10' not in str(error):
        print(name, error)
      break
"""


@pytest.mark.parametrize(
  '_', ['', pytest.param('acme', marks=pytest.mark.python_310)]
)
def test_names_can_be_typed_as_printed_after_one_import(_):
  names = set()
  for document in DOCUMENTS:
    is_without_prefix = document in COMING_FROM
    for name, _ in _named(document.read_text('utf-8')):
      first, _, rest = name.partition('.')
      if first == 'ftwax' and rest:
        names.add(rest)
      elif is_without_prefix and rest and first in _rooms():
        names.add(name)
  assert len(names) > 300
  ended = subprocess.run(
    [sys.executable, '-c', _RESOLVE],
    input=json.dumps(sorted(names)),
    capture_output=True,
    text=True,
    timeout=300,
    check=True,
  )
  assert not ended.stdout, ended.stdout


# Whose defaults are stated where those of a part differ.
_AGENTS = {'btgym': unreal.UNREALConfig(), 'tensorflow_ftw': ftw.FTWConfig()}


def _defaults(document: pathlib.Path, name: str, thing: Any) -> list[Any]:
  """Returns the default of a name, and that of the page's agent."""
  owner, _, field = name.rpartition('.')
  agent = _AGENTS.get(document.stem)
  if agent is None:
    return [thing]
  kind = _resolve(owner, _known(document))
  parts = [*agent.tasks, agent.core, agent.heads, agent.torso, agent.optimizer]
  parts.append(getattr(agent.core, 'memory', None))
  return [thing, *(getattr(p, field) for p in parts if type(p) is kind)]


def test_defaults_in_brackets_are_right():
  checked = 0
  for document in COMING_FROM:
    for name, default, thing in _find(document):
      if default is None or thing is _ABSENT or '.' not in name:
        continue
      stated = eval(
        default, {'inf': math.inf, 'hyperparameters': hyperparameters}
      )
      right = _defaults(document, name, thing)
      assert any(stated == each for each in right), (
        f'{name} is {right!r}; {document.name}: {stated}'
      )
      checked += 1
  assert checked > 100


def test_functions_of_the_replay_have_the_arguments_that_are_printed():
  document = ROOT / 'docs' / 'coming_from' / 'alf_replay.md'
  config = functional.ReplayConfig(num_environments=1, max_length=1)
  replay = functional.make_replay({'x': jnp.zeros(())}, config)
  checked = set()
  for cell in _of_this_library(document):
    for name, arguments in re.findall(r'`([\w.]+)\(([^`]*)\)`', cell):
      first, _, rest = name.partition('.')
      module = segment_tree if first == 'segment_tree' else replay
      function = getattr(module, rest or name, None)
      if function is None or '...' in arguments:
        continue
      stated = re.findall(r'(?:^|, )(\w+)(?:=(\w+))?', arguments)
      parameters = inspect.signature(function).parameters.values()
      right = [
        (one.name, '' if one.default is one.empty else str(one.default))
        for one in parameters
      ]
      assert [each for each, _ in stated] == [each for each, _ in right], name
      for (argument, default), (_, value) in zip(stated, right, strict=True):
        assert default in ('', value), f'{name}({argument})'
      checked.add(name)
  assert len(checked) > 20


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
    for program in pattern.findall(
      re.sub('^```python title.*', '', document.read_text('utf-8'), flags=re.M)
    )
  }
  assert len(named) > 50
  assert not [each for each in named if not (ROOT / each[1]).exists()]
