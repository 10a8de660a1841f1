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


def _make_claims(paper, monkeypatch, *names, **fields):
  calls = []

  def find(options):
    calls.append(options)
    return paper.Found('0.60', paper.HOLDS)

  claims = {
    name: paper.Claim(f'Agents {name}', find, **fields) for name in names
  }
  monkeypatch.setattr(paper, 'CLAIMS', claims)
  monkeypatch.setattr(paper.common, 'commit', lambda: 'abc1234')
  return calls


@pytest.fixture
def options(paper, tmp_path):
  return paper.Options(
    directory=str(tmp_path / 'rows'), page=str(tmp_path / 'paper.md')
  )


def test_cells_are_kept(paper, monkeypatch, options):
  calls = _make_claims(paper, monkeypatch, 'win')
  paper.main(options)
  paper.main(options)
  assert len(calls) == 1
  page = pathlib.Path(options.page).read_text('utf-8')
  assert '| Agents win | **holds**: 0.60 |  |  |' in page
  assert 'agent 1 hold and 0 do not' in page.replace('\n', ' ')


def test_parts_are_trained_once_and_go_on(paper, monkeypatch, options):
  calls = _make_claims(
    paper, monkeypatch, 'win', needs='late', columns=('whole', 'first_person')
  )
  commands = []

  def run(words, *, check, cwd):
    assert check and cwd == paper.ROOT
    commands.append(words[1:])
    is_second = len(commands) > 1
    (pathlib.Path(options.directory) / 'late' / 'checkpoints').mkdir(
      parents=True, exist_ok=is_second
    )
    if not is_second:
      raise KeyboardInterrupt

  monkeypatch.setattr(paper.subprocess, 'run', run)
  with pytest.raises(KeyboardInterrupt):
    paper.main(options)
  paper.main(options)
  paper.main(options)
  directory = pathlib.Path(options.directory)
  first, second, whole = commands
  assert first[0] == 'experiments/capture_the_flag.py'
  assert f'--run_dir={directory / "late"}' in first
  assert second == [*first, '--resume']
  assert '--agent=paper' in whole and '--resume' not in whole
  assert [call.run for call in calls] == [
    'capture_the_flag',
    str(directory / 'whole'),
    'first_person',
  ]
  page = pathlib.Path(options.page).read_text('utf-8')
  found = '**holds**: 0.60'
  assert f'| Agents win | {found} | {found} | {found} |' in page


def test_parts_that_need_a_gpu_are_not_tried_on_cpus(
  paper, monkeypatch, options
):
  calls = _make_claims(paper, monkeypatch, 'win', needs='wide')
  paper.main(options)
  page = pathlib.Path(options.page).read_text('utf-8')
  assert '**not tried**: needs `--budget=gpu`' in page and not calls


def _best(num_seeds):
  weights = np.zeros((num_seeds, 13), np.float32)
  return types.ActorVariables({}, {}, weights, np.zeros(num_seeds))


def test_signs_count_over_events_and_seeds(paper, monkeypatch, options):
  best = _best(4)
  names = list(paper.game_lib.EVENT_NAMES)
  best.internal_rewards[:, names.index('i_picked_up_the_flag')] = 1.0
  best.internal_rewards[:, names.index('i_was_tagged_with_flag')] = -0.1
  monkeypatch.setattr(paper, '_of_wide_priors', lambda options: best)
  found = paper.internal_rewards(options)
  assert found.text.startswith('share of the right signs 0.33 ±')


def test_mates_are_held_against_what_both_reach_alone(
  paper, monkeypatch, options
):
  # Scores of pairs 00, 01, 02, 11, 12, 22.
  scores = np.array([0.8, 0.7, 0.5, 0.6, 0.4, 0.2])
  monkeypatch.setattr(paper, '_of_wide_priors', lambda options: _best(3))
  monkeypatch.setattr(
    paper, 'play', lambda *args: np.repeat(scores[:, None], 5, axis=1)
  )
  found = paper.mates(options)
  assert found.verdict == paper.HOLDS
  assert found.text == (
    'tactician: beside strangers 0.53, beside themselves 0.53'
  )
  scores -= [0, 0.2, 0.2, 0, 0.2, 0]
  assert paper.mates(options).verdict == paper.FAILS


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
      path = tmp_path / 'memory' / f'{task}-{core}-300000.jsonl'
      path.parent.mkdir(exist_ok=True)
      path.write_text('\n'.join(map(json.dumps, rows)), 'utf-8')
  found = paper.hierarchy(paper.Options(directory=str(tmp_path)))
  assert found.verdict == paper.FAILS  # The DNC is behind.
  assert 'return beyond an LSTM 0.10, with a DNC -0.10' in found.text


def test_rows_that_are_asked_for_are_printed_alone(paper, monkeypatch, options):
  calls = _make_claims(paper, monkeypatch, 'one', 'other')
  paper.main(dataclasses.replace(options, rows=('one',)))
  assert len(calls) == 1 and not pathlib.Path(options.page).exists()
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
  assert paper.people(options).verdict == paper.UNTRIED
  for number in range(4):
    save(number, [-1, 1], 'person', 'player')
  save(4, [1, -1], 'player', 'person', level='hard')
  save(5, [1, -1], 'person', 'player', level='easy')  # Members rested.
  save(6, [1, -1], 'player', 'player')
  save(7, [1, -1], 'person', 'person')
  found = paper.people(dataclasses.replace(options, people=str(tmp_path)))
  assert found == ('1.00 ± 0.00 in 5 games', paper.HOLDS)


def test_members_meet_the_members_of_another_run(paper, monkeypatch, options):
  class Agent:
    actor = variables = None

    def __init__(self, player):
      self.player = player

  runs = {
    'capture_the_flag': [Agent('own')] * 2,
    str(pathlib.Path(options.directory) / 'phases'): [Agent(0), Agent(1)],
  }
  monkeypatch.setattr(paper, 'load', lambda source, options: runs[source])
  monkeypatch.setattr(paper, 'config_of', lambda options: None)

  def play(options, config, actor, members, others, teams):
    assert len(members) == 1 and others == {'0': 0, '1': 1}
    assert teams == [((0, 0), (1, 1)), ((0, 0), (2, 2))]
    return np.full((2, 100), 0.9)

  monkeypatch.setattr(paper, 'play', play)
  assert paper.strangers(options) == ('0.90 ± 0.00', paper.HOLDS)


def test_the_page_has_every_claim(paper):
  page = (ROOT / 'docs' / 'paper.md').read_text('utf-8')
  rows = [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in page.splitlines()
    if '| **' in line
  ]
  assert [row[0] for row in rows] == [
    claim.text for claim in paper.CLAIMS.values()
  ]
  for claim, (_, small, *others) in zip(
    paper.CLAIMS.values(), rows, strict=True
  ):
    assert small.startswith('**')
    for column, cell in zip(paper._COLUMNS, others, strict=True):
      assert cell.startswith('**') == (column in claim.columns)
  counts = [
    sum(row[1].startswith(f'**{verdict}**') for row in rows)
    for verdict in (paper.HOLDS, paper.FAILS, paper.OPEN, paper.UNTRIED)
  ]
  stated = 'For a small agent {} hold and {} do not; {} are undecided, {} not'
  assert stated.format(*counts) in ' '.join(page.split())
