"""Temporary directories of distributed runs."""

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from ftwax.runtime.distributed import temporary


def test_a_directory_taken_for_that_of_a_dead_run_is_made_anew(
  tmp_path, monkeypatch
):
  monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
  make, made = tempfile.mkdtemp, []

  def make_and_lose(*args, **options):
    made.append(make(*args, **options))
    if len(made) == 1:
      os.rmdir(made[0])
    return made[-1]

  monkeypatch.setattr(tempfile, 'mkdtemp', make_and_lose)
  with temporary.directory() as path:
    assert path.is_dir()
  assert len(made) == 2


@pytest.mark.slow
def test_temporary_files_of_dead_runs_are_removed(tmp_path, monkeypatch):
  monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
  code = (
    'import os, sys\n'
    'from ftwax.runtime.distributed import temporary\n'
    'with temporary.directory() as path:\n'
    '  (path / "x").touch()\n'
    '  print(path, flush=True)\n'
    '  sys.stdin.read()\n'
  )
  with subprocess.Popen(
    [sys.executable, '-c', code],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    env={**os.environ, 'TMPDIR': str(tmp_path)},
  ) as process:
    left = pathlib.Path(process.stdout.readline().strip())
    with temporary.directory() as own:
      assert left.exists()
    assert not own.exists()
    process.kill()
    process.wait()
  assert (left / 'x').exists()
  with temporary.directory():
    assert not left.exists()
