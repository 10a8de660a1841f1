"""Whole runs in one process, with environments that know the answer."""

import functools
import os
import signal
import threading

import dm_env
import fakes
import numpy as np
import pytest
import run_helpers
from dm_env import specs

from ftwax import hyperparameters
from ftwax.agents import impala
from ftwax.environments import validation
from ftwax.networks import cores
from ftwax.records import checkpoints, files, loggers, run_directory
from ftwax.replay import replay_options
from ftwax.runtime import experiment

pytestmark = pytest.mark.usefixtures('compiles_once')

SPEC = fakes.make_vector_spec()


class _Matching(dm_env.Environment):
  """Shows one of two signs each step and pays for naming it."""

  def __init__(self, seed, episode_length=10):
    self._rng = np.random.default_rng(seed)
    self._episode_length = episode_length
    self._step = None

  def observation_spec(self):
    return specs.Array((2,), np.float32, 'observation')

  def action_spec(self):
    return specs.DiscreteArray(2, name='action')

  def reset(self):
    self._step = 0
    return dm_env.restart(self._observe())

  def step(self, action):
    if self._step is None:
      return self.reset()
    reward = np.float32(action == self._sign)
    self._step += 1
    if self._step < self._episode_length:
      return dm_env.transition(reward, self._observe())
    self._step = None
    return dm_env.truncation(reward, self._observe())

  def _observe(self):
    self._sign = int(self._rng.integers(2))
    return np.eye(2, dtype=np.float32)[self._sign]


class _Halves(_Matching):
  """Takes vectors of 16 bits."""

  def action_spec(self):
    return specs.BoundedArray((2,), np.float16, -1.0, 1.0, 'action')

  def step(self, action):
    assert action.shape == (2,) and action.dtype == np.float16
    assert np.all(np.abs(action) <= 1.0)
    return super().step(action.sum())


def _make_fake(seed):
  return fakes.FakeEnvironment(SPEC, episode_length=4, seed=seed)


@pytest.fixture
def make_experiment():
  def make(environment=_make_fake, learning_rate=1e-3, **options):
    config = impala.IMPALAConfig(
      core=cores.LSTM(8),
      sequence_length=5,
      batch_size=4,
      queue=replay_options.Queue(max_size=8),
    )
    config = config.replace(
      learning_rate=hyperparameters.Constant(learning_rate),
      discount=hyperparameters.Constant(0.5),
    )
    return run_helpers.make_experiment(
      config,
      environment,
      **{'num_environments': 2, **options},
    )

  return make


@pytest.fixture
def run(tmp_path):
  yield run_helpers.make_run('local', tmp_path)
  left = [t.name for t in threading.enumerate() if t.name.startswith('sample_')]
  assert not left, 'a sampling thread outlived its run'


@pytest.mark.slow
def test_the_agent_learns_to_match(run, make_experiment):
  result = run(
    make_experiment(
      _Matching,
      learning_rate=3e-3,
      max_num_actor_steps=10_000,
      num_environments=8,
    )
  )
  assert result.mean_return > 8.5  # Chance is 5 of 10.


def test_a_run_leaves_its_records(run, make_experiment):
  result = run(make_experiment(), eval_every='25 episodes', num_eval_episodes=3)
  train = loggers.read_jsonl(loggers.log_path(result.run_dir, 'train'))
  assert [row['episodes'] for row in train][-1] == result.counts.episodes == 52
  assert all(row['episode_length'] == 4 for row in train)
  assert sum(row['num_episodes'] for row in train) == 52
  assert train[-1]['actor_steps'] == result.counts.actor_steps == 208
  returns = np.repeat(
    [row['episode_return'] for row in train],
    [row['num_episodes'] for row in train],
  )
  np.testing.assert_allclose(
    result.mean_return, np.mean(returns[-20:]), rtol=1e-6
  )
  evaluation = loggers.read_jsonl(
    loggers.log_path(result.run_dir, 'evaluation')
  )
  assert [row['episodes'] // 25 for row in evaluation] == [1, 2]
  assert all(row['num_episodes'] == 4 for row in evaluation)
  learner = loggers.read_jsonl(loggers.log_path(result.run_dir, 'learner'))
  assert learner[-1]['learner_steps'] == result.counts.learner_steps
  for name in ('config.json', 'versions.json', 'checkpoints', 'tensorboard'):
    assert (result.run_dir / name).exists()
  assert 'Learning curve' in (result.run_dir / 'report.html').read_text()


def test_actions_have_the_dtype_of_the_environment(run, make_experiment):
  result = run(make_experiment(_Halves))
  assert result.counts.actor_steps >= 200


@pytest.mark.slow
def test_learner_steps_follow_from_actor_steps(run, make_experiment):
  result = run(make_experiment())
  # An iteration has two rollouts of 5 steps in 2 environments, of which 4 in 5
  # are actions, and an update; the last one takes the run beyond 200 actions.
  assert result.counts.learner_steps == 13
  np.testing.assert_array_equal(result.state.steps, [13])


@pytest.mark.slow
def test_the_same_seed_gives_the_same_parameters(run, make_experiment):
  steps = 3_300  # 206 updates.
  first, second = (
    run(make_experiment(max_num_actor_steps=steps), name)
    for name in ('first', 'second')
  )
  assert first.counts.learner_steps >= 200
  run_helpers.assert_same(first.state, second.state)
  other = run(make_experiment(max_num_actor_steps=steps, seed=1), 'other')
  assert run_helpers.differ(first.state.params, other.state.params)


def test_a_resumed_run_goes_on_where_it_stopped(run, make_experiment):
  first = run(make_experiment())
  again = run(make_experiment(max_num_actor_steps=200), resume=True)
  run_helpers.assert_same(first.state, again.state)
  assert again.counts == first.counts
  # Nothing is new, so nothing is saved.
  names = [p.name for p in (first.run_dir / 'checkpoints').iterdir()]
  assert names == ['0000000208']
  longer = run(make_experiment(max_num_actor_steps=400), resume=True)
  assert longer.counts.actor_steps == 400
  assert longer.counts.learner_steps == 25
  assert longer.counts.episodes == 100
  assert longer.counts.seconds > first.counts.seconds
  train = loggers.read_jsonl(loggers.log_path(first.run_dir, 'train'))
  assert [row['actor_steps'] for row in train] == sorted(
    row['actor_steps'] for row in train
  )
  assert sum(row['num_episodes'] for row in train) == 100


def test_rows_that_a_resumed_run_replays_are_dropped(run, make_experiment):
  first = run(make_experiment(), eval_every=50, num_eval_episodes=1)
  log = first.run_dir / 'logs'
  before = {path.name: path.read_text() for path in log.glob('*.jsonl')}
  for path in log.glob('*.jsonl'):
    # Of a run that went on, and was killed before it saved again.
    row = loggers.read_jsonl(path)[-1] | {'actor_steps': 300}
    files.append_rows(path, [row, row])
  run(make_experiment(), resume=True)
  for path in log.glob('*.jsonl'):
    assert path.read_text() == before[path.name], path


def test_resuming_with_another_config_is_refused(run, make_experiment):
  result = run(make_experiment())
  files = {
    path: path.read_bytes()
    for path in result.run_dir.rglob('*')
    if path.is_file()
  }
  with pytest.raises(
    run_directory.ConfigMismatchError, match=r'seed: 0 in the run.*, 1 now'
  ):
    run(make_experiment(seed=1), resume=True)
  for path, content in files.items():
    assert path.read_bytes() == content


def test_a_directory_in_use_is_refused(run, make_experiment):
  run(make_experiment())
  with pytest.raises(
    run_directory.RunDirectoryError, match='must be new or empty'
  ):
    run(make_experiment())


@pytest.mark.slow
def test_a_truncated_checkpoint_is_told_and_nothing_is_lost(
  run, make_experiment
):
  result = run(make_experiment())
  (largest,) = result.run_dir.rglob('*.safetensors')
  os.truncate(largest, largest.stat().st_size // 2)
  with (
    pytest.warns(checkpoints.DamagedCheckpointWarning, match='is damaged'),
    pytest.raises(checkpoints.CheckpointError, match='are damaged'),
  ):
    run(make_experiment(max_num_actor_steps=400), resume=True)
  assert largest.exists()


class _Interrupter(experiment.Observer):
  """Sends a signal in step 60."""

  def __init__(self, signum):
    self._signum = signum
    self._num_steps = 0

  def observe(self, environment, timestep, action):
    del environment, timestep, action
    self._num_steps += 1
    if self._num_steps == 60:
      os.kill(os.getpid(), self._signum)


@pytest.mark.parametrize(
  'signum',
  [
    signal.SIGTERM,
    *(
      pytest.param(signum, marks=pytest.mark.slow)
      for signum in (signal.SIGINT, signal.SIGHUP)
    ),
  ],
)
def test_an_interrupted_run_saves_and_can_go_on(
  run, make_experiment, signum, capsys
):
  config = make_experiment(
    max_num_actor_steps=10_000, observers=[_Interrupter(signum)]
  )
  before = signal.getsignal(signum)
  with pytest.raises(KeyboardInterrupt):
    run(config)
  assert signal.getsignal(signum) is before
  assert '--resume --run_dir=' in capsys.readouterr().out
  config = make_experiment(
    max_num_actor_steps=150, observers=[_Interrupter(signum)]
  )
  resumed = run(config, resume=True)
  # It was interrupted in the seventh iteration of 16 actions.
  assert resumed.counts.actor_steps == 160
  assert resumed.counts.learner_steps == 10


def test_an_evaluation_that_is_due_at_an_interrupt_is_not_lost(
  run, make_experiment, tmp_path
):
  config = make_experiment(
    max_num_actor_steps=10_000, observers=[_Interrupter(signal.SIGTERM)]
  )
  # Less than the steps between two updates, so it is always due.
  with pytest.raises(KeyboardInterrupt):
    run(config, eval_every=2, num_eval_episodes=1)
  (path,) = tmp_path.rglob('evaluation.jsonl')
  evaluated = loggers.read_jsonl(path)[-1]['actor_steps']
  (saved,) = checkpoints.saved_steps(path.parents[1] / 'checkpoints')
  assert evaluated == saved


class _Bad(dm_env.Environment):
  """Sends a bad value in some step."""

  def __init__(self, seed, reward=0.0, observation=None):
    del seed
    self._reward = reward
    self._observation = observation
    self._steps = 0

  def observation_spec(self):
    return specs.Array((2,), np.float32, 'observation')

  def action_spec(self):
    return specs.DiscreteArray(2, name='action')

  def reset(self):
    return dm_env.restart(np.zeros(2, np.float32))

  def step(self, action):
    self._steps += 1
    observation = np.zeros(2, np.float32)
    if self._steps < 30:
      return dm_env.transition(0.0, observation)
    if self._observation is not None:
      observation = self._observation
    return dm_env.transition(self._reward, observation)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      {'reward': float('nan')},
      r"reward of environment 'test\[0\]' \(nan\) must be a finite scalar",
    ),
    (
      {'observation': np.zeros(3, np.float32)},
      r"observation of environment 'test\[0\]' \(shape \(3,\).*must be of",
    ),
    pytest.param(
      {'observation': np.zeros(2, np.float64)},
      r'dtype float64\) must be of shape \(2,\) and dtype float32',
      marks=pytest.mark.slow,
    ),
  ],
)
def test_bad_data_names_environment_and_field(
  run, make_experiment, tmp_path, options, message
):
  factory = functools.partial(_Bad, **options)
  with pytest.raises(validation.InvalidTimestepError, match=message):
    run(make_experiment(factory))
  # What was learned until then is saved: two iterations of ten steps in each of
  # two environments, of which the first is no action.
  saved = checkpoints.Checkpointer(tmp_path / 'run' / 'checkpoints')
  assert saved.steps() == [40]
  saved.close()


@pytest.mark.parametrize('name', ['num_environments', 'max_num_actor_steps'])
def test_counts_below_one_are_refused(make_experiment, name):
  with pytest.raises(ValueError, match=rf'{name} \(0\) must be at least 1'):
    make_experiment(**{name: 0})
