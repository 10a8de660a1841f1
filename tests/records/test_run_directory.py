import dataclasses
import enum
import functools
import json
import logging
import os
import pathlib
import re
import stat
import subprocess
import sys
import time
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.agents import ppo
from ftwax.networks import cores
from ftwax.records import array_files, config_files, run_directory


class _Uniform(NamedTuple):
  low: float
  high: float


class _LogUniform(NamedTuple):
  low: float
  high: float


class _Core(enum.Enum):
  LSTM = 1


@dataclasses.dataclass(frozen=True)
class _Config:
  batch_size: int = 32
  prior: Any = _Uniform(0.1, 1.0)
  sizes: tuple[int, ...] = (64, 64)
  activation: Any = jnp.tanh
  extra: Any = None


def _module_function(x, y):
  return x, y


class _Initializer:
  def __init__(self, scale):
    self.scale = scale


def _files(path):
  return {p: p.read_bytes() for p in sorted(path.rglob('*')) if p.is_file()}


def test_configs_become_json():
  config = _Config(
    extra={
      'partial': functools.partial(_module_function, 1, y=np.float32(0.5)),
      'class': _Config,
      'enum': _Core.LSTM,
      'path': pathlib.PurePosixPath('a/b'),
      'dtype': np.dtype('float32'),
      'array': jnp.arange(2),
      'infinity': [float('inf'), -float('inf'), float('nan')],
      'set': {'b', 'a'},
      'initializer': _Initializer(2),
      3: True,
    }
  )
  here = __name__
  plain = config_files.to_json(config)
  assert json.loads(json.dumps(plain, allow_nan=False)) == plain
  assert plain == {
    '__type__': f'{here}:_Config',
    'batch_size': 32,
    'prior': {'__type__': f'{here}:_Uniform', 'low': 0.1, 'high': 1.0},
    'sizes': [64, 64],
    'activation': {'__type__': f'{jnp.tanh.__module__}:tanh'},
    'extra': {
      'partial': {'__type__': f'{here}:_module_function', 'x': 1, 'y': 0.5},
      'class': {'__type__': f'{here}:_Config'},
      'enum': f'{here}:_Core.LSTM',
      'path': 'a/b',
      'dtype': 'float32',
      'array': {'__type__': 'array[int32]', 'values': [0, 1]},
      'infinity': ['Infinity', '-Infinity', 'NaN'],
      'set': ['a', 'b'],
      'initializer': {'__type__': f'{here}:_Initializer', 'scale': 2},
      '3': True,
    },
  }


def test_configs_see_the_attributes_of_slots():
  specs = [dm_env.specs.Array((size,), np.float32) for size in (2, 3)]
  ((key, then, now),) = config_files.differences(
    *map(config_files.to_json, specs)
  )
  assert (key, then, now) == ('_shape.0', 2, 3)


@pytest.mark.parametrize(
  'activation', [jax.nn.relu, jax.nn.elu, np.tanh, jnp.add]
)
def test_configs_name_functions_of_libraries(activation):
  plain = config_files.to_json(activation)
  module, _, name = plain['__type__'].rpartition(':')
  assert module.split('.')[0] in ('jax', 'numpy')
  assert name == activation.__name__


def test_configs_name_what_has_no_stable_name():
  with pytest.raises(
    TypeError, match=r'config.extra\[1\].a \(<generator .*\) must be a number'
  ):
    config_files.to_json(_Config(extra=[1, {'a': (i for i in range(3))}]))
  with pytest.raises(TypeError, match=r'config.extra must have strings as key'):
    config_files.to_json(_Config(extra={(1, 2): 3}))


def test_digest_tells_configs_apart():
  digests = {
    config_files.digest(config)
    for config in (
      _Config(),
      _Config(batch_size=33),
      _Config(prior=_LogUniform(0.1, 1.0)),
      _Config(activation=jax.nn.relu),
    )
  }
  assert len(digests) == 4
  assert config_files.digest(_Config()) == config_files.digest(_Config())
  assert {len(digest) for digest in digests} == {64}


def test_create_records_config_versions_and_command(tmp_path, monkeypatch):
  monkeypatch.setattr(sys, 'orig_argv', ['python', 'train.py', '--seed=7'])
  path = run_directory.create(tmp_path / 'runs', 'ctf', 7, _Config())
  assert path.parent == tmp_path / 'runs' / 'ctf'
  assert path.name.endswith('-seed7')
  config = json.loads((path / 'config.json').read_text())
  assert config == config_files.to_json(_Config())
  versions = json.loads((path / 'versions.json').read_text())
  assert versions['jax'] == jax.__version__
  assert versions['numpy'] == np.__version__
  assert versions['python'] == '.'.join(map(str, sys.version_info[:3]))
  command = (path / 'command.txt').read_text()
  assert command.endswith(' python train.py --seed=7\n')
  assert (path / 'number.txt').read_text() == '1\n'
  assert len(list(path.iterdir())) == 4


def test_only_its_user_enters_a_run(tmp_path):
  (tmp_path / 'given').mkdir(mode=0o755)
  for path in (
    run_directory.create(tmp_path, 'catch', 0, {}),
    run_directory.create_at(tmp_path / 'given', {}),
  ):
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_create_gives_each_run_its_own_directory(tmp_path):
  paths = [run_directory.create(tmp_path, 'a', 0, {}) for _ in range(4)]
  assert len(set(paths)) == 4
  assert set((tmp_path / 'a').iterdir()) == set(paths)


@pytest.mark.parametrize('name', ['', '../a', 'a/b', '.a'])
def test_create_refuses_names_of_no_directory(tmp_path, name):
  with pytest.raises(ValueError, match=r'name \(.*\) must consist of letters'):
    run_directory.create(tmp_path, name, 0, {})
  assert not list(tmp_path.iterdir())


def test_create_leaves_nothing_when_config_is_refused(tmp_path):
  with pytest.raises(TypeError, match=r'config \(<object .*\) must be'):
    run_directory.create(tmp_path / 'runs', 'a', 0, object())
  assert not list(tmp_path.iterdir())


def test_create_at_takes_an_empty_directory(tmp_path):
  path = tmp_path / 'run'
  path.mkdir()
  assert run_directory.create_at(path, _Config()) == path
  assert (path / 'config.json').exists()
  assert list(tmp_path.iterdir()) == [path]


def test_create_at_refuses_what_is_not_empty(tmp_path):
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'file').write_text('a')
  before = _files(tmp_path)
  for path in (tmp_path / 'run', tmp_path / 'run' / 'file'):
    with pytest.raises(
      run_directory.RunDirectoryError,
      match=r'run directory \(.*\) must be new or empty, .*; resume that run'
      r' with --resume',
    ):
      run_directory.create_at(path, _Config())
  assert _files(tmp_path) == before


def test_create_at_leaves_nothing_behind_a_failure(tmp_path, monkeypatch):
  def fail():
    raise OSError('disk full')

  monkeypatch.setattr(run_directory, '_command_line', fail)
  with pytest.raises(
    run_directory.RunDirectoryError,
    match=r'run\) must be .*: disk full; choose',
  ):
    run_directory.create_at(tmp_path / 'run', _Config())
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('name', ['file/run', 'x' * 300, '\0', 'file/a/b'])
def test_places_that_cannot_be_written(tmp_path, monkeypatch, name):
  monkeypatch.chdir(tmp_path)
  pathlib.Path('file').write_text('')
  match = r'run directory \(.*\) must be writable, but: '
  with pytest.raises(run_directory.RunDirectoryError, match=match):
    run_directory.create_at(name, _Config())
  with pytest.raises(run_directory.RunDirectoryError, match=match):
    run_directory.create('file', 'a', 0, _Config())
  with (
    pytest.raises(run_directory.RunDirectoryError, match=match),
    run_directory.lock(name),
  ):
    pass


@pytest.mark.parametrize('typed', ['./run/', '../here/run', 'run'])
def test_errors_name_the_path_as_it_was_typed(tmp_path, monkeypatch, typed):
  (tmp_path / 'here').mkdir()
  monkeypatch.chdir(tmp_path / 'here')
  with pytest.raises(
    run_directory.RunDirectoryError, match=re.escape(f'({typed})')
  ):
    run_directory.open_existing(typed, _Config())
  run_directory.create_at(typed, _Config())
  with pytest.raises(
    run_directory.RunDirectoryError, match=re.escape(f'({typed})')
  ):
    run_directory.create_at(typed, _Config())
  with pytest.raises(
    run_directory.RunDirectoryError, match=re.escape(f'run in {typed}, but')
  ):
    run_directory.open_existing(typed, _Config(33))
  assert run_directory.open_existing(typed, _Config()).samefile('run')


def test_an_empty_path_is_not_the_current_directory(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for function in (run_directory.create_at, run_directory.open_existing):
    with pytest.raises(
      run_directory.RunDirectoryError,
      match=r"run directory \(''\) must be a path, but is empty; write . for",
    ):
      function('', _Config())
  assert not list(tmp_path.iterdir())


# The locale of a machine may be ASCII, and a path need not be UTF-8.
@pytest.mark.parametrize(
  ('name', 'utf8_mode'), [('umlaut-ü'.encode(), '0'), (b'latin-\xfc', '1')]
)
def test_paths_in_any_locale(tmp_path, name, utf8_mode):
  code = (
    'import sys\n'
    'import numpy as np\n'
    'from ftwax.records import checkpoints, loggers, run_directory\n'
    'path = run_directory.create_at(sys.argv[1], {"name": sys.argv[1]})\n'
    'run_directory.open_existing(path, {"name": sys.argv[1]})\n'
    'logger = loggers.make_logger_factory(path)("train")\n'
    'logger.write({"loss": 1.0})\n'
    'logger.close()\n'
    'with checkpoints.Checkpointer(path / "checkpoints") as checkpointer:\n'
    '  checkpointer.save(1, {"a": np.ones((3,))})\n'
    '  print(checkpointer.restore({"a": np.ones((3,))})[0]["a"].sum())\n'
  )
  path = os.fsencode(tmp_path) + b'/' + name
  output = subprocess.check_output(
    [sys.executable, '-c', code, path],
    env=os.environ | {'LC_ALL': 'C', 'PYTHONUTF8': utf8_mode},
  )
  assert output == b'[train] loss 1\n3.0\n'
  commands = pathlib.Path(os.fsdecode(path), 'command.txt').read_bytes()
  assert commands.count(name) == 2


def test_open_existing_adds_the_command(tmp_path):
  path = run_directory.create(tmp_path, 'a', 0, _Config())
  before = _files(path)
  assert run_directory.open_existing(path, _Config()) == path
  after = _files(path)
  assert len(after.pop(path / 'command.txt').splitlines()) == 2
  del before[path / 'command.txt']
  assert after == before


def test_open_existing_names_all_that_differs(tmp_path):
  path = run_directory.create(tmp_path, 'a', 0, _Config())
  before = _files(tmp_path)
  changed = _Config(33, _LogUniform(0.1, 2.0), (64, 64, 8), extra='a')
  with pytest.raises(run_directory.ConfigMismatchError) as info:
    run_directory.open_existing(path, changed)
  lines = str(info.value).splitlines()
  assert lines[0].startswith(f'config must be that of the run in {path}, but')
  assert lines[1:-1] == [
    '  batch_size: 32 in the run directory, 33 now',
    f"  prior.__type__: '{__name__}:_Uniform' in the run directory,"
    f" '{__name__}:_LogUniform' now",
    '  prior.high: 1.0 in the run directory, 2.0 now',
    "  extra: None in the run directory, 'a' now",
    "  sizes.2: '<absent>' in the run directory, 8 now",
  ]
  assert lines[-1] == (
    'Resume with the values of the run, or start a new run; init_from starts'
    ' one from what this one has learned.'
  )
  assert _files(tmp_path) == before


def test_open_existing_knows_fields_that_are_newer_than_the_run(tmp_path):
  """Without a record they have their defaults, as when it is loaded."""
  config = ppo.PPOConfig(core=cores.LSTM(8), tasks=('pixel_control',))
  path = run_directory.create(tmp_path, 'a', 0, config)
  file = path / 'config.json'
  recorded = json.loads(file.read_text())
  for part, field in (
    (recorded['core'], 'layer_norm'),
    (recorded['core'], 'dropout'),
    (recorded['tasks'][0], 'is_signal'),
  ):
    del part[field]
  file.write_text(json.dumps(recorded))
  run_directory.open_existing(path, config)
  for changed, line in (
    (
      config.replace(core=cores.LSTM(8, layer_norm=True)),
      "core.layer_norm: '<absent>' in the run directory, True now",
    ),
    (
      config.replace(tasks=('pixel_control', 'value_replay')),
      "tasks.1.cost: '<absent>' in the run directory, 1.0 now",
    ),
    (
      config.replace(core=cores.GRU(8)),
      "core.__type__: 'core.lstm' in the run directory, 'core.gru' now",
    ),
  ):
    with pytest.raises(run_directory.ConfigMismatchError) as info:
      run_directory.open_existing(path, changed)
    assert f'  {line}' in str(info.value).splitlines()


def test_open_existing_lets_chosen_keys_differ(tmp_path):
  path = run_directory.create(tmp_path, 'a', 0, _Config())
  run_directory.open_existing(path, _Config(33), may_differ=('batch_size',))
  with pytest.raises(
    run_directory.ConfigMismatchError, match='differs in 1 of its keys'
  ):
    run_directory.open_existing(path, _Config(33), may_differ=('sizes',))


def test_open_existing_refuses_what_is_no_run(tmp_path):
  for path in (tmp_path, tmp_path / 'absent'):
    with pytest.raises(
      run_directory.RunDirectoryError,
      match=r'run directory \(.*\) must hold a readable config.json',
    ):
      run_directory.open_existing(path, _Config())
  (tmp_path / 'config.json').write_text('{')
  with pytest.raises(run_directory.RunDirectoryError, match='readable config'):
    run_directory.open_existing(tmp_path, _Config())
  assert [p.name for p in tmp_path.iterdir()] == ['config.json']


def test_open_existing_logs_new_versions(tmp_path, caplog):
  path = run_directory.create(tmp_path, 'a', 0, _Config())
  versions = json.loads((path / 'versions.json').read_text())
  (path / 'versions.json').write_text(json.dumps(versions | {'jax': '0.0.1'}))
  with caplog.at_level(logging.WARNING):
    run_directory.open_existing(path, _Config())
  (record,) = caplog.records
  assert record.getMessage().startswith(
    f'jax is {jax.__version__}, but was 0.0.1 when this run began'
  )


def test_newest_run(tmp_path):
  assert run_directory.newest(tmp_path, 'a') is None
  names = [
    '20260102-030405-seed9',
    '20260102-030406-seed0',
    '20260102-030406-seed0-2',
    '20260102-030406-seed0-10',
  ]
  for name in names:
    path = run_directory.create_at(tmp_path / 'a' / name, {})
    assert run_directory.newest(tmp_path, 'a') == path
  run_directory.create_at(tmp_path / 'a' / 'something-else', {})
  (tmp_path / 'a' / '20270102-030406-seed0').mkdir()
  assert run_directory.newest(tmp_path, 'a').name == names[-1]


def test_newest_run_after_the_clock_was_set_back(tmp_path, monkeypatch):
  for year in (2026, 2025, 2027, 2024):
    then = time.struct_time((year, 1, 2, 3, 4, 5, 0, 2, 0))
    monkeypatch.setattr(time, 'gmtime', lambda then=then: then)
    path = run_directory.create(tmp_path, 'a', 0, {})
    assert path.name.startswith(str(year))
    assert run_directory.newest(tmp_path, 'a') == path
  # Runs of before there were numbers are older than those that have one.
  (tmp_path / 'a' / '20270102-030405-seed0' / 'number.txt').unlink()
  assert run_directory.newest(tmp_path, 'a') == path


def test_open_existing_refuses_another_layout(tmp_path):
  path = run_directory.create(tmp_path, 'a', 0, _Config())
  versions = json.loads((path / 'versions.json').read_text())
  del versions['layout']  # As the first layout had it.
  (path / 'versions.json').write_text(json.dumps(versions))
  before = _files(tmp_path)
  with pytest.raises(
    run_directory.RunDirectoryError,
    match=r'run directory \(.*\) has layout 1, that of an older version of'
    rf' ftwax, but must have layout {array_files.LAYOUT}; start a new run, or',
  ):
    run_directory.open_existing(path, _Config(33))
  assert _files(tmp_path) == before


def test_newest_finds_what_create_made(tmp_path):
  path = run_directory.create(tmp_path, 'a', -3, {})
  assert run_directory.newest(tmp_path, 'a') == path


def test_lock_keeps_other_processes_out(tmp_path):
  path = run_directory.create(tmp_path, 'a', 0, {})
  code = (
    'import sys\n'
    'from ftwax.records import run_directory\n'
    'with run_directory.lock(sys.argv[1]):\n'
    '  print("locked", flush=True)\n'
    '  sys.stdin.read()\n'
  )
  with subprocess.Popen(
    [sys.executable, '-c', code, str(path)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
  ) as process:
    assert process.stdout.readline() == b'locked\n'
    with (
      pytest.raises(
        run_directory.RunDirectoryError, match='used by one process at a'
      ),
      run_directory.lock(path),
    ):
      pass
    process.kill()
    process.wait()
  with run_directory.lock(path):
    pass
  with run_directory.lock(path):
    pass


def test_what_killed_writers_left_is_removed(tmp_path):
  made = run_directory.create_at(tmp_path / 'run', {'a': 1})
  process = subprocess.Popen(['true'])
  process.wait()
  for place in (tmp_path, made):
    (place / f'.config.json.{process.pid}.tmp').touch()
    (place / f'.config.json.{os.getpid()}.tmp').touch()
  (tmp_path / f'.run.{process.pid}.tmp').mkdir()
  run_directory.open_existing(made, {'a': 1})
  run_directory.create_at(tmp_path / 'other', {'a': 1})
  left = [path.name for path in tmp_path.rglob('.*.tmp')]
  assert left == [f'.config.json.{os.getpid()}.tmp'] * 2


def test_what_others_leave_beside_a_run_stops_nobody(tmp_path, monkeypatch):
  dead = 2**31 - 1  # No process has this number.
  victim = tmp_path / 'victim'
  victim.mkdir()
  others = tmp_path / 'runs'
  (others / 'other').mkdir(parents=True)
  os.mkfifo(others / f'.pipe.{dead}.tmp')
  os.mkfifo(others / 'other' / 'number.txt')
  os.symlink(victim, others / f'.link.{dead}.tmp')
  os.symlink(victim / 'nothing', others / 'loose')

  def refuse(path, *args, **kwargs):
    raise PermissionError(f'{path} is of another user')

  with monkeypatch.context() as patch:
    patch.setattr(os, 'unlink', refuse)
    patch.setattr(pathlib.Path, 'unlink', refuse)
    run_directory._remove_leftovers(others)
  made = run_directory.create_at(others / 'mine', {})
  assert (made / 'number.txt').read_text() == '1\n'
  assert victim.exists() and not (others / f'.pipe.{dead}.tmp').exists()
