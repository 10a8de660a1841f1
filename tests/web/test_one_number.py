"""A number of a run is the same, under the same name, on all of its pages."""

import datetime
import json
import re
import shutil

import numpy as np
import pytest
import web_helpers

from ftwax.environments.capture_the_flag import painting
from ftwax.records import run_directory, tournament_files
from ftwax.reporting import comparison, outcome, page, report
from ftwax.web import run_tail


@pytest.fixture
def run(tmp_path):
  return web_helpers.make_population_run(tmp_path / 'runs' / 'run', 0)


def _write_tournament(run):
  """Writes one of other scores than those of the last evaluation."""
  rates = np.full((5, 5), 0.5)
  rates[:3, 3:] = [[0.9, 0.3]] * 3
  np.fill_diagonal(rates, np.nan)
  tournament_files.write(
    run,
    tournament_files.Results(
      players=('member 0', 'member 1', 'member 2', 'random', 'attacker'),
      num_members=3, anchor=3, ratings=np.array([40.0, 80.0, 60.0, 0.0, 90.0]),
      lows=np.array([20.0, 60.0, 40.0, 0.0, 70.0]),
      highs=np.array([60.0, 100.0, 80.0, 0.0, 110.0]),
      win_rates=rates, half_widths=np.full((5, 5), 0.1), num_games=100,
    ),
  )  # fmt: skip


def _text(html):
  return ' '.join(re.sub('<[^>]*>', ' ', html).split())


@pytest.mark.parametrize('source', [outcome.EVALUATION, outcome.TOURNAMENT])
def test_all_pages_say_one_strength_and_where_it_is_from(run, source):
  if source == outcome.TOURNAMENT:
    _write_tournament(run)
  found, (reached, strength) = run_tail.RunTail(run).facts(), outcome.read(run)
  assert found['outcome'] == [reached, strength]
  assert strength.startswith(f'In the {source}, the best, member ')
  assert strength in report.to_html(run)
  if source == outcome.TOURNAMENT:
    assert 'member 1, has 80 ± 20 Elo above random' in strength
    assert '0.90 against random, 0.30 against attacker' in strength
  against = re.findall(r'(\d\.\d\d) against ([\w ]+?)(?:,| there)', strength)
  assert len(against) == 2
  # The members' table of the report, and that of a comparison.
  other = web_helpers.make_population_run(run.parent / 'other', 1)
  rows = comparison.group([comparison.read(one) for one in (run, other)])
  compared = _text(comparison.write_page(rows, run / 'two.html').read_text())
  for score, name in against:
    assert f'score against {name}, {source}' in compared
    assert f' {score} ' in compared
  assert f'Elo, {source}' in _text(report.to_html(run))


def test_a_return_is_the_same_in_the_terminal_and_on_pages(run):
  said = outcome.describe_episodes(run)
  assert re.fullmatch(r'mean return \S+ \(last 40 of 400 episodes\)', said)
  assert run_tail.RunTail(run).facts()['outcome'][0] == f'M{said[1:]}.'
  path = run / 'logs' / 'evaluation.jsonl'
  path.unlink()
  assert f'M{said[1:]}; in the first tenth' in _text(report.to_html(run))


def test_the_time_of_an_end_is_recorded(run, tmp_path):
  facts = run_tail.RunTail(run).facts()
  assert facts['ended_s'] is None  # It was killed.
  with run_directory.lock(run):
    assert run_tail.RunTail(run).facts()['ended_s'] is None
  assert run_tail.RunTail(run).facts()['ended_s'] < 60.0
  hours = datetime.timedelta(hours=2)
  then = datetime.datetime.now(datetime.timezone.utc) - hours
  (run / run_directory.ENDED_FILE).write_text(f'{then.isoformat()}\n')
  copy = shutil.copytree(run, tmp_path / 'copy', copy_function=shutil.copy)
  seconds = run_tail.RunTail(copy).facts()['ended_s']
  assert seconds == pytest.approx(7_200.0, abs=60.0)
  (run / run_directory.ENDED_FILE).write_text('yesterday\n')
  assert run_tail.RunTail(run).facts()['ended_s'] is None


def test_films_have_the_colours_of_the_pages():
  light = page.read_static('style.css').partition('@media')[0]
  colors = {
    name: tuple(bytes.fromhex(value))
    for name, value in re.findall(r'--(\w+): #(\w{6})', light)
  }
  assert painting.TEAMS == (colors['team0'], colors['team1'])
  grounds = [colors[name] for name in ('floor', 'wall', 'pad')]
  assert [painting.FLOOR, painting.WALL, painting.PAD] == grounds


def test_what_a_run_has_reached_is_plain_json(run):
  json.dumps(run_tail.RunTail(run).facts())
