"""Whole runs on the device."""

import functools
import os
import re
import shutil
import signal

import fakes
import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import run_helpers
import slow_cases
from dm_env import specs

from ftwax import hyperparameters
from ftwax.agents import impala
from ftwax.agents.actor_critic import faults, optimization
from ftwax.environments import validation
from ftwax.networks import cores, torsos
from ftwax.records import checkpoints, loggers, run_directory
from ftwax.runtime import experiment, run_records, runs
from ftwax.runtime.device import sizes

pytestmark = pytest.mark.usefixtures('compiles_once')

CONFIG = impala.IMPALAConfig(
  core=cores.FeedForward(8),
  torso=torsos.Torso(hidden_sizes=(8,)),
  sequence_length=5,
  batch_size=4,
)


def _make_matching(seed):
  del seed
  return functional_fakes.make_matching()


@pytest.fixture
def make_experiment():
  def make(environment=_make_matching, config=CONFIG, **options):
    return run_helpers.make_experiment(config, environment, **options)

  return make


@pytest.fixture
def run(tmp_path):
  return run_helpers.make_run('device', tmp_path)


@pytest.fixture
def short_calls(monkeypatch):
  """Makes a call of each iteration, so that runs can stop after any."""
  monkeypatch.setattr(sizes, '_STEPS_PER_CALL', 1)


@pytest.mark.slow
def test_the_agent_learns_to_match(run, make_experiment):
  config = CONFIG.replace(
    batch_size=8,
    learning_rate=hyperparameters.Constant(3e-3),
    discount=hyperparameters.Constant(0.5),
  )
  result = run(
    make_experiment(
      config=config, max_num_actor_steps=20_000, num_environments=8
    )
  )
  assert result.mean_return > 8.5  # Chance is 5 of 10.


def test_a_run_leaves_its_records(run, make_experiment, short_calls, capsys):
  result = run(make_experiment(), eval_every='10 episodes', num_eval_episodes=6)
  assert result.counts.actor_steps >= 200
  train = loggers.read_jsonl(loggers.log_path(result.run_dir, 'train'))
  assert sum(row['num_episodes'] for row in train) == result.counts.episodes
  assert train[-1]['episodes'] == result.counts.episodes == 20
  assert all(row['episode_length'] == 10 for row in train)
  returns = [row['episode_return'] for row in train]  # All of 4 episodes.
  np.testing.assert_allclose(result.mean_return, np.mean(returns), rtol=1e-5)
  evaluation = loggers.read_jsonl(
    loggers.log_path(result.run_dir, 'evaluation')
  )
  assert [row['num_episodes'] for row in evaluation] == [8, 8]
  assert all(row['episode_length'] == 10 for row in evaluation)
  learner = loggers.read_jsonl(loggers.log_path(result.run_dir, 'learner'))
  assert learner[-1]['learner_steps'] == result.counts.learner_steps
  np.testing.assert_array_equal(
    result.state.steps, [result.counts.learner_steps]
  )
  assert np.isfinite(learner[-1]['loss'])
  for name in ('config.json', 'versions.json', 'checkpoints', 'report.html'):
    assert (result.run_dir / name).exists()
  output = capsys.readouterr().out
  assert 'test: compiling took' in output
  assert 'test: compiling evaluations took' in output
  lines = [line for line in output.splitlines() if 'evaluation a' in line]
  assert len(lines) == 2
  assert re.fullmatch(
    r'evaluation after \d+ steps, 8 episodes: episode_return [\d.]+', lines[0]
  )
  with pytest.raises(
    run_directory.ConfigMismatchError, match=r'seed: 0 in the run.*, 1 now'
  ):
    run(make_experiment(seed=1), resume=True)


def test_a_short_run_ends_in_time(run, make_experiment, caplog):
  result = run(make_experiment(max_num_actor_steps=600))
  assert 600 <= result.counts.actor_steps <= 660
  assert not caplog.messages
  run(make_experiment(max_num_actor_steps=30), 'shorter')
  (warning,) = caplog.messages
  assert 'max_num_actor_steps (30) is few for iterations of 20 st' in warning


def test_a_resumed_run_goes_on_bit_for_bit(run, make_experiment, short_calls):
  make_experiment = functools.partial(
    make_experiment,
    config=CONFIG.replace(core='lstm'),
    max_num_actor_steps=300,
    checkpointing=checkpoints.CheckpointingConfig(1e-9, max_to_keep=100),
  )
  whole = run(make_experiment(), eval_every=150, num_eval_episodes=2)
  path = loggers.log_path(whole.run_dir, 'evaluation')
  evaluations = loggers.read_jsonl(path)
  # Step 92 is in the middle of episodes, which have ten.
  calls = sorted((whole.run_dir / 'checkpoints').iterdir())
  assert [int(path.name) for path in calls[4:6]] == [92, 112]
  for later in calls[5:]:
    shutil.rmtree(later)
  resumed = run(
    make_experiment(), resume=True, eval_every=150, num_eval_episodes=2
  )
  run_helpers.assert_same(whole.state, resumed.state)
  names = ('actor_steps', 'episode_return')
  steps = [[row[name] for name in names] for row in evaluations]
  logged = [[row[name] for name in names] for row in loggers.read_jsonl(path)]
  assert len(steps) == 2 and logged[-2:] == steps
  assert resumed.counts[:3] == whole.counts[:3]
  assert resumed.mean_return == whole.mean_return
  again = run(make_experiment(), resume=True)
  run_helpers.assert_same(resumed.state, again.state)
  other = run(make_experiment(seed=1), 'other')
  assert run_helpers.differ(whole.state.params, other.state.params)


class _InterruptingLogger:
  """Sends a signal to this process at the third write."""

  def __init__(self, signum):
    self._signum = signum
    self._num_writes = 0

  def write(self, values):
    del values
    self._num_writes += 1
    if self._num_writes == 3:
      os.kill(os.getpid(), self._signum)

  def close(self):
    pass


@pytest.mark.parametrize(
  'signum',
  [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
)
def test_an_interrupted_run_saves_and_can_go_on(
  run, make_experiment, short_calls, tmp_path, capsys, signum
):
  def make_logger(label, steps_key, instance):
    del steps_key, instance
    if label == 'train':
      return _InterruptingLogger(signum)
    return loggers.JSONLLogger(tmp_path / f'{label}.jsonl')

  config = make_experiment(max_num_actor_steps=1000, loggers=make_logger)
  with pytest.raises(KeyboardInterrupt):
    run(config)
  assert '--resume --run_dir=' in capsys.readouterr().out
  saved = checkpoints.Checkpointer(tmp_path / 'run' / 'checkpoints')
  (step,) = saved.steps()
  saved.close()
  assert 0 < step < 1000


def _poison_reward(timestep):
  # Its square is not finite.
  return timestep._replace(reward=timestep.reward + 1e30)


_OFF = {
  'observation': (
    lambda t: t._replace(observation=t.observation * jnp.nan),
    r"observation of environment 'test' \(in one of.* must be finite",
  ),
  'bounds': (
    lambda t: t._replace(observation=t.observation + 2.0),
    'observation of .* must lie within the bounds of its spec',
  ),
  'reward': (
    lambda t: t._replace(reward=t.reward * jnp.nan),
    r"reward of environment 'test' .*must be a finite scalar",
  ),
  'sum': (
    lambda t: t._replace(reward=t.reward + 3e38),
    r'reward of .* \(summing up to inf\) must have a finite sum',
  ),
  'discount': (
    lambda t: t._replace(discount=t.discount * 2.0),
    r'discount of .* must be a scalar in \[0, 1\]',
  ),
  'no discount': (
    lambda t: t._replace(discount=t.discount * jnp.nan),
    r'discount of .* must be a scalar in \[0, 1\]',
  ),
  'step type': (
    lambda t: t._replace(step_type=t.step_type * 9),
    'step_type of .* must be FIRST where an episode starts',
  ),
  'order': (
    lambda t: t._replace(step_type=t.step_type * 0),
    'step_type of .* must be FIRST where an episode starts and only there',
  ),
}


@pytest.mark.parametrize(
  'what', slow_cases.cases(_OFF, ('sum', 'order'), ci=())
)
def test_a_timestep_that_is_off_its_spec_is_named(run, make_experiment, what):
  function, message = _OFF[what]

  def make_off(seed):
    made = _make_matching(seed)
    bounded = specs.BoundedArray((2,), np.float32, 0.0, 1.0, 'observation')
    return functional_fakes.map_timesteps(
      made, function, made.spec._replace(observations=bounded)
    )

  with pytest.raises(validation.InvalidTimestepError, match=message):
    run(make_experiment(make_off))


def test_bad_gradients_are_skipped_counted_and_end_the_run(
  run, make_experiment, short_calls, tmp_path
):
  def make_poisoned(seed):
    return functional_fakes.map_timesteps(_make_matching(seed), _poison_reward)

  config = make_experiment(
    make_poisoned,
    config=CONFIG.replace(optimizer=optimization.Adam(max_skipped_updates=3)),
    max_num_actor_steps=10_000,
  )
  with pytest.raises(
    faults.NonFiniteGradientError, match=r'3 updates in a row had NaN'
  ):
    run(config)
  # What was learned until then is saved: 3 rollouts of 5 steps in 4 rows,
  # of which one step each was a reset.
  saved = checkpoints.Checkpointer(tmp_path / 'run' / 'checkpoints')
  assert saved.steps() == [56]
  saved.close()
  learner = loggers.read_jsonl(loggers.log_path(tmp_path / 'run', 'learner'))
  assert learner[-1]['skipped_updates'] == 3


@pytest.mark.parametrize(
  'field', ['observation', pytest.param('reward', marks=pytest.mark.ci)]
)
def test_what_is_saved_at_a_fault_is_from_before_it(
  run, make_experiment, short_calls, tmp_path, monkeypatch, capsys, field
):
  is_sound = []

  def make_rarely_off(seed):
    made = _make_matching(seed)

    def step(state, action):
      state, timestep = made.step(state, action)
      odds = jnp.where(len(is_sound), 0.0, 0.002)
      is_off = jax.random.bernoulli(state.key, odds)
      value = getattr(timestep, field)
      off = timestep._replace(**{field: jnp.where(is_off, jnp.nan, value)})
      return state, off

    return made._replace(step=step)

  # A copy after each call, of which the last before the fault is saved.
  monkeypatch.setattr(run_records, '_COPY_PERIOD_S', 0.0)
  monkeypatch.setattr(run_records, '_COPY_SHARE', 1e9)
  config = make_experiment(make_rarely_off, max_num_actor_steps=2000)
  with pytest.raises(validation.InvalidTimestepError, match=field):
    run(config)
  told = capsys.readouterr().out
  saved = checkpoints.Checkpointer(tmp_path / 'run' / 'checkpoints')
  (step,) = saved.steps()
  saved.close()
  assert f'Saved at {step} steps' in told
  is_sound.append(True)
  result = run(config, resume=True)
  assert result.counts.actor_steps >= 2000 > step > 0


def test_skipped_updates_are_told_at_the_end(run, make_experiment, capsys):
  def make_huge(seed):
    def enlarge(timestep):
      return timestep._replace(reward=timestep.reward * 1e30)

    return functional_fakes.map_timesteps(_make_matching(seed), enlarge)

  config = CONFIG.replace(
    optimizer=optimization.Adam(max_skipped_updates=10**6)
  )
  result = run(make_experiment(make_huge, config=config))
  (skipped,) = result.state.skipped
  assert skipped > 0
  assert re.search(
    rf'{skipped} of {result.counts.learner_steps} updates were skipped.*'
    'lower the learning rate',
    capsys.readouterr().out,
  )


def test_events_are_weighed_by_internal_rewards(run, make_experiment):
  def make_with_events(seed):
    made = _make_matching(seed)
    spec = made.spec._replace(rewards=specs.Array((2,), np.float32, 'reward'))

    def add_event(timestep):
      reward = jnp.stack([timestep.reward, timestep.reward * 10.0])
      return timestep._replace(reward=reward)

    return functional_fakes.map_timesteps(made, add_event, spec)

  config = CONFIG.replace(internal_rewards_prior=hyperparameters.Constant(0.5))
  result = run(
    make_experiment(make_with_events, config=config, steps_per_round=50)
  )
  train = loggers.read_jsonl(loggers.log_path(result.run_dir, 'train'))
  row = train[-1]
  right, tenfold = row['event_returns']
  np.testing.assert_allclose(tenfold, 10 * right, rtol=1e-5)
  np.testing.assert_allclose(row['episode_return'], 11 * right, rtol=1e-5)
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'population'))
  (right, tenfold), (own,) = rows[-1]['event_rates'][0], rows[-1]['own_returns']
  np.testing.assert_allclose(tenfold, 10 * right, rtol=1e-5)
  np.testing.assert_allclose(own, 5.5 * right, rtol=1e-5)


@pytest.mark.slow
def test_images_are_learned_from(run, make_experiment):
  def make_images(seed):
    made = _make_matching(seed)
    image = specs.BoundedArray((8, 8, 1), np.uint8, 0, 255, 'observation')

    def draw(timestep):
      sign = (255 * timestep.observation[0]).astype(jnp.uint8)
      image = jnp.broadcast_to(sign, (8, 8, 1))
      return timestep._replace(observation=image)

    spec = made.spec._replace(observations=image)
    return functional_fakes.map_timesteps(made, draw, spec)

  config = CONFIG.replace(batch_size=2)  # Two updates an iteration.
  result = run(make_experiment(make_images, config, max_num_actor_steps=60))
  assert result.counts.learner_steps == 8
  np.testing.assert_array_equal(result.state.skipped, [0])


# Bad input.


def test_an_environment_in_python_is_refused(run, make_experiment):
  def make_python(seed):
    return fakes.FakeEnvironment(_make_matching(seed).spec, seed=seed)

  with pytest.raises(TypeError, match=r'must make a functional.*in Python'):
    run(make_experiment(make_python))


def _with_dtype(timestep):
  return timestep._replace(observation=timestep.observation.astype(jnp.int8))


def _with_shape(timestep):
  return timestep._replace(observation=timestep.observation[:1])


def _with_structure(timestep):
  return timestep._replace(observation={'sign': timestep.observation})


@pytest.mark.parametrize(
  ('function', 'message'),
  [
    (_with_dtype, r'\.observation of the environment .*dtype int8.*float32'),
    (_with_shape, r'\.observation of .*shape \(1,\).* of shape \(2,\)'),
    (_with_structure, r'must have the structure of its spec'),
  ],
)
def test_timesteps_off_their_spec_are_refused(
  run, make_experiment, function, message
):
  def make_bad(seed):
    return functional_fakes.map_timesteps(_make_matching(seed), function)

  with pytest.raises(ValueError, match=message):
    run(make_experiment(make_bad))


def test_a_state_that_changes_its_shape_is_refused(run, make_experiment):
  def make_growing(seed):
    made = _make_matching(seed)

    def step(state, action):
      state, timestep = made.step(state, action)
      return state._replace(sign=state.sign[None]), timestep

    return made._replace(step=step)

  with pytest.raises(
    ValueError, match=r'sign of the environment .*as in reset'
  ):
    run(make_experiment(make_growing))


def test_a_run_inside_jit_is_refused(run, make_experiment):
  with pytest.raises(RuntimeError, match='must not be called inside'):
    jax.jit(lambda: run(make_experiment()).mean_return)()


class StepObserver(experiment.Observer):
  def observe(self, environment, timestep, action):
    del environment, timestep, action


def test_observers_of_steps_are_refused(run, make_experiment):
  with pytest.raises(ValueError, match=r'observers .* must not observe steps'):
    run(make_experiment(observers=[StepObserver()]))


def test_an_unknown_runtime_is_refused(make_experiment):
  with pytest.raises(ValueError, match=r"runtime \('tpu'\) must be one of"):
    runs.run_experiment(make_experiment(), runtime='tpu')
