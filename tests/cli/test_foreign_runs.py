"""Folders of an attacker, or of another version: no code runs, no traceback."""

import contextlib
import importlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

import ftwax
from ftwax import errors
from ftwax.cli import commands, launch
from ftwax.inference import loading
from ftwax.records import (
  checkpoints,
  config_files,
  loggers,
  run_directory,
)
from ftwax.web import run_tail

_MARKER = 'ran'
_GAME = f"""
import pathlib
pathlib.Path(__file__).with_name('{_MARKER}').touch()


def build():
  raise AssertionError
"""
_MODULES = ('game', 'my-game', 'éa')
_DEVICE = ['--runtime=device']

# Values of a configuration that name the attacker's code, or that of others.
_FOREIGN = {
  'environment': [
    'game:build',
    'game:Evil-v0',
    'game:Evil-v0\n',
    'my-game:Evil-v0',
    'éa:Evil-v0',
    {'__type__': 'functools:partial', 'func': 'game:build', 'args': [],
     'keywords': {}},
    {'__type__': 'game:Game'},
    {'__type__': 'game:build'},
    {'__type__': 'game.build'},
    'os:system',
    'ftwax.cli.launch:main',
    # What makes games calls its first argument with its second.
    {'__type__': 'functools:partial',
     'func': 'ftwax.environments.game_vectors:make_games',
     'args': ['ftwax.experiments.pbt_quadratic:main',
              [{'__type__': 'ftwax.experiments.pbt_quadratic:Options',
                'num_steps': 2, 'directory': _MARKER}], 'name'],
     'keywords': {}},
    {'__type__': 'vector', 'make': {'__type__': 'game:build'}},
    {'__type__': 'vector', 'make': 'game:build'},
    {'__type__': 'catch.game', 'rows': 'game:Evil-v0'},
    {'__type__': 'any_game.game', 'library': 'game', 'name': 'Evil-v0'},
    {'__type__': 'any_game.game', 'library': 'mpe2', 'name': '../game'},
    {'__type__': 'gymnax.game', 'name': 'game:Evil-v0'},
    'gymnax:game:Evil-v0',
  ],
  'agent': [
    {'__type__': 'game:Agent'},
    {'__type__': 'agent.game'},
    {'__type__': 'game'},
    'game:build',
    {'__type__': 'agent.ppo', 'core': {'__type__': 'game:build'}},
    {'__type__': 'agent.ppo', 'core': 'game:build'},
    {'__type__': 'agent.ppo', 'network': 'game:build'},
    {'__type__': 'agent.ppo', 'loss': {'__type__': 'os:system'}},
    {'__type__': 'agent.ppo', 'tasks': [{'__type__': 'game:build'}]},
  ],
}  # fmt: skip

# Of every command that opens a run, by name.
_ATTACKED = {
  'evaluate': [['evaluate', '.']],
  'film': [['film', '.']],
  'record': [['record', '.', '--games=1', '--out=recorded']],
  'play': [['play', '.']],
  'watch': [['watch', '.']],
  'report': [
    ['report', '.'],
    ['report', '.', '.'],
    ['report', '.', '--match', '0'],
  ],
  'exploit': [['exploit', '.', '--steps=1000']],
  'export': [['export', '.', '--format=stablehlo', '--out=agent']],
  'train': [
    ['train', 'catch', '--run_dir=.', '--resume', '--runtime=device'],
    ['train', 'catch', '--init_from=.', '--run_dir=new', '--runtime=device'],
  ],
}
_NEED_NO_CODE = (['report', '.'], ['report', '.', '.'])


def _write_run(run, **fields):
  """Writes a run of catch in which some fields are the attacker's."""
  (run / 'logs').mkdir(parents=True)
  for name in _MODULES:
    (run / f'{name}.py').write_text(_GAME, 'utf-8')
  (run / 'command.txt').write_text(
    'now python -m ftwax train game.py:build\nnow python game.py\n', 'utf-8'
  )
  config = config_files.to_json(launch.find('catch', _DEVICE).build()) | fields
  (run / 'config.json').write_text(json.dumps(config), 'utf-8')
  row = {'episode_return': 0.5, 'actor_steps': 100, 'seconds': 1.0}
  loggers.log_path(run, 'train').write_text(f'{json.dumps(row)}\n', 'utf-8')


class _Server:
  """Of the page: it looks for the game of the run at once."""

  @staticmethod
  def watch(runs, find_game, save_dir, host, port, end_with_input):
    del save_dir, host, port, end_with_input
    for run in runs:
      find_game(run)


def test_every_command_that_opens_a_run_is_attacked():
  opening = set()
  for name in commands.COMMANDS:
    module = importlib.import_module(f'ftwax.cli.{name}_command')
    fields = getattr(module.Options, '__dataclass_fields__', {})
    if {'run', 'runs', 'source'} & fields.keys():
      opening.add(name)
  assert opening | {'train'} == set(_ATTACKED)


@pytest.mark.filterwarnings('ignore:the loss of the run')
@pytest.mark.parametrize(
  ('field', 'value'),
  [(field, value) for field, values in _FOREIGN.items() for value in values],
)
def test_no_code_of_a_run_runs(tmp_path, monkeypatch, field, value):
  run = tmp_path / 'run'
  _write_run(run, **{field: value})
  # As when a user has changed into the directory.
  monkeypatch.chdir(run)
  monkeypatch.syspath_prepend(str(run))
  monkeypatch.setattr('ftwax.cli.watch_command.import_server', lambda: _Server)
  for argv in itertools.chain(*_ATTACKED.values()):
    if argv in _NEED_NO_CODE:
      assert commands.main(argv) == 0
    elif field == 'agent' or '--init_from=.' not in argv:
      # Of another run only the agent is read.
      message = _refusal(argv)
      # A resumed run names each key that differs.
      assert '\n' not in message or '--resume' in argv, argv
    assert not (run / _MARKER).exists(), argv
  for read in (ftwax.load, lambda run: loading.export(run, tmp_path / 'out')):
    with pytest.raises((ValueError, checkpoints.CheckpointError)) as info:
      read(run)
    assert '\n' not in str(info.value)
  assert not (run / _MARKER).exists()
  assert not {*_MODULES} & sys.modules.keys()


def _aim(text='', **fields):
  """Returns a configuration as text, with other fields of the agent."""
  config = config_files.to_json(
    launch.find('catch', ['--agent=ppo', *_DEVICE]).build()
  )
  config['agent'] |= fields
  return text or json.dumps(config)


@pytest.mark.parametrize(
  'text',
  [
    _aim(newer_option=3),
    _aim(learning_rate=None),
    _aim(priors=None),
    _aim(__type__='agent.impala'),
    _aim(__type__='capture_the_flag.game'),
    _aim(batch_size='many'),
    _aim(core={}),
    _aim(core={'hidden_size': 10**308}),
    _aim(learning_rate=10**400),
    _aim(network={'__type__': 'catch.game'}),
    _aim(network={'__type__': 'rule.by_strength'}),
    _aim(core={'__type__': 'loss.ppo'}),
    _aim(torso={'hidden_sizes': [-3]}),
    _aim().replace('"seed": 0', '"seed": 0, "seed": 1'),
    _aim('[' * 100_000),
    _aim('{"agent": ' * 100_000),
    _aim('{"agent": ' * 3_000 + '1' + '}' * 3_000),
    _aim('null'),
    _aim('{}'),
    _aim(**{'\x1b]0;title\x07': 1}),
    _aim(torso={'entries': {'\x1b[2J': 1}}),
  ],
)
def test_a_foreign_configuration_is_told(tmp_path, monkeypatch, text):
  run = tmp_path / 'run'
  _write_run(run)
  (run / 'config.json').write_text(text, 'utf-8')
  monkeypatch.chdir(run)
  for argv in (
    ['evaluate', '.'],
    ['film', '.'],
    ['export', '.', '--format=stablehlo', '--out=agent'],
    ['train', 'catch', '--init_from=.', '--run_dir=new', '--runtime=device'],
  ):
    message = _refusal(argv)
    assert 'config.json' in message and '\n' not in message, argv
    assert len(message) < 1000 and message.isprintable()
  with pytest.raises((ValueError, checkpoints.CheckpointError)) as info:
    ftwax.load(run)
  assert 'config.json' in str(info.value) and str(info.value).isprintable()


def test_a_resumed_run_tells_what_differs(tmp_path):
  run = tmp_path / 'run'
  for config in ('{"\x1b[2J": 1}', '{"name": ' * 3_000 + '1' + '}' * 3_000):
    _write_run(run)
    (run / 'config.json').write_text(config.replace('\x1b', '\\u001b'), 'utf-8')
    (run / 'versions.json').write_text('{"layout": 6}', 'utf-8')
    message = _refusal(
      ['train', 'catch', '--run_dir', str(run), '--resume', *_DEVICE]
    )
    assert message.replace('\n', '').isprintable()
    shutil.rmtree(run)
  assert 'config.json' in message and 'deep' in message


def test_a_maker_without_its_arguments_is_told(tmp_path):
  _write_run(tmp_path / 'run', environment={'__type__': 'any_game.game'})
  for command in ('evaluate', 'film'):
    message = _refusal([command, str(tmp_path / 'run')])
    assert 'config.json' in message and 'must be made from a seed' in message


@contextlib.contextmanager
def _ends_within(seconds):
  """Raises a TimeoutError in code that hangs."""

  def stop(number, frame):
    del number, frame
    raise TimeoutError

  before = signal.signal(signal.SIGALRM, stop)
  signal.alarm(seconds)
  try:
    yield
  finally:
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings('ignore::ftwax.records.files.DamagedRecordWarning')
@pytest.mark.parametrize(
  'names',
  [
    ['config.json'],
    ['versions.json'],
    ['game.json'],
    ['about.json'],
    ['lock'],
    ['checkpoints', 'logs/train.jsonl'],
    ['command.txt', 'number.txt', 'report.html',
     'tournament.json', 'lineage.jsonl', 'output/nodes.json', 'videos/a.gif',
     'logs/population.jsonl', 'logs/evaluation.jsonl',
     'games/20260101-000000-catch.json'],
  ],
)  # fmt: skip
def test_no_pipe_hangs_who_reads_a_run(tmp_path, monkeypatch, names):
  run = tmp_path / 'run'
  _write_run(run)
  for name in names:
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
  monkeypatch.chdir(run)
  for argv in (
    ['evaluate', '.'],
    ['report', '.', '.'],
    ['train', 'catch', '--run_dir=.', '--resume', '--runtime=device'],
  ):
    with contextlib.suppress(SystemExit), _ends_within(60):
      commands.main(argv)
  with _ends_within(60):
    json.dumps(run_tail.RunTail(run).facts())
    run_tail.RunTail(run).read({})
    run_directory.create_at(tmp_path / 'beside', {})
    with pytest.raises(errors.EXPECTED):
      ftwax.load(run)


def test_no_pipe_is_opened_to_tell_an_error(tmp_path, monkeypatch):
  run = tmp_path / 'run'
  _write_run(run)
  (run / 'config.json').write_text(_aim(learning_rate='Uniform('), 'utf-8')
  monkeypatch.chdir(run)
  for name in ('<unknown>', '<string>'):
    os.mkfifo(name)
  start = time.monotonic()
  with _ends_within(20):
    assert 'or a prior (' in _refusal(['evaluate', '.'])
  assert time.monotonic() < start + 20  # Python swallows the alarm's error.


@pytest.mark.parametrize(
  'argv',
  [
    ['doctor'],
    ['train', 'catch', '--runtime=device', '--max_num_actor_steps=2000',
     '--watch', '--run_dir=run'],
    pytest.param(
      ['train', 'own.py:build', '--run_dir=run', '--environment_processes=1'],
      marks=pytest.mark.ci,
    ),
    pytest.param(
      ['train', 'own.py:build', '--run_dir=run', '--runtime=distributed'],
      marks=pytest.mark.slow,
    ),
  ],
)  # fmt: skip
def test_no_module_of_the_folder_is_imported(tmp_path, argv):
  # Programs that a command starts must not look where the command was started.
  folder = tmp_path / 'folder'
  folder.mkdir()
  for name in (
    'json', 'ftwax', 'jax', 'numpy', 'ast', 'cloudpickle', 'ray', 'gymnasium',
    'starlette', 'uvicorn',
  ):  # fmt: skip
    (folder / f'{name}.py').write_text(_GAME, 'utf-8')
  own = tmp_path / 'own.py'
  own.write_text(_OWN, 'utf-8')
  command = pathlib.Path(sys.executable).with_name('ftwax')
  argv = [word.replace('own.py', str(own)) for word in argv]
  done = subprocess.run(
    [command, *argv], cwd=folder, capture_output=True, text=True, timeout=300
  )
  assert not (folder / _MARKER).exists()
  assert done.returncode == 0 or argv == ['doctor'], done.stderr[-2000:]


_OWN = """
import ftwax
from ftwax import errors
import gymnasium
from ftwax.agents import impala


def build():
  return ftwax.ExperimentConfig(
    agent=impala.IMPALAConfig(batch_size=4, sequence_length=4),
    environment=lambda seed: gymnasium.make('CartPole-v1'),
    max_num_actor_steps=100,
    num_environments=2,
  )
"""


def _refusal(argv):
  """Returns the message with which a command ends."""
  with pytest.raises(SystemExit) as end:
    commands.main(argv)
  assert isinstance(end.value.code, str), argv
  return end.value.code.removesuffix('\n(-v=1 prints the traceback.)')
