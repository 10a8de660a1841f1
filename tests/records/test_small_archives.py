"""What a small archive becomes: no record takes more memory than a limit."""

import ast
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from ftwax.inference import loading
from ftwax.records import files, game_files, loggers
from ftwax.reporting import saved_games

_PACKAGE = pathlib.Path(files.__file__).parents[1]

# Lists in a list: 3 bytes for 64 in memory.
_NESTED = '{"players": [' + '[],' * 10_000_000 + '[]]}'

# Not by `ru_maxrss`, which a process inherits from the one that starts it.
_REPORT = """
import pathlib, re, sys, time
from ftwax.cli import commands
status = commands.main(['report', sys.argv[1]])
text = pathlib.Path('/proc/self/status').read_text()
peak = int(re.search(r'VmHWM:\\s+(\\d+) kB', text)[1])
print(status, peak / 1000, time.process_time())
"""


@pytest.fixture
def run(tmp_path):
  """A foreign folder that looks like a run."""
  shutil.copytree(loading.TRAINED / 'capture_the_flag', tmp_path / 'run')
  (tmp_path / 'run' / 'logs').mkdir()
  return tmp_path / 'run'


def _report(run):
  done = subprocess.run(
    [sys.executable, '-c', _REPORT, str(run)],
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert not done.returncode, done.stderr[-2000:]
  _, megabytes, seconds = map(float, done.stdout.split()[-3:])
  return megabytes, seconds


def _write_log(run, label, rows):
  loggers.log_path(run, label).write_text(rows, 'utf-8')


def test_records_take_neither_memory_nor_time(run):
  # Compressed, each is some kilobytes.
  row = {'actor_steps': 0, 'episode_return': 1.0, 'num_episodes': 1}
  _write_log(run, 'train', f'{json.dumps(row)}\n' * 1_000_000)
  _write_log(run, 'evaluation', '{}\n' * 5_000_000)
  row = '{"generation": 1, "games": 1, "member": 0, "parent": 0}\n'
  (run / 'lineage.jsonl').write_text(row * 1_000_000)
  (run / 'tournament.json').write_text(_NESTED)
  (run / 'about.json').write_text(_NESTED)
  (run / 'games').mkdir()
  for index in range(3):
    (run / f'games/20260101-00000{index}-catch.json').write_text(_NESTED)
  megabytes, seconds = _report(run)
  # Without records 260 and 5; the lists of one record alone are 2,000.
  assert megabytes < 1000 and seconds < 40


@pytest.mark.parametrize('num_rows', [99_999, 100_000, 100_001, 350_000])
def test_long_logs_are_thinned_evenly(tmp_path, num_rows):
  path = tmp_path / 'log.jsonl'
  path.write_text(''.join(f'{{"x": {i}}}\n' for i in range(num_rows)))
  found = [row['x'] for row in loggers.read_jsonl(path)]
  assert found[0] == 0 and found[-1] == num_rows - 1
  stride = found[1]
  assert found[:-1] == list(range(0, found[-2] + 1, stride))
  assert found[-1] - found[-2] <= stride
  assert (stride == 1) == (num_rows <= 100_000)
  assert 50_000 <= len(found) <= 100_001


def test_rows_that_are_large_in_memory_are_thinned(tmp_path):
  path = tmp_path / 'log.jsonl'
  row = json.dumps({'x': [[]] * 100_000})
  path.write_text(f'{row}\n' * 100)
  found = loggers.read_jsonl(path)
  assert 10 < len(found) <= files.MAX_MEMORY / files.memory_of(row) + 1


def test_a_row_or_record_that_is_too_large_in_memory_is_refused(tmp_path):
  path = tmp_path / 'log.jsonl'
  path.write_text(_NESTED + '\n')
  message = r'values would take some [\d,]+ bytes, more than'
  with pytest.raises(ValueError, match=rf'line 1 of .*{message}'):
    loggers.read_jsonl(path)
  with pytest.raises(ValueError, match=rf'log.jsonl must hold.*{message}'):
    files.read_object(path)


@pytest.mark.parametrize('steps', [1e300, -1, 2**70])
def test_a_number_of_steps_that_is_none_is_told(tmp_path, steps):
  path = tmp_path / 'log.jsonl'
  path.write_text(f'{{"actor_steps": 1}}\n{{"actor_steps": {steps}}}\n')
  with pytest.raises(ValueError, match=r'line 2 .*actor_steps .* no number of'):
    loggers.read_jsonl(path)


@pytest.mark.parametrize('shape', [[2**40], [2**20, 2**20], [-1], ['x'], [1.5]])
def test_specs_of_impossible_sizes_are_told(run, shape):
  game = json.loads((run / 'game.json').read_text('utf-8'))
  game['observations'] = {
    'spec': {
      'kind': 'bounded', 'shape': shape, 'dtype': 'float32', 'name': 'x',
      'minimum': 0.0, 'maximum': 1.0,
    }
  }  # fmt: skip
  (run / 'game.json').write_text(json.dumps(game), 'utf-8')
  with pytest.raises(ValueError, match=r'game.json must hold .*shape \('):
    game_files.read(run)


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    ('teams', ['a']),
    ('teams', [-1, 0]),
    ('teams', [2**31]),
    ('roles', ['a']),
    ('event_names', ['\x1b]0;title\x07']),
    ('event_names', [1]),
    ('headline', {}),
    ('spaces', '\x1b[2J'),
  ],
)
def test_teams_and_names_of_a_game_are_numbers_and_texts(run, field, value):
  game = json.loads((run / 'game.json').read_text('utf-8'))
  (run / 'game.json').write_text(json.dumps({**game, field: value}), 'utf-8')
  with pytest.raises(
    ValueError, match=r'game.json must hold .*must be'
  ) as info:
    game_files.read(run)
  assert '\x1b' not in str(info.value)


@pytest.mark.parametrize('num_members', [-1, 0, 2**16 + 1, 2**31, 2**62])
def test_a_number_of_members_that_no_run_has_is_told(run, num_members):
  config = json.loads((run / 'config.json').read_text('utf-8'))
  config['population']['num_members'] = num_members
  (run / 'config.json').write_text(json.dumps(config), 'utf-8')
  with pytest.raises(ValueError, match=r'num_members \(.* must be from 1 to'):
    loading.load(run)


@pytest.mark.parametrize('depth', [101, 1000, 5000, 10**6])
def test_values_that_are_nested_too_deep_are_refused(depth):
  assert files.parse_text('[' * 100 + ']' * 100)
  for start, end in (('[', ']'), ('{"a":', '}')):
    with pytest.raises((ValueError, RecursionError)):
      files.parse_text(start * depth + '0' + end * depth)


def test_the_estimate_of_memory_is_near():
  for value in ([[]] * 10**5, [{}] * 10**5, [0.5] * 10**5, ['ab'] * 10**5):
    text = json.dumps(value)
    own = json.loads(text)
    taken = sys.getsizeof(own) + sum(map(sys.getsizeof, own))
    assert taken / 1.5 < files.memory_of(text) < 4 * taken


def test_older_games_beyond_a_limit_are_left_out(tmp_path, monkeypatch):
  game = {
    'game': 'x', 'script': 'x', 'code': '', 'facts': {}, 'seats': [],
    'states': [], 'outcome': [],
  }  # fmt: skip
  saved = saved_games.SavedGames(tmp_path)
  names = [saved.save(game) for _ in range(5)]
  size = (tmp_path / f'{names[0]}.json').stat().st_size
  monkeypatch.setattr(files, 'MAX_BYTES', 3 * size + size // 2)
  with pytest.warns(files.DamagedRecordWarning, match='delete some'):
    found = saved.readable()
  assert [name for name, _ in found] == names[:1:-1]


def test_all_json_of_files_is_read_within_the_limit():
  # Those of a page's messages and of the library's own text are short.
  others = {
    'environments/gymnasium_spaces.py', 'records/files.py',
    'records/run_directory.py', 'web/pages.py',
  }  # fmt: skip
  found = set()
  for path in _PACKAGE.rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_text('utf-8'))):
      if isinstance(node, ast.Call):
        if ast.unparse(node.func) in ('json.load', 'json.loads'):
          found.add(path.relative_to(_PACKAGE).as_posix())
  assert found == others
