"""What the linters and the type checker say."""

import pathlib
import re
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


def test_ci_takes_nothing_that_may_change_under_it():
  for path in (ROOT / '.github').rglob('*.yml'):
    for action in re.findall(r'uses:\s*(\S+)', path.read_text('utf-8')):
      assert re.fullmatch(r'[\w./-]+@[0-9a-f]{40}', action), action
  uv = (ROOT / '.ci' / 'uv.txt').read_text('utf-8')
  assert re.search(r'^uv==[\d.]+ \\\n +--hash=sha256:', uv, re.M)
  assert '--require-hashes -r .ci/uv.txt' in (ROOT / '.ci' / 'run').read_text()


def test_ci_runs_what_is_left_out_by_default():
  default = re.search(
    r"^addopts = .* -m '(.*?)'", (ROOT / 'pyproject.toml').read_text(), re.M
  )
  assert default[1] == 'not slow and not ci'
  ci = (ROOT / '.ci' / 'run').read_text('utf-8')
  words = r'^    uv run --python "\$python" "\$\{extras\[@\]\}" pytest'
  assert re.search(rf'{words}$', ci, re.M)
  assert re.search(rf"{words} -m 'ci and not slow'$", ci, re.M)
