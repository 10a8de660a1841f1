"""The library without what only Linux has, or only Unix: a simulated system.

No machine with macOS or Windows is at hand for each change; the workflow
`.github/workflows/systems.yml` runs the fast tests there.
"""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]

# Other packages are as they are here, so they are imported first.
_HIDE = """
import builtins, io, os, pathlib, select, signal, sys, types
import absl.logging, chex, dm_env, gymnasium, haiku, jax, numpy, optax, rlax
import PIL.Image, rich.progress, scipy.optimize, starlette.applications
import multiprocessing, socket, subprocess, uvicorn, anyio, importlib.metadata
import dm_env.specs, safetensors.numpy, tempfile, shutil, platform
import gymnasium.envs.classic_control.cartpole
platform.platform(), platform.processor(), jax.devices()
gymnasium.make('CartPole-v1').reset()

kind = sys.argv[1]
if kind == 'windows':
  for module in ('fcntl', 'resource', 'pwd', 'grp', 'termios', 'tty'):
    sys.modules[module] = None
  locks = types.ModuleType('msvcrt')
  locks.LK_NBLCK, locks.locking = 2, lambda *args: None
  sys.modules['msvcrt'] = locks
  for name in ('fork', 'getuid', 'geteuid', 'getgid', 'setpriority', 'killpg',
               'fchdir', 'sysconf', 'O_DIRECTORY', 'O_NOFOLLOW', 'O_NONBLOCK',
               'getpgid', 'setsid', 'mkfifo', 'fchmod'):
    if hasattr(os, name):
      delattr(os, name)
  for name in ('SIGHUP', 'SIGPIPE', 'SIGUSR1', 'SIGUSR2', 'SIGXCPU', 'SIGKILL',
               'SIGALRM', 'SIGCHLD', 'pthread_sigmask', 'setitimer'):
    delattr(signal, name)
  del select.poll
  really_open = os.open

  def open_path(path, flags, mode=0o777, *, dir_fd=None):
    if dir_fd is not None:
      raise NotImplementedError('dir_fd')
    if os.path.isdir(path):
      raise PermissionError(13, 'Permission denied', path)
    return really_open(path, flags, mode)

  os.open, os.supports_dir_fd = open_path, set()
for name in ('sched_getaffinity', 'memfd_create', 'posix_fadvise'):
  if hasattr(os, name):
    delattr(os, name)


def is_hidden(path):
  try:
    text = os.fspath(path)
  except TypeError:
    return False
  return isinstance(text, str) and text.startswith(('/proc', '/dev/shm'))


def hidden(function):
  def call(path, *args, **options):
    if is_hidden(path):
      raise FileNotFoundError(2, 'No such file or directory', path)
    return function(path, *args, **options)

  return call


builtins.open = io.open = hidden(open)
os.stat, os.listdir, os.scandir = map(hidden, (os.stat, os.listdir, os.scandir))
exists, isdir = os.path.exists, os.path.isdir
os.path.exists = lambda path: not is_hidden(path) and exists(path)
os.path.isdir = lambda path: not is_hidden(path) and isdir(path)
"""

_IMPORT = """
import importlib
for name in sys.argv[2:]:
  importlib.import_module(name)
print('imported')
"""

_TRAIN = """
import contextlib
from ftwax.cli import commands
with contextlib.suppress(SystemExit):
  commands.main(['train', 'CartPole-v1', '--steps=2_000', '--eval_every=1_000'])
import ftwax
(run,) = pathlib.Path('runs').glob('*/*')
agent = ftwax.load(run)
print('evaluated', agent.evaluate('CartPole-v1', num_episodes=2).shape)
with contextlib.suppress(SystemExit):
  commands.main(['train', 'CartPole-v1', '--steps=3_000', '--eval_every=1_000',
                 '--resume'])
status = commands.main(['report', str(run)])
print('reported', status, (run / 'report.html').exists())
"""

# Parts that need Linux: distributed runs, and what Python 3.10 has alone.
_LINUX = ('acme', 'distributed', 'experiments', 'reverb_learning')


def _modules():
  names = []
  for path in sorted((ROOT / 'ftwax').rglob('*.py')):
    parts = path.relative_to(ROOT).with_suffix('').parts
    is_adapter = '_adapter' in parts[-1] or parts[-1].startswith('atari')
    if not set(parts) & set(_LINUX) and not is_adapter:
      names.append('.'.join(parts).removesuffix('.__init__'))
  return [name for name in names if not name.endswith('__main__')]


def _run(code, kind, *argv, cwd=None):
  return subprocess.run(
    [sys.executable, '-c', _HIDE + code, kind, *argv],
    capture_output=True,
    text=True,
    timeout=500,
    check=False,
    cwd=cwd,
  )


_IS_LINUX = pytest.mark.skipif(
  sys.platform != 'linux', reason='Other systems are simulated on Linux.'
)


@_IS_LINUX
@pytest.mark.parametrize(
  'kind', [pytest.param('macos', marks=pytest.mark.ci), 'windows']
)
def test_every_module_of_the_pure_half_is_imported(kind):
  pytest.importorskip('uvicorn', reason='the extra web is not there')
  modules = _modules()
  assert len(modules) > 150 and 'ftwax.runtime.runs' in modules
  done = _run(_IMPORT, kind, *modules)
  assert done.stdout.strip() == 'imported', done.stderr[-2000:]


def test_every_module_is_imported_here():
  pytest.importorskip('uvicorn', reason='the extra web is not there')
  done = subprocess.run(
    [sys.executable, '-c', f'import sys\n{_IMPORT}', 'here', *_modules()],
    capture_output=True,
    text=True,
    timeout=500,
    check=False,
  )
  assert done.stdout.strip() == 'imported', done.stderr[-2000:]


@_IS_LINUX
def test_a_name_that_only_linux_has_is_found(tmp_path):
  (tmp_path / 'one.py').write_text('import signal\nsignal.SIGHUP\n')
  done = _run(_IMPORT, 'windows', 'one', cwd=tmp_path)
  assert "no attribute 'SIGHUP'" in done.stderr
  (tmp_path / 'two.py').write_text('import fcntl\n')
  assert 'fcntl' in _run(_IMPORT, 'windows', 'two', cwd=tmp_path).stderr


@_IS_LINUX
@pytest.mark.parametrize('kind', ['macos', 'windows'])
@pytest.mark.slow
def test_cartpole_is_trained_resumed_and_reported(kind, tmp_path):
  done = _run(_TRAIN, kind, cwd=tmp_path)
  assert 'evaluated (2,)' in done.stdout, done.stderr[-3000:]
  assert 'reported 0 True' in done.stdout, done.stderr[-3000:]


def test_paths_of_a_run_are_names_on_every_system():
  """No name of a file in the library holds what Windows refuses."""
  for path in ROOT.joinpath('ftwax').rglob('*'):
    assert not set(path.name) & set('<>:"|?*\\'), path
  tree = ast.parse((ROOT / 'ftwax/records/run_directory.py').read_text())
  names = [
    node.value.value
    for node in tree.body
    if isinstance(node, ast.Assign)
    and ast.unparse(node.targets[0]).endswith('_FILE')
    and isinstance(node.value, ast.Constant)
  ]
  assert len(names) > 7
  assert all(not set(name) & set('<>:"|?*\\ ') for name in names)
