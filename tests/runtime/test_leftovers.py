"""Folders and processes of killed runs, and those that only look like them."""

import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from ftwax.runtime.distributed import leftovers


@pytest.fixture(autouse=True)
def _root(tmp_path, monkeypatch):
  monkeypatch.setattr(leftovers.tempfile, 'tempdir', str(tmp_path))
  monkeypatch.setattr(leftovers, '_MAX_PATH', 1000)


def test_folders_of_killed_runs_are_removed_and_of_living_ones_are_not(
  tmp_path,
):
  # A container has its own numbers of processes; only the lock tells.
  code = (
    'import sys, time\n'
    'from ftwax.runtime.distributed import leftovers\n'
    f'leftovers.tempfile.tempdir = {str(tmp_path)!r}\n'
    'leftovers._MAX_PATH = 1000\n'
    'with leftovers.folder() as path:\n'
    '  print(path, flush=True)\n'
    '  time.sleep(1000)\n'
  )
  command = [sys.executable, '-c', code]
  try:
    runs = [
      subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
      for _ in range(2)
    ]
    living, killed = (pathlib.Path(run.stdout.readline()[:-1]) for run in runs)
    runs[1].kill()
    runs[1].wait()
    assert living.exists() and killed.exists()
    assert living.stat().st_mode & 0o777 == 0o700
    with leftovers.folder() as path:
      assert living.exists() and not killed.exists()
      with leftovers.folder():
        assert pathlib.Path(path).exists()
    assert not pathlib.Path(path).exists()
  finally:
    for run in runs:
      run.kill()
      run.communicate()


def test_what_looks_like_a_folder_of_a_run_stays(tmp_path):
  victim = tmp_path / 'victim'
  # A run directory with its own lock, and what earlier versions made.
  finished, earlier = tmp_path / 'ftwax-my-run', tmp_path / 'ftwax-2147483647-a'
  for folder in (victim, finished, earlier):
    folder.mkdir()
    (folder / 'lock').touch()
  (victim / '.ftwax-temporary').touch()
  os.symlink(victim, tmp_path / 'ftwax-link')
  linked = tmp_path / 'ftwax-linked-lock'
  linked.mkdir()
  os.symlink(victim / '.ftwax-temporary', linked / '.ftwax-temporary')
  os.mkfifo(tmp_path / 'ftwax-fifo')
  before = {*tmp_path.rglob('*')}
  with leftovers.folder():
    pass
  assert {*tmp_path.rglob('*')} == before


def test_all_folders_of_a_killed_run_are_removed_at_once(tmp_path):
  code = (
    'import sys, time\n'
    'from ftwax.runtime.distributed import leftovers\n'
    'with leftovers.ended(*sys.argv[1:]):\n'
    '  print(flush=True)\n'
    '  time.sleep(1000)\n'
  )
  folders = [tmp_path / name for name in ('ray', 'token')]
  for folder in folders:
    folder.mkdir()
  run = subprocess.Popen(
    [sys.executable, '-c', code, *map(str, folders)], stdout=subprocess.PIPE
  )
  run.stdout.readline()
  run.kill()
  run.communicate()
  deadline = time.monotonic() + 30
  while any(folder.exists() for folder in folders):
    assert time.monotonic() < deadline
    time.sleep(0.1)


def test_only_what_was_started_is_ended(tmp_path):
  # An editor has the folder's name in its command line.
  code = 'import time; time.sleep(1000)'
  path = str(tmp_path / 'ftwax-a')
  editor = subprocess.Popen([sys.executable, '-c', code, path])
  other = subprocess.Popen(
    [sys.executable, '-c', code],
    env=os.environ | {'FTWAX_STARTED_IN': f'{path}b', 'X': path},
  )
  with leftovers.marking(path):
    child = subprocess.Popen([sys.executable, '-c', code])
  assert 'FTWAX_STARTED_IN' not in os.environ
  try:
    leftovers.kill(path)
    assert child.wait(10) == -9
    assert editor.poll() is None and other.poll() is None
  finally:
    for process in (editor, other, child):
      process.kill()
      process.wait()


@pytest.fixture
def cache(tmp_path, monkeypatch):
  """The user's own folder, apart from the temporary one."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  return tmp_path / 'cache' / 'ftwax' / 'locks'


def test_runs_start_one_at_a_time(cache, monkeypatch, capsys):
  monkeypatch.setattr(leftovers, '_PERIOD_S', 0.01)
  order = []

  def start(number):
    with leftovers.one_at_a_time('Ray'):
      order.append(number)
      time.sleep(0.3)
      order.append(number)

  threads = [threading.Thread(target=start, args=(i,)) for i in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert order[::2] == order[1::2] and sorted(order) == [0, 0, 1, 1, 2, 2]
  told = capsys.readouterr().out.splitlines()
  assert told == ['Another run starts Ray; this one waits for it.'] * 2
  (lock,) = cache.iterdir()
  assert lock.stat().st_mode & 0o777 == 0o600
  assert cache.stat().st_mode & 0o777 == 0o700


def test_a_link_in_place_of_the_lock_is_not_followed(cache, tmp_path):
  cache.mkdir(parents=True)
  (cache / 'starts').symlink_to(tmp_path / 'mine')
  with leftovers.one_at_a_time('Ray'):
    pass
  assert not (tmp_path / 'mine').exists()


def test_another_user_cannot_make_a_run_wait(cache, tmp_path, monkeypatch):
  # Whoever writes to the temporary folder, or has made the folder of locks.
  taken = [tmp_path / f'ftwax-starts-{os.getuid()}', cache / 'starts']
  cache.mkdir(parents=True)
  held = [path.open('w') for path in taken]
  for file in held:
    fcntl.flock(file, fcntl.LOCK_EX)
  own = os.getuid()
  monkeypatch.setattr(os, 'getuid', lambda: own + 1)
  start = time.monotonic()
  with leftovers.one_at_a_time('Ray'):
    assert time.monotonic() - start < 1
  for file in held:
    file.close()


def test_a_stopped_run_is_waited_for_within_limits(cache, monkeypatch, capsys):
  monkeypatch.setattr(leftovers, '_PATIENCE_S', 0.3)
  monkeypatch.setattr(leftovers, '_PERIOD_S', 0.05)
  code = (
    'from ftwax.runtime.distributed import leftovers\n'
    'with leftovers.one_at_a_time("Ray"):\n'
    '  print(flush=True)\n'
    '  input()\n'
  )
  stopped = subprocess.Popen(
    [sys.executable, '-c', code],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )
  try:
    stopped.stdout.readline()
    stopped.send_signal(signal.SIGSTOP)
    start = time.monotonic()
    with leftovers.one_at_a_time('Ray'):
      assert 0.3 <= time.monotonic() - start < 5
  finally:
    stopped.kill()
    stopped.communicate()
  waits, goes = capsys.readouterr().out.splitlines()
  assert waits == 'Another run starts Ray; this one waits for it.'
  assert goes == (
    'It has not ended in 0 s, and may be stopped; this run starts Ray beside'
    ' it.'
  )
