"""Runs and experiments as users name them, before anything slow is imported."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from ftwax.cli import commands, sources

_SLOW = ('haiku', 'jax', 'matplotlib', 'optax', 'starlette')

# Runs each command in one process; prints its status, what it says, and the
# slow modules that are there by then.
_RUN = """
import contextlib, io, json, sys
from ftwax.cli import commands

for argv in json.loads(sys.argv[1]):
  said, status = io.StringIO(), 0
  with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
    try:
      status = commands.main(argv)
    except SystemExit as end:
      status = end.code
  slow = sorted(set(sys.modules) & set(json.loads(sys.argv[2])))
  print(json.dumps([argv, status, said.getvalue(), slow]))
"""

_ON_A_RUN = (
  'evaluate', 'film', 'record', 'exploit', 'export', 'report', 'watch', 'play',
)  # fmt: skip


def _try(*commands_of_users):
  done = subprocess.run(
    [sys.executable, '-c', _RUN, json.dumps(commands_of_users),
     json.dumps(_SLOW)],
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  rows = [json.loads(line) for line in done.stdout.splitlines()]
  assert len(rows) == len(commands_of_users)
  return rows


def test_wrong_paths_and_flags_fail_before_slow_imports():
  wrong_paths = [[name, 'runs/missing'] for name in _ON_A_RUN]
  wrong_names = [
    ['train', 'cach'],
    ['train', 'missing.py'],
    ['sweep', 'missing.py:build'],
    ['check', 'missing.py:Env'],
  ]
  wrong_flags = [[name, '--nonsense'] for name in commands.COMMANDS]
  for argv, status, said, slow in _try(
    *wrong_paths, *wrong_names, *wrong_flags
  ):
    assert not slow, (argv, slow)
    if argv in wrong_flags:
      assert status == 2 and 'usage' in said, (argv, status, said)
    elif argv in wrong_paths:
      assert status.startswith('ValueError: there is no runs/missing;'), argv
    else:
      assert argv[1].partition(':')[0] in status, (argv, status)


def test_help_and_lists_need_nothing_slow():
  helps = [[name, '--help'] for name in commands.COMMANDS]
  for argv, status, said, slow in _try(*helps, ['list'], ['--version']):
    assert not slow and not status and said, (argv, status, slow)


def _make_run(path, time):
  path.mkdir(parents=True)
  config = path / 'config.json'
  config.write_text('{}')
  os.utime(config, (time, time))
  return str(path)


def test_a_folder_of_runs_means_the_newest(tmp_path, capsys):
  root = tmp_path / 'runs'
  first = _make_run(root / 'catch' / '1', 10)
  newest = _make_run(root / 'catch' / '2', 30)
  other = _make_run(root / 'pong' / '1', 20)
  assert sources.find_run(first) == first
  assert capsys.readouterr().err == ''
  assert sources.find_run(str(root)) == newest
  assert capsys.readouterr().err == f'The newest run in {root}: {newest}\n'
  assert sources.find_run(str(root / 'pong')) == other
  pathlib.Path(first, 'config.json').unlink()
  with pytest.raises(ValueError, match='there is no run in .*ftwax train'):
    sources.find_run(first)


def test_shipped_agents_have_names():
  assert sources.find_run('capture_the_flag') == 'capture_the_flag'
  with pytest.raises(
    ValueError, match=r"no capture_flag; .*'capture_the_flag'"
  ):
    sources.find_run('capture_flag')


def test_experiments_are_the_files():
  folder = pathlib.Path(sources.EXPERIMENTS)
  assert 'catch' in sources.experiments()
  assert {path.stem for path in folder.glob('[a-z]*.py')} == set(
    sources.experiments()
  )
