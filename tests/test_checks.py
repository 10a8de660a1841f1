"""What the linters and the type checker say."""

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def _run(*command):
  pytest.importorskip(command[0], reason='the extra dev is not there')
  result = subprocess.run(
    [sys.executable, '-m', *command],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )
  assert result.returncode == 0, result.stdout + result.stderr


def test_lint():
  _run('ruff', 'check', '.')


def test_format():
  _run('ruff', 'format', '--check', '.')


@pytest.mark.slow  # .ci/run calls mypy on each Python.
def test_types(tmp_path):
  _run('mypy', '--cache-dir', str(tmp_path))


def test_no_file_names_an_index():
  """Installs must work wherever packages come from."""
  git = shutil.which('git')
  if git is None or not (ROOT / '.git').exists():
    pytest.skip('not a git checkout')
  listed = subprocess.run(
    [git, 'ls-files'], cwd=ROOT, capture_output=True, text=True, check=True
  )
  marks = ['py' + 'pi.org', 'files.python' + 'hosted', '--index' + '-url']
  names = [name for name in listed.stdout.splitlines() if name]
  assert 'setup.py' in names
  for name in names:
    path = ROOT / name
    if path.is_file():
      text = path.read_text('utf-8', errors='ignore')
      assert not any(mark in text for mark in marks), name
