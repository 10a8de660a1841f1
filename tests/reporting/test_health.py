"""What is told of runs that are ill, and that it is not told of others."""

import json
import logging
import math
import pathlib

import numpy as np
import pytest

import ftwax
from ftwax.agents import ppo
from ftwax.environments import catch
from ftwax.records import loggers, run_directory
from ftwax.reporting import health, report
from ftwax.web import run_tail

LAYOUTS = sorted(
  (pathlib.Path(__file__).parents[1] / 'records' / 'layouts').iterdir()
)
MAX_ENTROPY = math.log(3)


def rows(num_rows=40, **columns):
  """Returns rows of a learner, of one agent that is well but for `columns`."""
  t = np.linspace(0.0, 1.0, num_rows)
  well = {
    'entropy': MAX_ENTROPY * (1.0 - 0.6 * t),
    'kl_old_new': 0.015 - 0.014 * t,
    'gradient_norm': np.where(np.arange(num_rows) % 3, 0.4, 1.2),
    'value_loss': 0.5 - 0.4 * t,
  }
  table = {
    name: np.broadcast_to(column, num_rows)
    for name, column in (well | columns).items()
  }
  return [
    {
      'learner_steps': 10 * (i + 1),
      **{name: float(column[i]) for name, column in table.items()},
    }
    for i in range(num_rows)
  ]


def kinds(learner, progress=1.0):
  found = health.diagnose(learner, (), progress, MAX_ENTROPY, 0.5)
  return [one.kind for one in found]


def test_nothing_is_told_of_an_agent_that_is_well():
  assert kinds(rows()) == []
  # Rates are annealed to zero, and a policy may be sure at the end.
  t = np.linspace(0.0, 1.0, 40)
  late = {'kl_old_new': 0.01 * (1 - t), 'entropy': MAX_ENTROPY * (1 - t)}
  assert kinds(rows(**late)) == []
  assert kinds([]) == kinds(rows(num_rows=3, entropy=1e-9)) == []


@pytest.mark.parametrize(
  ('columns', 'kind'),
  [
    ({'entropy': 0.03}, 'entropy'),
    ({'kl_old_new': 5e-4}, 'low_kl'),
    ({'kl_old_new': 0.2}, 'high_kl'),
    ({'gradient_norm': 3.0}, 'clipped'),
    ({'value_loss': np.geomspace(0.1, 1e5, 40)}, 'value_loss'),
  ],
)
def test_each_illness_is_told_by_its_name(columns, kind):
  (finding,) = health.diagnose(rows(**columns), (), 1.0, MAX_ENTROPY, 0.5)
  assert finding.kind == kind and '; ' in finding.text
  assert str(finding) == finding.text  # One agent has no number.


def test_members_are_told_one_by_one():
  well, ill = rows(), rows(entropy=0.01)
  both = [
    {
      name: one[name] if name == 'learner_steps' else [one[name], other[name]]
      for name in one
    }
    for one, other in zip(well, ill, strict=True)
  ]
  (finding,) = health.diagnose(both, (), 1.0, MAX_ENTROPY, [0.5, None])
  assert str(finding).startswith('member 1: entropy stays below 0.055 ')


def test_entropy_counts_before_half_of_the_run():
  half_dead = rows(entropy=np.where(np.arange(40) < 20, 1.0, 0.01))
  assert kinds(half_dead, progress=1.0) == []
  assert kinds(half_dead, progress=0.5) == ['entropy']
  surely = np.arange(40) // 10 == 2
  doubts_again = rows(entropy=np.where(surely, 0.01, 1.0))
  assert kinds(doubts_again[:30], 0.4) == kinds(doubts_again, 0.5) == []


def test_entropies_of_densities_have_no_lower_bound():
  assert health.diagnose(rows(entropy=-3.0), max_entropy=None) == []


def test_gradients_of_densities_grow_as_deviations_fall():
  norms = np.linspace(1.2, 12.0, 40)
  normalized = rows(gradient_norm=norms, return_scale=2.0)
  assert health.diagnose(normalized, (), 1.0, None, 0.5) == []
  assert kinds(normalized) == ['clipped']
  (finding,) = health.diagnose(rows(gradient_norm=norms), (), 1.0, None, 0.5)
  assert finding.kind == 'clipped'


def test_who_has_only_draws_is_as_one_that_does_nothing():
  evaluation = {
    'member_payoffs': [[0.0, -1.0], [0.0, -1.0], [0.5, -1.0]],
    'member_payoff_errors': [[0.0, 0.0], [0.2, 0.0], [0.1, 0.0]],
    'member_games': [[32, 32]] * 3,
  }
  (finding,) = health.diagnose([], [evaluation])
  assert (finding.kind, finding.member) == ('draws', 0)
  evaluation['member_games'] = [[4, 4]] * 3
  assert not health.diagnose([], [evaluation])


@pytest.mark.parametrize('layout', LAYOUTS, ids=lambda path: path.name)
def test_nothing_is_told_of_runs_that_lie_in_the_tests(layout):
  assert health.read(layout) == []


def test_a_run_that_is_ill_says_so_once_on_all_pages(
  tmp_path, caplog, monkeypatch
):
  ill = [json.dumps(row) for row in rows(kl_old_new=5e-4)]
  read = health.read

  def read_ill(run_dir):
    loggers.log_path(run_dir, 'learner').write_text('\n'.join(ill) + '\n')
    return read(run_dir)

  # A short run has few rows.
  monkeypatch.setattr(health, 'read', read_ill)
  with caplog.at_level(logging.WARNING):
    result = ftwax.run(
      ftwax.ExperimentConfig(
        agent=ppo.PPOConfig(core='feed_forward'),
        environment=catch.make(),
        max_num_actor_steps=2_000,
      ),
      runtime='device',
      eval_every=600,
      run_dir=tmp_path / 'run',
    )
  told = [one.message for one in caplog.records if 'kl_old_new' in one.message]
  assert len(told) == 1
  assert told[0].startswith('ppo_catch: kl_old_new stays below 0.001, so')
  path = report.make_report(result.run_dir)
  assert 'kl_old_new stays below 0.001' in path.read_text('utf-8')
  outcome = run_tail.RunTail(result.run_dir).facts()['outcome']
  assert any('kl_old_new stays below' in sentence for sentence in outcome)


def test_the_largest_entropy_is_that_of_the_game(tmp_path):
  (tmp_path / 'logs').mkdir()
  for layout in LAYOUTS:
    game = json.loads((layout / run_directory.GAME_FILE).read_text())
    found = health._max_entropy(game['actions'])
    assert found == pytest.approx(math.log(5 * 3 * 2), rel=1e-6)
  vector = {'spec': {'kind': 'bounded', 'shape': [2]}}
  assert health._max_entropy({'dict': {'arm': vector}}) is None
  lines = [json.dumps(row) for row in rows(kl_old_new=1.0)]
  loggers.log_path(tmp_path, 'learner').write_text('\n'.join(lines) + '\n')
  assert [one.kind for one in health.read(tmp_path)] == ['high_kl']
