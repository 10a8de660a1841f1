"""Files of a run are opened in one place: no links, pipes or endless files."""

import ast
import base64
import hashlib
import json
import os
import pathlib
import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest

import ftwax
from ftwax.cli import commands
from ftwax.inference import exploiting, loading
from ftwax.records import (
  array_files,
  checkpoints,
  files,
  loggers,
  run_directory,
)
from ftwax.reporting import report, videos
from ftwax.web import run_tail

_PACKAGE = pathlib.Path(files.__file__).parents[1]
_SECRET = 'root:secret'

# Calls that open a file by its path, and where they open none of a run; those
# of /proc are none either.
_OPENING = {
  'open', 'read_bytes', 'read_text', 'write_bytes', 'write_text', 'fdopen',
  'load_file', 'safe_open',
  'fromfile', 'loadtxt', 'genfromtxt', 'memmap', 'copyfile', 'copy2', 'copy',
  'copytree', 'imread', 'mimread', 'FileIO', 'GzipFile', 'open_code',
}  # fmt: skip
_ELSEWHERE = {
  # Of the library itself, or of its clone.
  'cli/bench_command.py',
  'cli/commands.py',
  'cli/health_checks.py',
  'cli/known_flags.py',
  'cli/list_command.py',
  'inference/browser_members.py',
  'import_guard.py',  # Of installed packages.
  'reporting/page.py',
  'reporting/saved_games.py',
  # Scripts that draw games, of whoever made the game.
  'inference/live_game.py',
  # What the user gives to the command line.
  'records/config_files.py',
  'runtime/devices.py',
  # Folders that a runtime makes for itself.
  'runtime/distributed/leftovers.py',
  'acme/namespaces.py',
  'runtime/distributed/ray_engine.py',
  # Tables that a run, a sweep or a script of this process writes.
  'records/loggers.py',
  'reporting/sweep_figures.py',
}
_METHODS = {'copy': {'shutil'}, 'load': {'np', 'jnp', 'numpy'}}


def _opens(path):
  """Yields the calls in a file that may open another one."""
  for node in ast.walk(ast.parse(path.read_text('utf-8'))):
    if isinstance(node, ast.Call) and "'/proc/" not in ast.unparse(node):
      function = node.func
      name = getattr(function, 'attr', getattr(function, 'id', ''))
      owner = getattr(getattr(function, 'value', None), 'id', None)
      if name in _METHODS:
        if owner in _METHODS[name]:
          yield node.lineno
      elif name in _OPENING and owner not in ('files', 'webbrowser'):
        # Loggers have a method of this name.
        if not (name == 'open' and owner in ('one', 'self')):
          yield node.lineno


def test_nothing_else_opens_a_file_of_a_run():
  found = {}
  for path in _PACKAGE.rglob('*.py'):
    name = path.relative_to(_PACKAGE).as_posix()
    if name not in _ELSEWHERE | {'records/files.py'}:
      found |= {f'{name}:{line}': path for line in _opens(path)}
  # The file of arrays is decompressed after it was opened.
  path = _PACKAGE / 'records/array_files.py'
  found = {key: p for key, p in found.items() if p != path}
  assert not found
  assert len(list(_opens(path))) == 1


@pytest.fixture(name='secret')
def fixture_secret(tmp_path):
  path = tmp_path / 'secret'
  path.write_text(_SECRET)
  return path


@pytest.mark.parametrize('name', ['a.gif', 'videos/a.gif', 'logs/a.jsonl'])
def test_links_pipes_and_devices_are_refused(tmp_path, secret, name):
  run = tmp_path / 'run'
  path = run / name
  path.parent.mkdir(parents=True)
  path.symlink_to(secret)
  for mode in ('rb', 'wb', 'ab'):
    with pytest.raises(OSError, match=f'{name} is a link or in one; put'):
      files.opened(path, mode)
  assert secret.read_text() == _SECRET
  path.unlink()
  os.mkfifo(path)
  with pytest.raises(OSError, match='is not a file|No such device'):
    files.read_bytes(path)
  path.unlink()
  path.mkdir()
  with pytest.raises(OSError, match='is not a file|directory'):
    files.read_bytes(path)
  with pytest.raises(OSError, match='is not a file'):
    files.read_bytes(pathlib.Path('/dev/zero'))


def test_a_linked_folder_of_a_run_is_refused_and_a_linked_run_is_not(tmp_path):
  real = tmp_path / 'real'
  (real / 'logs').mkdir(parents=True)
  (real / 'logs' / 'a').write_text('3')
  (tmp_path / 'link').symlink_to(real)
  assert files.read(tmp_path / 'link' / 'logs' / 'a') == '3'
  run = tmp_path / 'run'
  run.mkdir()
  for folder in ('logs', 'videos', 'checkpoints', 'output', 'games', 'best'):
    (run / folder).symlink_to(real / 'logs')
    with pytest.raises(OSError, match='is a link or in one'):
      files.read(run / folder / 'a')
    with pytest.raises(OSError, match='is a link or in one'):
      files.write_atomically(run / folder / 'b', '3')
  assert [path.name for path in (real / 'logs').iterdir()] == ['a']


def _make_sparse(path, size):
  path.parent.mkdir(parents=True, exist_ok=True)
  with open(path, 'ab') as file:
    file.truncate(size)


def test_a_file_that_is_too_large_is_refused(tmp_path):
  path = tmp_path / 'config.json'
  _make_sparse(path, 64 * 2**30)
  tracemalloc.start()
  with pytest.raises(OSError, match=r'config.json has 68719476736 bytes, more'):
    files.read_bytes(path)
  log = loggers.log_path(tmp_path, 'train')
  _make_sparse(log, 64 * 2**30)
  with pytest.raises(ValueError, match='has 68719476736 bytes, more than'):
    loggers.read_jsonl(log)
  assert tracemalloc.get_traced_memory()[1] < 2**20
  tracemalloc.stop()


def test_logs_are_read_by_lines_and_appended_to_after_the_last(tmp_path):
  path = tmp_path / 'log.jsonl'
  row = {'text': 'x' * 100}
  files.append_rows(path, [row] * 3_000)
  with open(path, 'ab') as file:
    file.write(b'{"incomplete": ' + b'y' * 200_000)
  assert loggers.read_jsonl(path) == [row] * 3_000
  files.append_rows(path, [{'last': 1}])
  assert loggers.read_jsonl(path) == [*[row] * 3_000, {'last': 1}]
  files.append_rows(path, [row, row])
  files.cut_rows(path, lambda row: 'last' in row)
  assert loggers.read_jsonl(path) == [row] * 3_000
  files.cut_rows(path, lambda row: 'text' in row)
  assert not path.read_bytes()
  path.write_bytes(b'z' * 200_000)  # No line is complete.
  files.append_rows(path, [row])
  assert loggers.read_jsonl(path) == [row]


def _save(directory, size):
  """Writes arrays, and makes them `size` bytes long, as an attacker would."""
  array_files.write(directory, 'state', {'a': jnp.ones(3), 'b': jnp.ones(2)})
  path = directory / 'state.safetensors'
  if size:
    _make_sparse(path, size)
  return path


def test_arrays_have_the_size_that_their_file_says(tmp_path):
  template = {'a': jnp.zeros(3), 'b': jnp.zeros(2)}
  path = _save(tmp_path, 2**40)
  with pytest.raises(
    array_files.DamagedError, match=r'it has 1099511627776 bytes, not \d+'
  ):
    array_files.read(tmp_path, template)
  path.unlink()
  header = json.dumps(
    {'a': {'dtype': 'U8', 'shape': [2**40], 'data_offsets': [0, 2**40]}}
  ).encode()
  path.write_bytes(len(header).to_bytes(8, 'little') + header)
  for size in (0, 2**62):
    path.write_bytes((size or len(header)).to_bytes(8, 'little') + header)
    with pytest.raises(array_files.DamagedError, match='no file of arrays'):
      array_files.read(tmp_path, template)


def test_only_the_arrays_that_are_asked_for_are_in_memory(tmp_path):
  tree = {'part': {'a': jnp.ones(3)}, 'rest': jnp.zeros(2**22)}
  array_files.write(tmp_path, 'state', tree)
  tracemalloc.start()
  template = {'a': jnp.zeros(3)}
  found, _ = array_files.read(tmp_path, template, part='part')
  assert found['a'].tolist() == [1, 1, 1]
  assert tracemalloc.get_traced_memory()[1] < 2**23
  tracemalloc.stop()


def test_a_compressed_file_that_expands_is_read_by_parts(tmp_path):
  tree = {'a': jnp.ones(3), 'frames': jnp.zeros(2**24, jnp.uint8)}
  array_files.write(tmp_path, 'state', tree)
  path = tmp_path / 'state.safetensors.gz'
  assert path.stat().st_size < 2**17
  found, _ = array_files.read(tmp_path, tree)
  assert found['frames'].shape == (2**24,)
  # A second member that the header does not know.
  content = path.read_bytes() * 2
  path.write_bytes(content)
  manifest = json.loads((tmp_path / 'manifest.json').read_text())
  manifest['files'][path.name] = hashlib.sha256(content).hexdigest()
  text = json.dumps(manifest)
  (tmp_path / 'manifest.json').write_text(text)
  digest = hashlib.sha256(text.encode()).hexdigest()
  (tmp_path / 'manifest.sha256').write_text(f'{digest}  manifest.json\n')
  with pytest.raises(array_files.DamagedError, match='have another size'):
    array_files.read(tmp_path, tree)


def _write_run(run, secret):
  """Writes a folder in which all but the configuration lead to a secret."""
  config = json.loads(
    (loading.TRAINED / 'capture_the_flag' / 'config.json').read_text()
  )
  run.mkdir()
  (run / 'config.json').write_text(json.dumps(config))
  row = {'episode_return': 0.5, 'actor_steps': 100, 'seconds': 1.0}
  population = {
    'actor_steps': 100, 'ratings': [1.0, 2.0], 'games': [1, 1],
    'mean_returns': [0.0, 1.0], 'internal_rewards': [[1.0], [2.0]],
    'payoff_scores': [[0.0, 1.0], [0.0, 0.0]],
    'payoff_games': [[0, 1], [1, 0]],
  }  # fmt: skip
  (run / 'logs').mkdir()
  for label, values in (('train', row), ('population', population)):
    loggers.log_path(run, label).write_text(f'{json.dumps(values)}\n')
  for name in (
    'videos/a.gif', 'games/20260101-000000-catch.json', 'lineage.jsonl',
    'tournament.json', 'command.txt', 'game.json', 'about.json',
    'logs/learner.jsonl', 'logs/evaluation.jsonl', 'output/nodes.json',
    'report.html', 'lock',
  ):  # fmt: skip
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(secret)


@pytest.mark.filterwarnings('ignore::ftwax.records.files.DamagedRecordWarning')
def test_a_report_of_a_foreign_run_publishes_no_file(
  tmp_path, secret, monkeypatch
):
  secret.write_bytes(b'GIF89a' + _SECRET.encode())
  run = tmp_path / 'run'
  _write_run(run, secret)
  monkeypatch.chdir(tmp_path)
  path = report.make_report(run)
  assert not path.is_symlink() and secret.read_bytes().startswith(b'GIF89a')
  text = path.read_text('utf-8')
  coded = base64.b64encode(secret.read_bytes()).decode()
  assert _SECRET not in text and coded not in text and 'GIF' not in text
  facts = json.dumps(run_tail.RunTail(run).facts())
  rows = json.dumps(run_tail.RunTail(run).read({}))
  assert _SECRET not in facts + rows
  with pytest.raises((ValueError, checkpoints.CheckpointError)):
    ftwax.load(run)
  with pytest.raises(ValueError, match='is a link or in one'):
    loading.export(run, tmp_path / 'out')
  with pytest.raises(run_directory.RunDirectoryError, match='is a link'):
    with run_directory.lock(run):
      pass


def test_a_resumed_foreign_run_writes_to_no_other_file(tmp_path, secret):
  run = run_directory.create(tmp_path, 'a', 0, {'b': 1})
  log = loggers.log_path(run, 'train')
  log.parent.mkdir()
  log.symlink_to(secret)
  with pytest.raises(OSError, match='is a link or in one'):
    loggers.JSONLLogger(log)
  (run / 'command.txt').unlink()
  (run / 'command.txt').symlink_to(secret)
  with pytest.raises(run_directory.RunDirectoryError, match='is a link'):
    run_directory.open_existing(run, {'b': 1})
  assert secret.read_text() == _SECRET


@pytest.mark.parametrize('name', ['tensorboard', 'tensorboard/train'])
def test_a_resumed_foreign_run_logs_into_no_other_folder(tmp_path, name):
  run, outside = tmp_path / 'run', tmp_path / 'outside'
  outside.mkdir()
  (run / name).parent.mkdir(parents=True)
  (run / name).symlink_to(outside)
  with pytest.raises(OSError, match=f'{name} is a link; put a copy there'):
    loggers.make_logger_factory(run)('train')
  assert not any(outside.iterdir())


def test_figures_and_films_are_written_through_no_link(tmp_path, secret):
  run = tmp_path / 'run'
  run.mkdir()
  pid = os.getpid()
  for name in (
    'exploitability.html', f'.exploitability.html.{pid}.tmp', '.film.gif.tmp',
    'film.gif', f'.film.gif.{pid}.tmp',
  ):  # fmt: skip
    (run / name).symlink_to(secret)
  bounds = [exploiting.Bound(10, 0, 0.5, 0.4, 0.6, 8.0)]
  frames = np.zeros((2, 4, 4, 3), np.uint8)
  for write in (
    lambda: exploiting.write(run, 'member 0', bounds),
    lambda: videos.write_gif(run / 'film.gif', frames),
  ):
    # The name of the temporary file was guessed, which is cleared away.
    with pytest.raises(OSError, match='is a link or in one'):
      write()
    write()
  assert secret.read_text() == _SECRET
  for name in ('exploitability.html', 'film.gif'):
    assert not (run / name).is_symlink()
  (run / 'videos').symlink_to(tmp_path)
  with pytest.raises(OSError, match='is a link or in one'):
    videos.write_gif(run / 'videos' / 'secret', frames)
  assert secret.read_text() == _SECRET


def test_too_large_records_of_a_run_are_told_in_one_line(tmp_path, monkeypatch):
  run = tmp_path / 'run'
  _make_sparse(run / 'config.json', 64 * 2**30)
  for read in (
    ftwax.load,
    lambda run: run_directory.read_config(run),
    lambda run: commands.main(['evaluate', str(run)]),
  ):
    with pytest.raises((ValueError, SystemExit)) as info:
      read(run)
    assert 'has 68719476736 bytes' in str(info.value)
    assert '\n' not in str(info.value).removesuffix(
      '\n(-v=1 prints the traceback.)'
    )
