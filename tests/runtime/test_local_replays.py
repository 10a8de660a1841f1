"""Local runs with Reverb and with the replay in the process."""

import importlib.util
import subprocess
import sys

import fakes
import functional_fakes
import population_helpers
import pytest
import run_helpers

from ftwax.agents import a2c, impala
from ftwax.agents.actor_critic import replays, tasks
from ftwax.networks import cores, torsos
from ftwax.records import loggers
from ftwax.replay import replay_options

pytestmark = pytest.mark.usefixtures('compiles_once')


def _make_matching(seed):
  del seed
  return functional_fakes.make_matching()


@pytest.mark.python_310
@pytest.mark.parametrize(
  'batch_size', [4, pytest.param(3, marks=pytest.mark.slow)]
)
def test_both_replays_give_the_same_bits(tmp_path, batch_size):
  config = impala.IMPALAConfig(
    **fakes.SMALL_NETWORK,
    sequence_length=5,
    batch_size=batch_size,
  )
  with_reverb, functional = (
    run_helpers.make_run('local', tmp_path)(
      run_helpers.make_experiment(config, _make_matching, replay=replay),
      name=replay,
    )
    for replay in ('reverb', 'functional')
  )
  assert with_reverb.counts.learner_steps > 1
  run_helpers.assert_same(with_reverb.state, functional.state)


@pytest.mark.slow
@pytest.mark.python_310
def test_both_replays_evolve_the_same_population(tmp_path):
  with_reverb, functional = (
    run_helpers.make_run('local', tmp_path)(
      population_helpers.make_experiment(replay=replay), name=replay
    )
    for replay in ('reverb', 'functional')
  )
  lineages = [
    loggers.read_jsonl(result.run_dir / 'lineage.jsonl')
    for result in (with_reverb, functional)
  ]
  assert lineages[0] == lineages[1]
  run_helpers.assert_same(with_reverb.state, functional.state)


@pytest.mark.slow
def test_auxiliary_tasks_learn_from_the_tables(tmp_path):
  config = a2c.A2CConfig(
    **fakes.SMALL_NETWORK,
    sequence_length=6,
    batch_size=2,
    tasks=('value_replay', tasks.RewardPrediction(capacity=4)),
    replay=replay_options.Replay(capacity=4),
  )
  experiment = run_helpers.make_experiment(
    config,
    _make_matching,
    agent=a2c,
    replay='functional',
    num_environments=2,
    max_num_actor_steps=100,
  )
  result = run_helpers.make_run('local', tmp_path)(experiment)
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'learner'))
  assert rows[-1]['value_replay_live'] == 1.0
  assert rows[-1]['reward_prediction_live'] == 1.0
  assert rows[-1]['sample_age_steps'] == 0.0


@pytest.mark.parametrize(
  ('replay', 'is_game'),
  [
    ('functional', True),
    pytest.param('functional', False, marks=pytest.mark.slow),
    pytest.param('reverb', False, marks=pytest.mark.python_310),
    pytest.param(
      'reverb', True, marks=[pytest.mark.python_310, pytest.mark.slow]
    ),
  ],
)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, replay, is_game):
  def make(max_num_actor_steps):
    options = {'replay': replay, 'max_num_actor_steps': max_num_actor_steps}
    if is_game:
      return population_helpers.make_experiment(**options)
    tables = replay == 'functional'
    config = a2c.A2CConfig(
      **fakes.SMALL_NETWORK,
      sequence_length=5,
      batch_size=8,
      tasks=('value_replay', 'reward_prediction') if tables else (),
    )
    return run_helpers.make_experiment(
      config, _make_matching, agent=a2c, steps_per_round=30, **options
    )

  run = run_helpers.make_run('local', tmp_path)
  whole = run(make(603), name='whole')
  # In the middle of a trajectory, an episode and a round.
  run(make(333), name='part')
  resumed = run(make(603), name='part', resume=True)
  run_helpers.assert_same(whole.state, resumed.state)
  assert resumed.counts[:3] == whole.counts[:3]
  assert resumed.mean_return == whole.mean_return


@pytest.mark.slow
def test_a_run_that_cannot_continue_its_games_starts_them_anew(tmp_path):
  config = impala.IMPALAConfig(
    core=cores.LSTM(4),
    torso=torsos.Torso(hidden_sizes=(4,)),
    sequence_length=5,
    batch_size=3,
  )  # Of 4 environments: a trajectory is left over after most updates.
  run = run_helpers.make_run('local', tmp_path)
  for max_num_actor_steps in (150, 300):
    result = run(
      run_helpers.make_experiment(
        config,
        _make_matching,
        replay='functional',
        max_num_actor_steps=max_num_actor_steps,
      ),
      resume=max_num_actor_steps > 150,
    )
    assert result.counts.actor_steps >= max_num_actor_steps
    assert int(result.state.steps[0]) == result.counts.learner_steps


_RUN = """
import functools, pathlib, sys
from ftwax.agents import impala
from ftwax.environments import catch
from ftwax.runtime import experiment, runs

config = impala.IMPALAConfig(
  core='feed_forward', sequence_length=5, batch_size=4
)
runs.run_experiment(
  experiment.ExperimentConfig(
    agent=config,
    environment=lambda seed: catch.make(),
    max_num_actor_steps=100,
    num_environments=4,
  ),
  run_dir=sys.argv[1],
)
print(sorted({'tensorflow', 'reverb'} & set(sys.modules)))
"""


@pytest.mark.ci
def test_neither_tensorflow_nor_reverb_is_loaded(tmp_path):
  printed = subprocess.run(
    [sys.executable, '-c', _RUN, str(tmp_path / 'run')],
    capture_output=True,
    text=True,
    timeout=300,
    check=True,
  ).stdout
  assert printed.splitlines()[-1] == '[]'


@pytest.mark.python_310
def test_reverb_may_be_asked_for():
  assert replays.choose('reverb', a2c.A2CConfig()) == 'reverb'


def test_reverb_must_be_installed_if_it_is_asked_for(monkeypatch):
  config = a2c.A2CConfig()
  for asked in (None, 'functional'):
    assert replays.choose(asked, config) == 'functional'
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ImportError, match=r"replay \('reverb'\) needs dm-reverb"):
    replays.choose('reverb', a2c.A2CConfig())


def test_a_folder_of_its_name_is_not_reverb(tmp_path, monkeypatch):
  (tmp_path / 'reverb').mkdir()
  monkeypatch.setattr(sys, 'path', [str(tmp_path)])
  monkeypatch.delitem(sys.modules, 'reverb', raising=False)
  with pytest.raises(ImportError, match=r"replay \('reverb'\) needs dm-reverb"):
    replays.choose('reverb', a2c.A2CConfig())


def test_a_run_with_a_missing_reverb_leaves_nothing(tmp_path, monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  experiment = run_helpers.make_experiment(
    impala.IMPALAConfig(), _make_matching, replay='reverb'
  )
  with pytest.raises(ImportError, match=r"replay \('reverb'\) needs dm-reverb"):
    run_helpers.make_run('local', tmp_path)(experiment)
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
  ('runtime', 'replay'), [('device', 'reverb'), ('distributed', 'functional')]
)
def test_other_runtimes_have_a_replay_of_their_own(tmp_path, runtime, replay):
  experiment = run_helpers.make_experiment(
    impala.IMPALAConfig(), _make_matching, replay=replay
  )
  with pytest.raises(ValueError, match=rf"replay \('{replay}'\) must be None"):
    run_helpers.make_run(runtime, tmp_path)(experiment)


def test_an_unknown_replay_is_told():
  with pytest.raises(ValueError, match=r"replay \('redis'\) must be one of"):
    run_helpers.make_experiment(
      impala.IMPALAConfig(), _make_matching, replay='redis'
    )
