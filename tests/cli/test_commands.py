"""The command `ftwax`: its table, help and wrong arguments."""

import errno
import importlib
import inspect
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import pytest

import ftwax
from ftwax.cli import commands, sources

ROOT = pathlib.Path(__file__).parents[2]

# Of a terminal.
_ROWS, _COLUMNS = 48, 80


def _help(capsys, *argv):
  with pytest.raises(SystemExit) as end:
    commands.main([*argv, '--help'])
  assert not end.value.code
  return capsys.readouterr().out


def _fits(text):
  lines = text.splitlines()
  return len(lines) <= _ROWS and max(map(len, lines)) <= _COLUMNS


def test_the_entry_points_work():
  for command in (['-m', 'ftwax'], ['-m', 'ftwax', '--help']):
    result = subprocess.run(
      [sys.executable, *command],
      capture_output=True,
      text=True,
      timeout=60,
      cwd=ROOT,
      check=False,
    )
    assert result.returncode == 0, result.stderr
    assert 'usage: ftwax COMMAND' in result.stdout
  assert 'ftwax = ftwax.cli.commands:main' in (ROOT / 'setup.py').read_text()


@pytest.mark.parametrize('name', commands.COMMANDS)
def test_every_command_has_a_help_of_one_screen(capsys, name):
  module = importlib.import_module(f'ftwax.cli.{name}_command')
  assert inspect.getdoc(module)
  text = _help(capsys, name)
  assert text.startswith(f'usage: ftwax {name}')
  assert _fits(text)


def test_the_version_is_printed(capsys):
  assert commands.main(['--version']) == 0
  assert capsys.readouterr().out == f'ftwax {ftwax.__version__}\n'


def test_the_overview_names_every_command(capsys):
  assert commands.main(['--help']) == 0
  text = capsys.readouterr().out
  assert _fits(text)
  for name in commands.COMMANDS:
    assert re.search(rf'^  {name} +[A-Z].*\.$', text, re.M)


@pytest.mark.parametrize(
  ('argv', 'message'),
  [
    (['trian'], r"no command 'trian'; did you mean train\?"),
    (['zzz'], r"no command 'zzz'\."),
    (['-v=1', 'film'], r'flags follow a command, as in `ftwax COMMAND -v=1`'),
    (['list', '--hlp'], r'no flag --hlp; did you mean --help\?'),
    (['list', 'agent'], r'invalid choice'),
  ],
)
def test_a_wrong_argument_gets_a_suggestion(capsys, argv, message):
  with pytest.raises(SystemExit) as end:
    commands.main(argv)
  assert end.value.code == 2
  assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
  ('argv', 'message'),
  [
    (
      ['train', 'own.py:build'],
      r'own.py, line 1 \(def build\(:\) must be Pyth',
    ),
    (['train', 'os:system'], r'raised TypeError .*; name a class or function'),
    (
      ['train', 'catch', '--set', 'agent.core.hidden_size=1e30'],
      r'hidden_size \(1\d{30}\) of LSTM must be at least 1 and at most \d+;',
    ),
    (
      ['play', 'capture_the_flag', '--port=99999'],
      r'port \(99999\) must be from',
    ),
    (
      ['film', 'capture_the_flag', '--seed=-1'],
      r'--seed \(-1\) must be at lea',
    ),
    (['report', '.', f'--seed={2**32}'], r'--seed \(4294967296\) .* at most'),
    (['check', 'CartPole-v1', '--seed=-1'], r'--seed \(-1\) must be at least'),
    (['sweep', 'catch', '--seeds=9999999999'], r'--seeds .* at most 4096'),
    (
      ['sweep', 'catch', f'--seed={2**32 - 1}'],
      r'--seed .* at most 4294967293',
    ),
  ],
)
def test_a_wrong_value_is_told_in_one_line(
  tmp_path, monkeypatch, argv, message
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'own.py').write_text('def build(:\n')
  with pytest.raises(SystemExit) as end:
    commands.main(argv)
  told = str(end.value.code).removesuffix('\n(-v=1 prints the traceback.)')
  assert re.search(message, told) and '\n' not in told


@pytest.mark.parametrize(
  ('number', 'message'),
  [
    (errno.ENOSPC, 'free some space, then go on with --resume'),
    (errno.EDQUOT, 'delete some of your files'),
    (errno.EROFS, 'choose a directory on a disk that can be written'),
  ],
)
def test_what_to_do_about_a_disk_is_told(monkeypatch, number, message):
  def fail(options):
    raise OSError(number, os.strerror(number), 'runs/x')

  module = importlib.import_module('ftwax.cli.list_command')
  monkeypatch.setattr(module, 'run', fail)
  with pytest.raises(SystemExit, match=message):
    commands.main(['list'])


def test_the_list_has_a_line_for_each_thing(capsys):
  assert commands.main(['list']) == 0
  text = capsys.readouterr().out
  for name in (
    'catch', 'capture_the_flag', 'impala', 'gymnasium_adapter', 'pgx_adapter',
    'jaxmarl_adapter', 'jax_adapters',
  ):  # fmt: skip
    assert f'\n  {name} ' in text
  # An experiment and an environment.
  assert text.count('\n  capture_the_flag ') == 2
  for line in text.splitlines():
    if line.startswith('  '):
      name, _, summary = line.strip().partition(' ')
      assert summary.strip(), name
  assert commands.main(['list', 'agents']) == 0
  assert 'catch' not in capsys.readouterr().out


@pytest.mark.parametrize('argument', ['list', '--help'])
def test_a_reader_that_leaves_early_is_no_error(argument):
  reader, writer = os.pipe()
  os.close(reader)
  result = subprocess.run(
    [sys.executable, '-m', 'ftwax', argument],
    stdout=writer,
    stderr=subprocess.PIPE,
    check=False,
  )
  os.close(writer)
  assert (result.returncode, result.stderr) == (128 + signal.SIGPIPE, b'')


def test_experiments_are_those_of_the_folder():
  files = {path.stem for path in (ROOT / 'experiments').glob('[a-z]*.py')}
  assert set(sources.experiments()) == files


# Of a command that needs none of them.
_SLOW = {'jax', 'jaxlib', 'matplotlib', 'numpy', 'absl', 'haiku', 'optax'}


@pytest.mark.parametrize(
  'argv',
  [['--help'], ['list'], ['list', '--help'], ['doctor', '-h']],
)
def test_a_command_imports_only_what_it_needs(argv):
  program = (
    'import sys\n'
    'from ftwax.cli import commands\n'
    'try:\n'
    f'  commands.main({argv})\n'
    'except SystemExit:\n'
    '  pass\n'
    'print(len(sys.modules), *sys.modules, file=sys.stderr)\n'
  )
  result = subprocess.run(
    [sys.executable, '-c', program],
    capture_output=True,
    text=True,
    check=True,
  )
  number, *names = result.stderr.split()
  assert not _SLOW.intersection(names)
  assert int(number) < 250


def test_a_closed_output_is_no_error():
  command = f'{shlex.quote(sys.executable)} -m ftwax list >&-'
  done = subprocess.run(command, shell=True, capture_output=True, text=True)
  assert (done.returncode, done.stderr) == (0, '')
