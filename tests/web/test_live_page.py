"""`--watch`: the page of a run that trains."""

import importlib.util
import subprocess
import sys
import time
import urllib.request

import pytest
import web_helpers

from ftwax.cli import commands
from ftwax.runtime import live_page

# Stands in for Python with a page: a link, then what its input asks for.
_FAKE = """#!{python}
import sys
print('Open http://127.0.0.1:1/', flush=True)
{then}
"""


def _start(tmp_path, then, wait):
  """Runs a program that starts a page that is not real; returns its output."""
  fake = tmp_path / 'python'
  fake.write_text(_FAKE.format(python=sys.executable, then=then))
  fake.chmod(0o755)
  code = (
    'import pathlib, runpy, sys, time\n'
    f'page = runpy.run_path({live_page.__file__!r})\n'  # Without JAX.
    f'sys.executable = {str(fake)!r}\n'
    'page["start"](pathlib.Path("runs/catch/1"))\n'
    f'time.sleep({wait})\n'
    'print("trained")\n'
  )
  return subprocess.run(
    [sys.executable, '-c', code],
    capture_output=True,
    text=True,
    timeout=60,
    check=True,
  ).stdout.splitlines()


def test_the_link_is_printed_once_and_the_page_ends_with_the_run(tmp_path):
  assert _start(tmp_path, 'sys.stdin.read()', 2) == [
    'Live page: http://127.0.0.1:1/',
    'trained',
    '`ftwax watch runs/catch/1` opens the page of the run again.',
  ]


def test_a_page_that_fails_leaves_the_run_alone(tmp_path):
  lines = _start(tmp_path, 'sys.exit("No room.")', 2)
  assert lines[1] == (
    'The web page of the run ended (No room.); the run continues. Open the page'
    ' again with `ftwax watch runs/catch/1`.'
  )
  assert lines[2] == 'trained'


def test_a_missing_extra_is_told_before_the_run(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(
    importlib.util, 'find_spec', lambda name: name != 'uvicorn' or None
  )
  with pytest.raises(ImportError, match=r"\['uvicorn'\].*\.\[web\]"):
    live_page.check()
  with pytest.raises(SystemExit) as end:
    run_dir = tmp_path / 'run'
    commands.main(['train', 'catch', '--watch', f'--run_dir={run_dir}'])
  assert 'install -c constraints.txt -e ".[web]"' in str(end.value.code)
  assert not run_dir.exists()


def test_a_page_ends_with_its_input(tmp_path):
  run = web_helpers.make_run(tmp_path / 'run')
  process = subprocess.Popen(
    [
      sys.executable, '-m', 'ftwax', 'watch', str(run), '--end_with_input'
    ],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )  # fmt: skip
  with process:
    address, token = web_helpers.read_link(process.stdout).split('?')
    with urllib.request.urlopen(f'{address}runs?{token}') as response:
      assert b'"experiment":"catch"' in response.read()
    process.stdin.close()
    assert process.wait(30) == 0


@pytest.mark.slow
@pytest.mark.parametrize('name', ['local', 'distributed'])
def test_a_run_is_watched_in_other_runtimes(tmp_path, name):
  run_dir = tmp_path / 'run'
  process = subprocess.Popen(
    [
      sys.executable, '-m', 'ftwax', 'train', 'catch', '--watch',
      f'--runtime={name}', f'--run_dir={run_dir}', '--eval_every=0',
      '--max_num_actor_steps=40000', '--num_environments=4',
    ],
    stdout=subprocess.PIPE,
    text=True,
  )  # fmt: skip
  with process:
    address, token = web_helpers.read_link(process.stdout).split('?')
    rows = b''
    while b'episode_return' not in rows:
      assert process.poll() is None
      with urllib.request.urlopen(f'{address}runs/0/logs?{token}') as response:
        rows = response.read()
      time.sleep(0.2)
    assert f'`ftwax watch {run_dir}`' in process.stdout.read()
    assert process.wait() == 0
  with pytest.raises(OSError, match='refused'):
    urllib.request.urlopen(address)
