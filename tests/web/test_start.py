"""What starts before JAX is imported: pages that only read files."""

import json
import pathlib
import subprocess
import sys
import urllib.request

import pytest
import web_helpers

from ftwax.cli import sources

# Runs a command, until its input ends if it serves a page; then prints CPU
# seconds, and slow modules.
_RUN = """
import json, sys, time
from ftwax.cli import commands

commands.main(sys.argv[1:])
slow = {'haiku', 'jax', 'matplotlib', 'optax'} & set(sys.modules)
print(json.dumps([time.process_time(), sorted(slow)]))
"""

# A slow machine needs more than the second that is promised.
_MAX_SECONDS = 1.5


def _start(*argv):
  return subprocess.Popen(
    [sys.executable, '-c', _RUN, *argv],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )


def _read_page(address):
  with urllib.request.urlopen(address, timeout=60) as answer:
    return answer.read().decode()


def test_watch_serves_a_run_in_a_second_and_without_jax(tmp_path):
  run = web_helpers.make_population_run(tmp_path / 'run', 0)
  process = _start('watch', str(run), '--port=0', '--end_with_input')
  link = web_helpers.read_link(process.stdout)
  assert 'Loading the logs' in _read_page(link)
  address, _, token = link.partition('?')
  (facts,) = json.loads(_read_page(f'{address}runs?{token}'))
  assert facts['strength']['opponents'] == ['random', 'very_strong_script']
  logs = json.loads(_read_page(f'{address}runs/0/logs?{token}'))
  assert len(logs['train']['rows']) == 40
  said, _ = process.communicate('')
  seconds, slow = json.loads(said.splitlines()[-1])
  assert slow == [] and seconds < _MAX_SECONDS


def test_a_report_needs_no_jax(tmp_path):
  run = web_helpers.make_population_run(tmp_path / 'run', 0)
  said, _ = _start('report', str(run)).communicate('')
  path, last = said.splitlines()
  seconds, slow = json.loads(last)
  assert path == str(run / 'report.html') and pathlib.Path(path).exists()
  assert slow == [] and seconds < _MAX_SECONDS


def test_a_folder_of_runs_means_all_of_them_to_watch(tmp_path, capsys):
  runs = [
    web_helpers.make_population_run(tmp_path / 'runs' / 'a' / f'{seed}', seed)
    for seed in range(3)
  ]
  for run, day in zip(runs, (3, 1, 2), strict=True):
    # Copies have other times than what is in them.
    (run / 'command.txt').write_text(f'2026-01-0{day}T00:00:00 train\n')
  folder = str(tmp_path / 'runs')
  found = sources.find_runs(folder)
  assert [pathlib.Path(run).name for run in found] == ['1', '2', '0']
  assert sources.find_runs(str(runs[0])) == [str(runs[0])]
  assert sources.find_run(folder) == str(runs[0])
  assert f'The newest run in {folder}: {runs[0]}' in capsys.readouterr().err
  with pytest.raises(ValueError, match='there is no'):
    sources.find_runs(str(tmp_path / 'missing'))
