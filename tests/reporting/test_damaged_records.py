"""Damaged records: the report names the file, leaves it out and goes on."""

import json

import fakes
import pytest

from ftwax.cli import commands
from ftwax.environments import games
from ftwax.inference import named_players
from ftwax.records import files, game_files, run_directory, tournament_files
from ftwax.reporting import report
from ftwax.web import run_tail

_PAIR = [1.0, 2.0]
_ROWS = {
  'logs/train.jsonl': {'episode_return': 0.5, 'actor_steps': 9, 'seconds': 1.0},
  'logs/population.jsonl': {
    'games': _PAIR, 'ratings': _PAIR, 'mean_returns': _PAIR,
    'internal_rewards': [_PAIR, _PAIR], 'payoff_scores': [_PAIR, _PAIR],
    'payoff_games': [_PAIR, _PAIR], 'hyperparameters/discount': _PAIR,
  },
  'logs/evaluation.jsonl': {
    'member_scores': [[0.5], [0.5]], 'member_games': [[9], [9]],
    'scores/random': 0.5, 'actor_steps': 9, 'episode_return': 0.5,
  },
  'lineage.jsonl': {'generation': 1, 'member': 0, 'parent': 1, 'games': 1.0},
}  # fmt: skip
_OBJECTS = {
  'config.json': {'name': 'catch', 'seed': 1, 'population': {'num_members': 2}},
  'versions.json': {'ftwax': '1.0'},
  tournament_files.TOURNAMENT_FILE: {
    'players': ['member 0', 'random'], 'num_members': 1, 'anchor': 1,
    'num_games': 3, 'ratings': _PAIR, 'lows': _PAIR, 'highs': _PAIR,
    'win_rates': [_PAIR, _PAIR], 'half_widths': [_PAIR, _PAIR],
  },
  'games/20260101-000000-catch.json': {
    'format': 'ftwax game 1', 'game': 'catch', 'script': 'catch', 'code': '',
    'facts': {}, 'seats': [], 'states': [], 'outcome': [0], 'time': '2026',
  },
}  # fmt: skip
_GAME = 'game.json'

# Content that is wrong in every file.
_DAMAGES = {
  'not UTF-8': b'\xff{}\n',
  'not JSON': b'{"games": [1,\n',
  'deep': b'[' * 100_000 + b'\n',
  'a list': b'[]\n',
}

# By file, other values of an entry; None for none.
_VALUES = [
  ('logs/population.jsonl', 'ratings', None),
  ('logs/population.jsonl', 'ratings', []),
  ('logs/population.jsonl', 'payoff_games', [_PAIR]),
  ('logs/population.jsonl', 'games', {'a': 1}),
  ('logs/evaluation.jsonl', 'member_games', 'x'),
  ('logs/evaluation.jsonl', 'member_scores', [[0.5]]),
  ('logs/evaluation.jsonl', 'actor_steps', 'x'),
  ('lineage.jsonl', 'member', None),
  ('lineage.jsonl', 'parent', 2),
  (tournament_files.TOURNAMENT_FILE, 'ratings', None),
  (tournament_files.TOURNAMENT_FILE, 'anchor', 2),
  (tournament_files.TOURNAMENT_FILE, 'players', []),
  ('games/20260101-000000-catch.json', 'seats', None),
  ('logs/train.jsonl', 'actor_steps', 'x'),
  (_GAME, 'event_names', None),
  (_GAME, 'event_names', ['one']),
]


@pytest.fixture
def run(tmp_path):
  """A run with all of its records."""
  directory = tmp_path / 'run'
  for name, content in {**_ROWS, **_OBJECTS}.items():
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content) + '\n', 'utf-8')
  spec = games.GameSpec(fakes.make_vector_spec(), (0,), ('one', 'two'))
  game_files.write(directory, spec)
  return directory


def _report(run, name):
  """Makes the report, which must name a file, and returns it as text."""
  with pytest.warns(files.DamagedRecordWarning) as warned:
    assert commands.main(['report', str(run)]) == 0
  for warning in warned:
    assert name in str(warning.message) and '\n' not in str(warning.message)
  path = run / report.REPORT_FILE
  return path.read_text('utf-8') if path.exists() else None


def _check(run, name):
  text = _report(run, name)
  assert (text is None) == (name == 'logs/population.jsonl')
  if text is not None:
    assert 'Members' in text and 'Elo in training games' in text
    assert ('Tournament' in text) == (name != tournament_files.TOURNAMENT_FILE)
    assert ('Descent' in text) == (name != 'lineage.jsonl')
    assert ('Strength in' in text) == (name != 'logs/evaluation.jsonl')
  json.dumps(run_tail.RunTail(run).facts())


@pytest.mark.parametrize(
  ('name', 'damage'),
  [
    *[(name, 'not JSON') for name in (*_ROWS, *_OBJECTS, _GAME)],
    *[('lineage.jsonl', damage) for damage in _DAMAGES],
    *[(tournament_files.TOURNAMENT_FILE, damage) for damage in _DAMAGES],
  ],
)
def test_a_damaged_file_is_left_out(run, name, damage):
  (run / name).write_bytes(_DAMAGES[damage])
  _check(run, name)


@pytest.mark.parametrize(('name', 'key', 'value'), _VALUES)
def test_a_file_with_wrong_entries_is_left_out(run, name, key, value):
  plain = json.loads((run / name).read_text('utf-8'))
  if value is None:
    del plain[key]
  else:
    plain[key] = value
  (run / name).write_text(json.dumps(plain) + '\n', 'utf-8')
  _check(run, name)


def test_a_command_may_be_missing_or_damaged(run):
  for content in (b'', b'\xff\n', b'now'):
    (run / 'command.txt').write_bytes(content)
    assert commands.main(['report', str(run)]) == 0


def test_damaged_ratings_are_left_out(run):
  (run / run_directory.ABOUT_FILE).write_text(
    '{"members": [0], "ratings": [1]}'
  )
  with pytest.raises(ValueError, match='about.json must hold ratings'):
    named_players.read_ratings(run)


def test_a_tournament_rates_members_and_scripts(run):
  results = tournament_files.read(run)
  assert results is not None
  found = named_players.read_ratings(run)
  for name, rating in zip(results.players, results.ratings, strict=True):
    assert found[name] == 1000 + rating
