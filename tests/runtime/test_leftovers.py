"""Folders and processes of killed runs, and those that only look like them."""

import os
import pathlib
import subprocess
import sys
import tempfile
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


def test_runs_start_one_at_a_time(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
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
  (lock,) = tmp_path.iterdir()
  assert lock.stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path, monkeypatch):
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  (tmp_path / f'ftwax-starts-{os.getuid()}').symlink_to(tmp_path / 'mine')
  with leftovers.one_at_a_time('Ray'):
    pass
  assert not (tmp_path / 'mine').exists()
