"""Games that never end, as without a forgotten limit of their steps."""

import contextlib
import logging
import types

import fakes
import gymnasium
import jax
import numpy as np
import pytest

import ftwax
from ftwax.agents import ppo
from ftwax.environments import environment_faults, game_vectors
from ftwax.networks import cores
from ftwax.population import seating
from ftwax.runtime import evaluation, run_records
from ftwax.runtime.local import arena as arena_lib
from ftwax.runtime.local import evaluations

_SPEC = fakes.make_vector_spec()
_LIMIT = 50


@pytest.fixture(autouse=True)
def _short(monkeypatch):
  monkeypatch.setattr(evaluation, 'MAX_STEPS', _LIMIT)
  monkeypatch.setattr(evaluations, '_CHECK_PERIOD', 10)


def _play(lengths, games_per_place, max_steps=None):
  made = game_vectors.make_games(
    lambda seed: fakes.FakeEnvironment(_SPEC, lengths[seed], seed=seed),
    range(len(lengths)),
    'maze',
  )
  seats, rows = seating.make_evaluation_seating((0,), 1, len(lengths))
  arena = arena_lib.Arena(made, seats)
  arena.seat(jax.random.PRNGKey(0), rows)
  arena.reset()
  plan = evaluation.Plan(seats, rows, games_per_place, {})
  action = np.zeros(len(lengths), np.int32)
  results = evaluations.play(
    arena, lambda: arena.step(action), rows, games_per_place, 'maze', max_steps
  )
  return evaluation.Outcome(plan, evaluation.count_results(results, plan))


def test_an_evaluation_ends_and_counts_what_was_paid():
  outcome = _play([10**6, 10**6], games_per_place=3)
  assert [result.place for result in outcome.results] == [0, 1]
  for result in outcome.results:
    assert result.length == _LIMIT
    np.testing.assert_array_equal(result.outcome, [0.0])
  row = evaluation.make_row(outcome)
  assert row['num_episodes'] == 2 and row['episode_length'] == _LIMIT
  assert np.isfinite(row['episode_return'])


def test_games_that_end_count_as_before():
  outcome = _play([5, 10**6, 7], games_per_place=2)
  ended = [(result.place, result.length) for result in outcome.results]
  assert ended == [(0, 5), (2, 7), (0, 5), (2, 7), (1, _LIMIT)]


@pytest.fixture
def warnings(caplog, monkeypatch):
  """Returns the warnings of a test, those of earlier tests forgotten."""
  environment_faults._warn_of_endless.cache_clear()
  monkeypatch.setattr(logging.getLogger('absl'), 'propagate', True)
  with caplog.at_level(logging.WARNING):
    yield lambda: [record.getMessage() for record in caplog.records]


def test_the_environment_is_named_once(warnings):
  for num_steps in (9_999, 10_000, 10_001):
    environment_faults.warn_of_endless('maze', num_steps)
  (message,) = warnings()
  assert "'maze' has not ended an episode in 10,000 steps" in message


@pytest.fixture
def records(tmp_path):
  """Records of a run of two games, with unrolls of 20 steps."""

  def make(core):
    seats, _ = seating.make_evaluation_seating((0,), 1, 2)
    parts = types.SimpleNamespace(
      experiment=types.SimpleNamespace(
        name='maze',
        agent=types.SimpleNamespace(sequence_length=20, core=core),
        offline=False,
        loggers=lambda *args: None,
        checkpointing=None,
        curriculum=(),
      ),
      seating=seats,
      spec=types.SimpleNamespace(num_players=1),
    )
    return run_records.RunRecords(parts, tmp_path, contextlib.ExitStack())

  return make


def test_training_without_an_end_is_told(records, warnings):
  made = records(cores.LSTM())
  made.advance(19_999, [], 0)
  assert warnings() == []
  made.advance(1, [], 0)
  assert 'has not ended an episode' in warnings()[0]


@pytest.mark.parametrize(
  ('core', 'length', 'num_warnings'),
  [
    (cores.LSTM(), 21, 0),  # How much it remembers is not known.
    (cores.FeedForward(), 21, 0),
    (cores.GTrXL(window=20), 21, 1),
    (cores.GTrXL(window=20), 20, 0),
  ],
)
def test_episodes_longer_than_a_window_are_told_of_once(
  records, warnings, core, length, num_warnings
):
  made = records(core)
  for _ in range(3):
    made.advance(length * 100, [0.0] * 100, 0)
  assert len(warnings()) == num_warnings
  for message in warnings():
    assert 'maze have 21 steps on average' in message
    assert 'num_layers * window (20)' in message


@pytest.mark.parametrize('max_steps', [20, 70])
def test_the_limit_is_an_option_and_the_reason_is_told(max_steps):
  outcome = _play([10**6, 5], 1, max_steps)
  lengths = {result.place: result.length for result in outcome.results}
  assert lengths == {0: max_steps, 1: 5}
  row = evaluation.make_row(outcome)
  assert row['num_cut_off'] == 1
  assert '2 episodes (1 cut off by Evaluation.max_num_steps)' in (
    evaluation.describe(row, 100)
  )


def test_games_that_end_are_not_cut_off():
  row = evaluation.make_row(_play([5, 7], 1))
  assert 'num_cut_off' not in row
  assert 'cut off' not in evaluation.describe(row, 100)


class _Endless(gymnasium.Env):
  observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
  action_space = gymnasium.spaces.Discrete(2)

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    return np.zeros(2, np.float32), {}

  def step(self, action):
    return np.zeros(2, np.float32), 1.0, False, False, {}


def test_a_run_has_the_limit(tmp_path, capsys):
  ftwax.run(
    ftwax.ExperimentConfig(
      agent=ppo.PPOConfig(core='feed_forward', batch_size=4, num_minibatches=2),
      environment=_Endless,
      max_num_actor_steps=200,
      num_environments=2,
      evaluation=ftwax.Evaluation(max_num_steps=30),
    ),
    run_dir=tmp_path,
    eval_every=200,
    num_eval_episodes=2,
  )
  assert '(2 cut off by Evaluation.max_num_steps): episode_return 30' in (
    capsys.readouterr().out
  )
