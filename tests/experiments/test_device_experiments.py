"""Experiments that are no acting loop with a replay server."""

import json
import re

import experiment_commands as commands
import pytest

# On the device a run ends with a whole call.
DEVICE_COMMANDS = {
  'catch': ['catch.py', '--runtime=device', '--num_devices=2'],
  'ftw_memory_lstm': ['ftw_memory.py', '--core=lstm'],
  'memory_dnc': ['memory.py', '--core=dnc', '--runtime=device', '--setting=2'],
}


@pytest.mark.slow
@pytest.mark.parametrize('name', DEVICE_COMMANDS)
def test_experiments_run_on_the_device(tmp_path, monkeypatch, name):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  monkeypatch.delenv('JAX_COMPILATION_CACHE_DIR')
  monkeypatch.setenv('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')
  run_dir = tmp_path / 'run'
  result = commands.run(
    [*DEVICE_COMMANDS[name], '--max_num_actor_steps=1200'], run_dir
  )
  assert result.returncode == 0, result.stderr
  assert re.search(rf'{name}: \d,\d\d\d of 1,200 steps', result.stdout)
  assert (run_dir / 'report.html').exists()
  # What was compiled is kept for the next start.
  assert list((tmp_path / 'ftwax' / 'jax').rglob('jit_call-*'))


@pytest.mark.ci
def test_the_main_job_ends_with_its_report(tmp_path):
  run_dir = tmp_path / 'run'
  arguments = [
    'capture_the_flag.py',
    '--core=lstm',
    '--num_members=2',
    '--num_environments=4',
    '--games_per_pair=2',
    '--max_num_actor_steps=3000',
  ]
  result = commands.run(arguments, run_dir)
  assert result.returncode == 0, result.stderr
  assert f'Report: {run_dir}/report.html' in result.stdout
  assert ' against wanderer, ' in result.stdout
  page = (run_dir / 'report.html').read_text('utf-8')
  assert 'Capture the flag' in page and 'id="games"' in page
  games = [json.loads(path.read_text()) for path in run_dir.glob('games/*')]
  seats = {tuple(seat['name'] for seat in game['seats']) for game in games}
  assert len(seats) == 2
