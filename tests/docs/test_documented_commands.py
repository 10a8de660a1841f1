"""Commands of documents that need more than the library, as users run them.

Each is run in an environment of its own with nothing else in it. Trainings take
a few steps, and benchmarks are imported alone, for what they import.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).parents[2]

# What `.ci/run` runs by itself.
_OF_CONTRIBUTORS = re.compile(r'(pre-commit|pytest|mkdocs|python|docs/|tests/)')

_TAKES_VALUE = '--extra', '--with', '--python'

_SHORT = 'max_num_actor_steps=2000'


class Command(NamedTuple):
  """A command of a document.

  Attributes:
    where: path of the document.
    options: of `uv run`.
    target: what it runs, words.
  """

  where: str
  options: tuple[str, ...]
  target: tuple[str, ...]

  def __str__(self) -> str:
    return f'{self.where}: {" ".join((*self.options, *self.target))}'


def _read(text, where):
  """Yields the commands of a text that ask for more packages."""
  text = re.sub(r'\\\n\s*', '', text)
  for line in re.findall(r'\buv run (-[^`\n]*)', text):
    words = shlex.split(line, comments=True)
    options = []
    while words and words[0].startswith('-'):
      options.append(words.pop(0))
      if options[-1] in _TAKES_VALUE:
        options.append(words.pop(0))
    is_more = {'--extra', '--with'} & set(options)
    if is_more and words and words != ['...'] and 'LIBRARY' not in options:
      yield Command(where, tuple(options), tuple(words))


def _find():
  """Returns the commands of all documents and scripts, each once."""
  # CONTRIBUTING's are of `.ci/run`, or follow a change that is made there.
  paths = [ROOT / 'README.md']
  for folder, ending in (
    ('docs', 'md'), ('benchmarks', 'py'), ('experiments', 'py'),
    ('research', 'py'), ('ftwax', 'py'),
  ):  # fmt: skip
    paths += sorted((ROOT / folder).rglob(f'*.{ending}'))
  found = {}
  for path in paths:
    where = str(path.relative_to(ROOT))
    for command in _read(path.read_text('utf-8'), where):
      if not _OF_CONTRIBUTORS.match(command.target[0]):
        found.setdefault((command.options, command.target), command)
  return list(found.values())


COMMANDS = _find()


def test_commands_are_found_in_texts():
  text = (
    'Use `uv run --extra envs a.py` or\n\n'
    "    uv run --with 'x[y]' --python 3.12 b.py \\\n      --c  # Long.\n"
    '`uv run c.py`, `uv run --with gymnax`, `uv run --with LIBRARY ...`\n'
  )
  assert list(_read(text, 'page')) == [
    Command('page', ('--extra', 'envs'), ('a.py',)),
    Command('page', ('--with', 'x[y]', '--python', '3.12'), ('b.py', '--c')),
  ]
  targets = [' '.join(command.target) for command in COMMANDS]
  for known in ('Hopper-v5', 'experiments/atari.py', '--gpu', 'seeds.py'):
    assert any(known in target for target in targets), known


def _shorten(target, tmp_path):
  """Returns words that run a target for a few steps."""
  name, *rest = target
  if name.startswith('benchmarks/'):
    code = (
      'import runpy, sys; sys.path.insert(0, "benchmarks");'
      f' runpy.run_path({name!r}, run_name="imported")'
    )
    return ['python', '-c', code]
  if name == 'ftwax' and rest[0] == 'check':
    return [*target, '--steps=20']
  rest = [word for word in rest if not word.startswith('--steps=')]
  return [name, *rest, f'--{_SHORT}', f'--run_dir={tmp_path / "run"}']


@pytest.mark.slow
@pytest.mark.parametrize('command', COMMANDS, ids=str)
def test_commands_run_where_nothing_else_is_installed(command, tmp_path):
  options, words = list(command.options), _shorten(command.target, tmp_path)
  if '--gpu' in words or 'benchmarks/gpu.py' in command.target:
    # Without a GPU they resolve, and what they run is compiled elsewhere.
    packages = [
      value
      for option, value in zip(options, options[1:], strict=False)
      if option == '--with'
    ]
    words = ['uv', 'pip', 'install', '--dry-run', '--python', sys.executable]
    _execute([*words, *packages])
    return
  if '--python' in options:
    version = options[options.index('--python') + 1]
    python = shutil.which(f'python{version}')
    if python is None:
      pytest.skip(f'Python {version} is not there')
    options[options.index('--python') + 1] = python
  else:
    options += ['--python', sys.executable]
  _execute(['uv', 'run', '--isolated', *options, *words])


def _execute(words):
  environment = {
    name: value
    for name, value in os.environ.items()
    if name not in ('PYTHONPATH', 'VIRTUAL_ENV', 'XLA_FLAGS')
  }
  ended = subprocess.run(
    words,
    cwd=ROOT,
    env=environment,
    capture_output=True,
    text=True,
    timeout=900,
    check=False,
  )
  assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
