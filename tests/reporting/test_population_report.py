import html.parser
import json
import re
import sys

import fakes
import numpy as np
import pytest

from ftwax import hyperparameters
from ftwax.agents import impala
from ftwax.environments import games
from ftwax.records import (
  files,
  game_files,
  loggers,
  run_directory,
  tournament_files,
)
from ftwax.reporting import (
  evaluation_curves,
  page,
  population_figures,
  report,
  run_facts,
  saved_games,
  videos,
)
from ftwax.reporting import history as history_lib

NUM_MEMBERS = 3
EVENT_NAMES = ('captured', 'was <tagged>')


def _row(games, **changes):
  """Returns a row of the log at which members have played so many games."""
  rng = np.random.default_rng(games)
  return {
    'generation': games,
    'games': [games - 1, games, games + 1],
    'ratings': rng.normal(1000.0, 50.0, NUM_MEMBERS),
    'mean_returns': np.full((NUM_MEMBERS,), -np.inf),
    'internal_rewards': rng.uniform(-1.0, 1.0, (NUM_MEMBERS, 2)),
    'payoff_scores': [[0.0, 3.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
    'payoff_games': [[0.0, 4.0, 2.0], [4.0, 0.0, 0.0], [2.0, 0.0, 0.0]],
    'hyperparameters/learning_rate': rng.uniform(1e-4, 1e-3, NUM_MEMBERS),
    'hyperparameters/discount': np.full((NUM_MEMBERS,), 0.99),
    'hyperparameters/max_gradient_norm': np.full((NUM_MEMBERS,), np.inf),
    **changes,
  }


def _log(run_dir, rows):
  logger = loggers.JSONLLogger(loggers.log_path(run_dir, history_lib.LABEL))
  for row in rows:
    logger.write(row)
  logger.close()


def _copy(generation, member, parent, games):
  return {
    'generation': generation, 'member': member, 'parent': parent,
    'games': games,
  }  # fmt: skip


LINEAGE = [
  {'generation': 0, 'num_members': NUM_MEMBERS},
  _copy(1, 0, 1, 10),
  # At once: each takes what the other one was before.
  _copy(2, 1, 2, 20),
  _copy(2, 2, 0, 21),
]


@pytest.fixture
def run_dir(tmp_path):
  _log(tmp_path, [_row(games) for games in (10, 20, 30)])
  text = ''.join(json.dumps(row) + '\n' for row in LINEAGE)
  (tmp_path / 'lineage.jsonl').write_text(text)
  return tmp_path


TOURNAMENT = tournament_files.Results(
  players=('member 0', '<random>'),
  num_members=1,
  anchor=1,
  ratings=np.array([-50.0, 0.0]),
  lows=np.array([-60.0, 0.0]),
  highs=np.array([-40.0, 0.0]),
  win_rates=np.array([[np.nan, 0.2], [0.8, np.nan]]),
  half_widths=np.full((2, 2), 0.1),
  num_games=20,
)


def _write_game(run_dir, event_names):
  spec = fakes.make_vector_spec()
  game_files.write(run_dir, games.GameSpec(spec, (0,), tuple(event_names)))


class _Page(html.parser.HTMLParser):
  """What a page holds: headings, cells of tables, pictures and figures."""

  def __init__(self, text):
    super().__init__()
    self.texts, self.images, self.tags, self.alts = [], [], set(), []
    self.figures, self._holds, self._again = [], '', ''
    self.feed(text)

  def handle_starttag(self, tag, attributes):
    self.tags.add(tag)
    attributes = dict(attributes)
    if tag in ('nav', 'noscript'):  # They say again what stands there.
      self._again = tag
    self._holds = attributes.get('class', tag) if tag == 'script' else ''
    if tag == 'img':
      self.images.append(attributes['src'])
      self.alts.append(attributes['alt'])

  def handle_endtag(self, tag):
    self._holds = ''
    self._again = '' if tag == self._again else self._again

  def handle_data(self, data):
    if self._holds == 'figure':
      self.figures.append(json.loads(data))
      self.alts.append(self.figures[-1]['alt'])
    elif data.strip() and not self._holds and not self._again:
      self.texts.append(data)


def _read(path):
  return _Page(path.read_text('utf-8'))


def test_the_report_of_a_run_in_full(run_dir):
  frames = np.zeros((3, 4, 5, 3), np.uint8)
  videos.write_gif(run_dir / 'videos' / 'game_000010.gif', frames)
  path = loggers.log_path(run_dir, 'train')
  path.write_text('{"actor_steps": 10, "episode_return": 2.5}\n')
  loggers.log_path(run_dir, 'population').unlink()
  rates = np.ones((NUM_MEMBERS, 2))
  _log(run_dir, [_row(games, event_rates=rates) for games in (10, 20)])
  _write_game(run_dir, EVENT_NAMES)
  tournament_files.write(run_dir, TOURNAMENT)
  path = report.make_report(run_dir, 'A & B')
  assert path == run_dir / 'report.html'
  found = _read(path)
  for text in (
    'A & B', 'Members', 'Games', 'game 000010', 'Elo in training games',
    'Tournament', 'Diversity',
    'Win rates in training', 'Descent', 'Hyperparameters',
    'Internal rewards', 'Events in a game', 'Learning curve', 'Run',
  ):  # fmt: skip
    assert text in found.texts, text
  assert 'Returns' not in found.texts
  for table in (
    ['player', 'Elo above <random>', '95%', '<random>', '0', '0 to 0',
     'member 0', '-50', '-60 to -40'],
    ['player', 'score against Nash', 'weight in Nash',
     '<random>', '0.50', '1.00', 'member 0', '0.20', '0.00'],
  ):  # fmt: skip
    start = found.texts.index(table[1]) - 1
    assert found.texts[start : start + 9] == table
  kinds = [figure['kind'] for figure in found.figures]
  # Besides curves: 2 hyperparameters, 2 weights and the rates of 2 events.
  assert kinds == ['lines', 'intervals', 'lines', 'descent', *['lines'] * 5]
  assert found.figures[0]['lines'][0]['y'] == [2.5]
  # One page that needs no other file.
  assert len(found.images) == 1
  assert found.images[0].startswith('data:image/')
  assert not found.tags & {'link', 'iframe'}
  assert not re.findall('(?:src|href)="(?!data:|#)', path.read_text('utf-8'))


def test_alt_texts_say_what_is_drawn(run_dir):
  found = _read(report.make_report(run_dir))
  assert found.alts
  assert not set(found.alts) & set(found.texts)
  assert all(len(alt.split()) > 5 for alt in found.alts)
  ratings = np.asarray(_row(30)['ratings'])
  assert (
    f'{ratings.max():.0f}, {ratings.mean():.0f} on average' in found.alts[0]
  )


def test_names_of_events_are_words(run_dir):
  names = ('captured', 'i_was_tagged_with_flag')
  _write_game(run_dir, names)
  text = report.make_report(run_dir).read_text()
  assert 'I was tagged with flag' in text
  assert 'i_was' not in text


def test_facts_of_the_run(tmp_path, monkeypatch):
  monkeypatch.setattr(sys, 'orig_argv', ['python', 'pbt.py', '--seed=7'])
  run_dir = run_directory.create(tmp_path, 'a', 7, {'seed': 7})
  run_directory.open_existing(run_dir, {'seed': 7})
  _log(run_dir, [_row(10, actor_steps=123456, seconds=3723.4)])
  texts = _read(report.make_report(run_dir)).texts
  facts = texts[texts.index('Run') + 1 :]
  facts = dict(zip(facts[::2], facts[1::2], strict=True))
  assert facts['command'] == 'python pbt.py --seed=7'
  assert facts['started'][:2] == '20' and facts['started'].endswith('+00:00')
  assert facts['resumed'].startswith('1 times, last at 20')
  assert facts['seed'] == '7'
  assert facts['environment steps'] == '123,456'
  assert facts['duration'] == '1:02:03'
  assert facts['versions'].startswith('ftwax ')
  versions = json.loads((run_dir / 'versions.json').read_text())
  assert facts.get('commit') == versions.get('commit')


def test_evaluations_against_opponents(run_dir):
  logger = loggers.JSONLLogger(loggers.log_path(run_dir, 'evaluation'))
  for steps, score in ((10, 0.5), (30, 0.6), (20, 0.75), (40, 0.9)):
    logger.write(
      {
        'actor_steps': steps,
        'seconds': steps / 10,
        'episode_return': 1.0,
        'scores/random': 0.9,
        'scores/very_strong': 0.25,
        'member_scores': [[score, 0.25]] * 3,
        'member_games': [[100, 100]] * 3,
      }
    )
  logger.close()
  evaluations = evaluation_curves.read(run_dir)
  # The run was resumed at 10 steps.
  np.testing.assert_array_equal(evaluations.steps, [10, 20, 40])
  assert evaluations.opponents == ('random', 'very_strong')
  np.testing.assert_allclose(evaluations.scores[:, 0], [0.5, 0.75, 0.9])
  # One opponent is as strong in all evaluations, so members are compared.
  assert evaluations.elo.shape == evaluations.elo_errors.shape == (3, 3)
  assert np.all(np.diff(evaluations.elo, axis=0) > 30.0)
  assert evaluations.opponent_elo[0] == 0.0 < evaluations.opponent_elo[1]
  # Of 200 games.
  assert np.all(np.abs(evaluations.elo_errors - 55.0) < 15.0)
  found = _read(report.make_report(run_dir))
  assert 'Strength in training' in found.texts
  elo, scores = found.figures[1:3]
  assert f'the mean is {evaluations.elo[-1].mean():.0f} above' in elo['alt']
  assert [mark['name'] for mark in elo['marks']] == ['random', 'very strong']
  assert elo['lines'][0]['low'] < elo['lines'][0]['y']
  assert '0.25 against very strong' in scores['alt']
  assert any(
    'Members score 0.90 against random, 0.25 against very strong there' in text
    for text in found.texts
  )


def test_results_and_members_in_numbers(run_dir):
  texts = _read(report.make_report(run_dir)).texts
  ratings = np.asarray(_row(30)['ratings'])
  best = int(ratings.argmax())
  (summary,) = [text for text in texts if 'members trained for' in text]
  assert '3 members trained for 30 games each.' in summary
  assert 'copied others 3 times, and descend from 2 of 3 founders' in summary
  # Constants would only fill the page.
  assert not {'discount', 'max gradient norm'} & set(texts)
  first = texts.index('learning rate') + 1
  assert texts[first] == str(best)
  assert texts[first + 1] == f'{ratings[best]:,.0f}'


def test_a_page_names_one_member_as_the_best(run_dir):
  ratings = np.asarray(_row(30)['ratings'])
  best = (int(ratings.argmax()) + 1) % 3  # Of the games against others.
  scores = np.where(np.arange(3) == best, 0.9, 0.3)
  logger = loggers.JSONLLogger(loggers.log_path(run_dir, 'evaluation'))
  logger.write(
    {
      'actor_steps': 40,
      'scores/random': float(scores.mean()),
      'member_scores': scores[:, None].tolist(),
      'member_games': [[100]] * 3,
    }
  )
  logger.close()
  texts = _read(report.make_report(run_dir)).texts
  start = f'In the last evaluation, the best, member {best}, has '
  assert any(start in text for text in texts)
  assert texts[texts.index('learning rate') + 1] == str(best)
  assert not any('best by' in text for text in texts)


def test_the_report_holds_the_last_games(run_dir):
  saved = saved_games.SavedGames(run_dir / 'games')
  for index in range(9):
    seats = [{'name': f'<{index}>', 'kind': 'player', 'team': 0, 'rating': 1}]
    saved.save(
      {
        'game': 'a', 'script': 'a', 'code': 'alert()', 'facts': {},
        'seats': seats, 'states': [0], 'outcome': [0.0],
      }
    )  # fmt: skip
  (run_dir / 'games' / '20260101-000000-a.json').write_text('{"half')
  script = run_dir / 'a.js'
  script.write_text('ftwax.games.a = {};')
  with pytest.warns(files.DamagedRecordWarning, match='20260101-000000-a'):
    text = report.make_report(run_dir, scripts=[script]).read_text('utf-8')
  shown = re.search(r'id="games">(.*?)</script>', text)[1]
  names = [game['seats'][0]['name'] for game in json.loads(shown)]
  assert names == [f'<{index}>' for index in range(1, 9)]
  assert text.count('ftwax.games.a = {};') == 1 and 'alert()' not in text
  assert 'Games' in _Page(text).texts


def test_a_single_agent_population_has_returns_and_no_ratings(tmp_path):
  _log(
    tmp_path,
    [
      _row(
        games,
        ratings=np.full((NUM_MEMBERS,), 1000.0),
        mean_returns=np.array([1.0, 3.0, np.nan]) * games,
        payoff_scores=np.zeros((3, 3)),
        payoff_games=np.zeros((3, 3)),
        internal_rewards=np.ones((NUM_MEMBERS, 1)),
      )
      for games in (1, 2)
    ],
  )
  texts = _read(report.make_report(tmp_path)).texts
  assert 'Returns' in texts
  assert not {
    'Elo in training games',
    'Descent',
    'Internal rewards',
    'copies',
  } & set(texts)
  first = texts.index('learning rate') + 1
  assert texts[first : first + 2] == ['1', '6']  # The best member, its return.


def test_no_run_of_a_population(tmp_path):
  with pytest.raises(
    FileNotFoundError, match=r'population log \(.*population.jsonl\) must exist'
  ):
    report.make_report(tmp_path)
  _log(tmp_path, [])
  with pytest.raises(
    ValueError, match=r'population log .* must have at least one row'
  ):
    report.make_report(tmp_path)
  assert not (tmp_path / 'report.html').exists()


def test_names_that_do_not_fit_the_events(run_dir):
  _write_game(run_dir, ('one',))
  with pytest.warns(
    files.DamagedRecordWarning, match=r'game.json .* must name the 2 events'
  ):
    path = report.make_report(run_dir)
  # In a description of a figure.
  assert 'event 1' in path.read_text('utf-8')


def test_what_a_resumed_run_does_again_replaces_the_rest():
  rows = [_row(10), _row(20), _row(30), _row(20, ratings=[1.0, 2.0, 3.0])]
  history = history_lib.from_rows(rows)
  np.testing.assert_array_equal(history.games, [10.0, 20.0])
  np.testing.assert_array_equal(history.ratings[-1], [1.0, 2.0, 3.0])
  assert history.event_rates is None


def test_the_lines_of_the_last_are_those_of_their_donors():
  founders = population_figures.founders(LINEAGE, NUM_MEMBERS)
  # 0 copied 1; then 1 copied 2, and 2 copied 0, whose line was 1's by then.
  np.testing.assert_array_equal(founders, [1, 2, 1])


def test_copies_lie_where_the_population_has_taken_their_steps():
  rows = [_row(games, actor_steps=100 * games) for games in (10, 20, 30)]
  figure = population_figures.descent(LINEAGE, history_lib.from_rows(rows))
  assert [(row['parent'], row['member']) for row in figure['rows']] == [
    (1, 0), (2, 1), (0, 2),
  ]  # fmt: skip
  assert [row['at'] for row in figure['rows']] == [1000, 2000, 2100]
  assert (figure['members'], figure['end']) == (NUM_MEMBERS, 3000)


def test_mean_and_range():
  steps = np.array([0.0, 1.0, 2.0])
  values = np.array([[1.0, 4.0, 16.0], [2.0, 2.0, 2.0], [np.nan] * 3])
  for log, middle in ((False, [7.0, 2.0, None]), (True, [4.0, 2.0, None])):
    line = population_figures.mean_and_range(steps, values, log)
    assert line['y'] == middle
    assert line['low'] == [1.0, 2.0, None] and line['high'] == [16.0, 2.0, None]
  many = population_figures.line(np.arange(999.0), np.ones(999))
  assert len(many['x']) == 200 and many['x'][-1] == 998


def test_schedules_show_what_changes():
  history = history_lib.from_rows([_row(10), _row(20)])
  (figure,) = population_figures.hyperparameters(history, ('learning_rate',))
  assert figure['title'] == 'learning rate' and figure['log']
  assert [line['name'] for line in figure['lines']] == [
    'member 0', 'member 1', 'member 2',
  ]  # fmt: skip
  constant = history._replace(hyperparameters={'a': np.ones((2, 3))})
  assert population_figures.hyperparameters(constant) == []
  rewards = population_figures.internal_rewards(history, EVENT_NAMES)
  assert [figure['title'] for figure in rewards] == list(EVENT_NAMES)
  assert rewards[0]['range'] == rewards[1]['range']
  assert population_figures.event_rates(history, EVENT_NAMES) == []


def test_many_members_are_one_line_and_their_range():
  for num_members, num_lines in ((4, 4), (30, 1)):
    lines = population_figures.member_lines(
      np.zeros(1), np.zeros((1, num_members))
    )
    assert len(lines) == num_lines


def test_log_uniform_priors_are_read_from_the_configuration(tmp_path):
  config = impala.IMPALAConfig()
  config = config.replace(learning_rate=hyperparameters.LogUniform(1e-4, 1e-3))
  run_dir = run_directory.create(tmp_path, 'a', 0, {'agent': config})
  names = run_facts.read_log_scaled(run_dir)
  assert 'learning_rate' in names and 'discount' not in names
  assert run_facts.read_log_scaled(tmp_path) == []


def test_diversity_is_the_events_of_members():
  last = [[1.0, 2.0], [1.0, 4.0], [1.0, 6.0]]
  rates = np.array([[[9.0, 9.0]] * 3] * 8 + [last] * 2)
  history = history_lib.from_rows([_row(i) for i in range(10)])._replace(
    event_rates=rates
  )
  mean = population_figures.mean_rates(history)
  np.testing.assert_array_equal(mean, last)
  assert population_figures.describe(mean, EVENT_NAMES) == (
    'Members differ most in "was <tagged>": from 2 a game (member 0) to 6'
    ' (member 2).'
  )
  table = _Page(population_figures.play_styles(mean, EVENT_NAMES)).texts
  assert table[-8:] == ['captured', *'111', 'was <tagged>', *'246']


def test_results_of_a_tournament_come_back(tmp_path):
  assert tournament_files.read(tmp_path) is None
  tournament_files.write(tmp_path, TOURNAMENT)
  found = tournament_files.read(tmp_path)
  for name in TOURNAMENT._fields:
    np.testing.assert_array_equal(
      getattr(found, name), getattr(TOURNAMENT, name)
    )
  assert tournament_files.member_scores(found) == {'<random>': 0.2}
  (tmp_path / 'tournament.json').write_text('{}')
  with pytest.raises(ValueError, match='must hold the results of a tournament'):
    tournament_files.read(tmp_path)


def test_payoffs_are_numbers_on_shades():
  rates = np.array([[np.nan, 0.25], [1.0, np.nan]])
  table = population_figures.payoff(
    rates, ('a_b', 'c'), np.full((2, 2), 1234), '({:,.0f})'
  )
  assert _Page(table).texts == [
    'a b', 'c', 'a b', '25% (1,234)', 'c', '100% (1,234)',
  ]  # fmt: skip
  shades = re.findall(r'--team(\d)\) (\d+)%', table)
  assert shades == [('0', '0'), ('1', '28'), ('0', '55'), ('0', '0')]


def test_pages_escape_what_they_are_given():
  text = page.table({'<a>': '"&"'}) + page.columns(['<b>'], [['<i>']])
  text += page.heading('<u>') + page.gif(b'', '<s>', '"><em>')
  assert not {'a', 'b', 'i', 'u', 's', 'em'} & _Page(text).tags


def test_cross_play_is_shown(run_dir):
  path = loggers.log_path(run_dir, 'evaluation')
  row = {'actor_steps': 10, 'cross_returns': [[1.5, 0.25], [0.25, 2.0]]}
  path.write_text(json.dumps(row) + '\n')
  texts = _read(report.make_report(run_dir)).texts
  start = texts.index('Cross-play') + 2
  assert texts[start : start + 9] == [
    'member', 'beside 0', 'beside 1', '0', '1.5', '0.25', '1', '0.25', '2'
  ]  # fmt: skip


@pytest.mark.filterwarnings('ignore::ftwax.records.files.DamagedRecordWarning')
@pytest.mark.parametrize(
  'returns', [None, 'x', 1e308, True, [[None]], [['a']], [[1.0, 2.0]]]
)
def test_cross_play_that_is_none_is_left_out(run_dir, returns):
  path = loggers.log_path(run_dir, 'evaluation')
  row = {'actor_steps': 10, 'cross_returns': returns}
  path.write_text(json.dumps(row) + '\n')
  assert 'Win rates in training' in _read(report.make_report(run_dir)).texts


@pytest.mark.parametrize('seconds', [1e300, -1.0, np.nan, 'NaN'])
def test_an_impossible_time_of_training_is_told(run_dir, seconds):
  path = loggers.log_path(run_dir, history_lib.LABEL)
  row = json.loads(path.read_text().splitlines()[-1]) | {'seconds': seconds}
  path.write_text(json.dumps(row) + '\n')
  with pytest.raises(
    ValueError, match=r'population.jsonl .*is no time of train'
  ):
    report.make_report(run_dir)


def test_a_game_with_a_script_that_is_no_text_is_left_out(run_dir):
  game = dict.fromkeys(saved_games._FIELDS) | {'format': saved_games.FORMAT}
  (run_dir / 'games').mkdir()
  (run_dir / 'games' / '20260101-000000-a.json').write_text(
    json.dumps({**game, 'seats': [], 'script': None})
  )
  with pytest.warns(
    files.DamagedRecordWarning, match='script .* must be a name'
  ):
    report.make_report(run_dir)


def _tournament(num_players, num_members=1, win_rate=0.5):
  return TOURNAMENT._replace(
    players=tuple(f'player {i}' for i in range(num_players)),
    num_members=num_members,
    ratings=np.zeros(num_players),
    lows=np.zeros(num_players),
    highs=np.zeros(num_players),
    win_rates=np.full((num_players, num_players), win_rate),
    half_widths=np.full((num_players, num_players), 0.1),
  )


# Two of the players have not met.
_UNKNOWN = _tournament(3)
_UNKNOWN.win_rates[1, 2] = _UNKNOWN.win_rates[2, 1] = np.nan


@pytest.mark.parametrize(
  ('results', 'has_nash'),
  [
    (_tournament(3), True),
    (_UNKNOWN, False),
    (_tournament(150), False),  # It would take a minute.
  ],
)
def test_an_equilibrium_is_shown_if_it_can_be_found(run_dir, results, has_nash):
  tournament_files.write(run_dir, results)
  texts = _read(report.make_report(run_dir)).texts
  assert 'Elo above player 1' in texts
  assert ('weight in Nash' in texts) == has_nash


@pytest.mark.parametrize('results', [_tournament(3, 0), _tournament(513)])
def test_a_tournament_of_impossible_players_is_left_out(run_dir, results):
  tournament_files.write(run_dir, results)
  with pytest.warns(files.DamagedRecordWarning, match='at least one member'):
    texts = _read(report.make_report(run_dir)).texts
  assert 'Tournament' not in texts
