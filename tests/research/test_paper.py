"""The page of the paper's claims: verdicts, and rows that are kept."""

import dataclasses
import json
import pathlib

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import types
from ftwax.reporting import saved_games

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def paper():
  import paper as module

  return module


def test_a_claim_holds_if_the_interval_is_beyond_the_threshold(paper):
  assert paper.judge((0.6, 0.7), 0.5) == paper.HOLDS
  assert paper.judge((0.4, 0.7), 0.5) == paper.OPEN
  assert paper.judge((0.3, 0.4), 0.5) == paper.FAILS


def test_delayed_actions_take_effect_later(paper):
  counting = types.ActorCore(
    init=lambda key, batch_size: jnp.ones(batch_size, jnp.int32),
    select_action=lambda variables, timestep, state: (state, state + 1),
    get_extras=lambda state: {},
    replace_action=lambda state, action: state,
  )
  timestep = dm_env.TimeStep(*[jnp.zeros(2)] * 4)
  actor = paper.delay(counting, specs.DiscreteArray(9, np.int32), longest=3)
  for delay, expected in ((0, [1, 2, 3, 4]), (2, [0, 0, 1, 2])):
    state, actions = actor.init(jax.random.PRNGKey(0), 2), []
    for _ in range(4):
      action, state = actor.select_action((None, delay), timestep, state)
      actions.append(int(action[1]))
    assert actions == expected


def test_rows_are_kept_unless_they_were_not_tried(paper, monkeypatch, tmp_path):
  calls = []

  def claim(options):
    calls.append(options)
    return paper.Row('Agents win', '0.60', verdicts.pop(0))

  verdicts = [paper.UNTRIED, paper.HOLDS, paper.FAILS]
  monkeypatch.setattr(paper, 'ROWS', {'claim': claim})
  monkeypatch.setattr(paper.common, 'commit', lambda: 'abc1234')
  options = paper.Options(
    directory=str(tmp_path / 'rows'), page=str(tmp_path / 'paper.md')
  )
  paper.main(options)
  paper.main(options)
  paper.main(options)
  assert len(calls) == 2
  page = (tmp_path / 'paper.md').read_text('utf-8')
  assert '| Agents win | 0.60 | holds |' in page
  assert 'game: 1 hold, 0 do not' in page.replace('\n', ' ')


def test_signs_that_priors_give_are_no_finding(paper):
  row = paper.internal_rewards(paper.Options(run='capture_the_flag'))
  assert row.verdict == paper.UNTRIED
  assert 'the priors give them' in row.ours


def test_probes_refuse_games_without_the_situation(paper):
  states = np.zeros((4, 3, 2, 5))
  with pytest.raises(ValueError, match='must show each situation'):
    paper._resampled(states, None, np.zeros((4, 3, 2), bool))


def test_neighbours_agree_where_situations_are_clusters(paper):
  rng = np.random.default_rng(0)
  situations = rng.integers(0, 4, (40, 6, 2))
  noise = rng.normal(size=(40, 6, 2, 3))
  apart = noise + 50 * np.eye(4)[situations] @ rng.normal(size=(4, 3))
  np.testing.assert_allclose(paper._agreement(apart, situations), 1, atol=0.05)
  mixed = paper._agreement(noise, situations)
  assert mixed.shape == (2,)  # The held-out games.
  np.testing.assert_allclose(mixed, 0.25, atol=0.1)


def test_the_hierarchy_is_judged_by_returns_beyond_an_lstm(paper, tmp_path):
  returns = {'lstm': 0.5, 'rpth': 0.6, 'rpth_dnc': 0.4}
  for task in paper._MEMORY_TASKS:
    for core, mean in returns.items():
      rows = [{'returns': [0.0] * 3}] * 18 + [{'returns': [mean] * 3}] * 2
      path = tmp_path / f'{task}-{core}-300000.jsonl'
      path.write_text('\n'.join(map(json.dumps, rows)), 'utf-8')
  row = paper.hierarchy(paper.Options(memory=str(tmp_path)))
  assert row.verdict == paper.FAILS  # The DNC is behind.
  assert 'rpth 0.10 (0.10 to 0.10)' in row.ours
  assert 'rpth_dnc -0.10 (-0.10 to -0.10)' in row.ours


def test_rows_that_are_asked_for_are_printed_alone(
  paper, monkeypatch, tmp_path
):
  row = paper.Row('Agents win', '0.60', paper.HOLDS)
  monkeypatch.setattr(paper, 'ROWS', {'one': lambda _: row, 'other': None})
  monkeypatch.setattr(paper.common, 'commit', lambda: 'abc1234')
  options = paper.Options(
    directory=str(tmp_path / 'rows'), page=str(tmp_path / 'paper.md')
  )
  paper.main(dataclasses.replace(options, rows=('one',)))
  assert not (tmp_path / 'paper.md').exists()
  with pytest.raises(ValueError, match=r"--rows \(\['another'\]\)"):
    paper.main(dataclasses.replace(options, rows=('another',)))


def test_games_of_people_count_at_full_pace(paper, tmp_path):
  def save(number, outcome, *kinds, **more):
    seats = [
      {'name': str(seat), 'kind': kind, 'team': seat, 'rating': 0}
      for seat, kind in enumerate(kinds)
    ]
    game = {
      'format': saved_games.FORMAT, 'game': 'pit', 'script': 'pit', 'code': '',
      'facts': {}, 'seats': seats, 'states': [], 'outcome': outcome,
      'time': '2026-01-01T00:00:00', **more,
    }  # fmt: skip
    path = tmp_path / f'20260101-00000{number}-pit.json'
    path.write_text(json.dumps(game))

  options = paper.Options()
  claim, verdict = paper.people(options)[0][::2]
  assert verdict == paper.UNTRIED
  for number in range(4):
    save(number, [-1, 1], 'person', 'player')
  save(4, [1, -1], 'player', 'person', level='hard')
  save(5, [1, -1], 'person', 'player', level='easy')  # Members rested.
  save(6, [1, -1], 'player', 'player')
  save(7, [1, -1], 'person', 'person')
  row, untried = paper.people(
    dataclasses.replace(options, people=str(tmp_path))
  )
  assert row.claim == claim and row.verdict == paper.HOLDS
  assert row.ours == '1.00 (1.00 to 1.00) in 5 games'
  assert untried.verdict == paper.UNTRIED
