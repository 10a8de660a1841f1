"""The comparison of cores, which is outside of the package, in short form."""

import importlib
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture
def run(monkeypatch, tmp_path):
  monkeypatch.syspath_prepend(str(ROOT / 'benchmarks'))
  memory = importlib.import_module('memory')

  def main(*arguments):
    command = ['memory.py', *arguments, f'--directory={tmp_path}']
    monkeypatch.setattr(sys, 'argv', command)
    memory.main()

  return main


def _write_curve(directory, core, returns, seconds):
  """Writes twenty parts, of which the last half has the given returns."""
  rows = [
    {'steps': 100 * i, 'returns': returns if i > 10 else [0.0, 0.0]}
    for i in range(1, 21)
  ]
  path = directory / f'copying-{core}-2000.jsonl'
  path.write_text(
    '\n'.join(json.dumps({**row, 'seconds': seconds}) for row in rows)
  )


def test_tables_are_at_equal_steps_and_at_equal_time(run, tmp_path, capsys):
  _write_curve(tmp_path, 'lstm', [0.5, 0.7], 2.0)
  _write_curve(tmp_path, 'lru', [0.8, 0.9], 1.0)
  run('table', '--num_steps=2000')
  rows = [
    line.strip('| ').split(' | ')
    for line in capsys.readouterr().out.splitlines()
    if line.startswith('| copying')
  ]
  at_steps, at_time, cost = rows
  assert at_steps[1:3] == ['0.25', '']  # Guessing; nothing of feed_forward.
  assert at_steps[3] == '0.60 (0.50 to 0.70)'
  # In the time of the LRU, the LSTM does half of its steps.
  assert at_time[1] == '20'
  assert at_time[3] == '0.00 (0.00 to 0.00)'
  assert at_time[5] == at_steps[5] == '0.85 (0.80 to 0.90)'
  # Forty seconds for twice 2,000 steps.
  assert cost[2] == '1000.0'
  run('plot')
  assert (tmp_path / 'curves.png').stat().st_size > 10_000


@pytest.mark.slow
def test_a_cell_goes_on_and_its_slow_core_is_cut(run, tmp_path, capsys):
  options = ['--task=copying', '--core=rpth', '--units=8', '--num_seeds=2']
  # Each call does one part, of one iteration, since any return is enough.
  options += ['--num_steps=200', '--stop_at=-9']
  with pytest.raises(SystemExit, match='must hold a run of rpth on copying'):
    run('cut', *options)
  for num_parts in (1, 2):
    run('learn', *options)
    (path,) = tmp_path.glob('*.jsonl')
    curve = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(curve) == num_parts
  assert curve[1]['steps'] > curve[0]['steps'] > 0
  assert len(curve[1]['returns']) == 2
  run('cut', *options)
  capsys.readouterr()
  run('table', *options)
  assert '| intact | each step | first step | zero |' in capsys.readouterr().out


@pytest.mark.slow
def test_speeds(run, capsys):
  options = ['--task=recall_30', '--core=min_gru', '--units=8']
  run('speed', *options, '--length=2', '--num_pairs=2')
  capsys.readouterr()
  run('table', *options)
  *_, last = capsys.readouterr().out.splitlines()
  assert last.startswith('| min_gru | 2 | ')
