"""Whole runs on the device, and the functions that they are compiled of."""

import functools
import os
import shutil
import signal

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import hyperparameters, types
from ftwax.agents import impala
from ftwax.agents.actor_critic import acting, faults, learning
from ftwax.environments import catch, functional, validation
from ftwax.runtime import checkpoints, experiment, loggers, run_directory, runs
from ftwax.runtime.device import loop, rollout
from ftwax.testing import functional_fakes

CONFIG = impala.IMPALAConfig(
  core='feed_forward',
  hidden_size=8,
  vector_hidden_sizes=(8,),
  sequence_length=5,
  batch_size=4,
)


def _make_matching(seed):
  del seed
  return functional_fakes.make_matching()


@pytest.fixture
def make_experiment():
  def make(environment_factory=_make_matching, config=CONFIG, **options):
    options = {
      'max_num_actor_steps': 200,
      'num_environments': 4,
      'checkpointing': checkpoints.CheckpointingConfig(float('inf')),
      'name': 'test',
      **options,
    }
    return experiment.ExperimentConfig(
      builder=impala.make_builder(config),
      network_factory=functools.partial(impala.make_network, config=config),
      environment_factory=environment_factory,
      **options,
    )

  return make


@pytest.fixture
def run(tmp_path):
  """Runs an experiment in a directory of its own."""

  def run(config, name='run', **options):
    return runs.run_experiment(
      config, runtime='device', run_dir=tmp_path / name, **options
    )

  return run


@pytest.fixture
def short_calls(monkeypatch):
  """Makes a call of each iteration, so that runs can stop after any."""
  monkeypatch.setattr(loop, '_STEPS_PER_CALL', 1)


def _assert_same(tree, other):
  jax.tree.map(np.testing.assert_array_equal, tree, other)


def _differ(tree, other):
  leaves = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
  return any(np.any(np.asarray(x) != np.asarray(y)) for x, y in leaves)


# Rollouts.


def _start(environment, num_environments, key):
  """Returns environments, actor, variables and the state of a rollout."""
  config = CONFIG.replace(core='lstm')
  network = impala.make_network(environment.spec, config)
  actor = acting.make_actor_core(network, environment.spec)
  learner = learning.make_learner_core(network, impala.policy_loss, config)
  vector = functional.vectorize(environment, num_environments)
  variables = types.actor_variables(learner.init(key))
  state = rollout.start(*vector.reset(key), actor.init(key, num_environments))
  return vector, actor, variables, state


def test_a_rollout_is_what_steps_one_by_one_give(key):
  environment = functional_fakes.make_matching(episode_length=3)
  vector, actor, variables, state = _start(environment, 2, key)
  num_steps = 7
  _, trajectory, episodes = jax.jit(
    functools.partial(rollout.rollout, vector.step, actor.select_action),
    static_argnums=2,
  )(variables, state, num_steps)

  env_state, timestep, actor_state = state[:3]
  select, step = jax.jit(actor.select_action), jax.jit(vector.step)
  returns, lengths = np.zeros(2, np.float32), np.zeros(2, np.int32)
  for t in range(num_steps):
    first = np.asarray(timestep.step_type) == dm_env.StepType.FIRST
    last = np.asarray(timestep.step_type) == dm_env.StepType.LAST
    row = jax.tree.map(lambda leaf, t=t: leaf[t], trajectory.timestep)
    _assert_same(row, timestep)
    np.testing.assert_array_equal(
      trajectory.previous_action[t], np.where(first, -1, actor_state.action)
    )
    action, actor_state = select(variables, timestep, actor_state)
    np.testing.assert_allclose(
      trajectory.logits[t],
      np.where(last[:, None], 0.0, actor_state.logits),
      atol=1e-6,
    )
    env_state, timestep = step(env_state, action)
    np.testing.assert_array_equal(episodes.moved[t], ~last)
    ended = np.asarray(timestep.step_type) == dm_env.StepType.LAST
    np.testing.assert_array_equal(episodes.ended[t], ended)
    returns = np.where(last, 0.0, returns) + np.asarray(timestep.reward)
    lengths = np.where(last, 0, lengths + 1)
    np.testing.assert_array_equal(episodes.returns[t], returns)
    np.testing.assert_array_equal(episodes.lengths[t], lengths)
  assert np.asarray(episodes.ended).sum() == 4  # Steps 3 and 7, both rows.


def test_a_rollout_goes_on_where_the_last_one_stopped(key):
  environment = functional_fakes.make_matching(episode_length=3)
  vector, actor, variables, state = _start(environment, 2, key)
  roll = jax.jit(
    functools.partial(rollout.rollout, vector.step, actor.select_action),
    static_argnums=2,
  )
  middle, first, _ = roll(variables, state, 5)
  _, second, _ = roll(variables, middle, 5)
  _, whole, _ = roll(variables, state, 10)
  ends = jax.tree.map(lambda leaf: leaf[-1], first.timestep)
  starts = jax.tree.map(lambda leaf: leaf[0], second.timestep)
  _assert_same(ends, starts)
  _assert_same(
    jax.tree.map(lambda leaf: leaf[5:], whole.timestep), second.timestep
  )
  _assert_same(first.recurrent_state, state.actor.recurrent_state)
  _assert_same(second.recurrent_state, middle.actor.recurrent_state)
  assert _differ(first.recurrent_state, second.recurrent_state)


def test_statistics_of_catch(key):
  vector, actor, variables, state = _start(catch.make(rows=4), 3, key)
  _, _, episodes = rollout.rollout(
    vector.step, actor.select_action, variables, state, 12
  )
  # Three transitions and a reset are an episode.
  np.testing.assert_array_equal(
    np.flatnonzero(np.asarray(episodes.ended)[:, 0]), [2, 6, 10]
  )
  ended = np.asarray(episodes.ended)
  assert set(np.asarray(episodes.returns)[ended]) <= {-1.0, 1.0}
  assert set(np.asarray(episodes.lengths)[ended]) == {3}
  assert np.asarray(episodes.moved).sum() == 3 * 9


# Iterations.


def _make_echo():
  """Makes a learner whose metrics are the rewards that it was given."""

  def update(state, batch):
    rewards = batch.trajectory.timestep.reward  # [T + 1, B]
    carried = batch.trajectory.recurrent_state  # [B]
    return state._replace(skipped_in_a_row=state.skipped_in_a_row + 1), {
      'rewards': rewards,
      'carried': carried,
    }

  return types.LearnerCore(init=None, update=update)


@pytest.mark.parametrize('unroll', [False, True])
@pytest.mark.parametrize(('num_rollouts', 'num_updates'), [(1, 2), (3, 1)])
def test_each_trajectory_is_learned_from_once(
  num_rollouts, num_updates, unroll
):
  num_steps, num_rows = 3, 4
  shape = (num_rollouts, num_steps + 1, num_rows)
  stream = np.arange(num_rollouts * num_rows).reshape(num_rollouts, num_rows)
  rewards = np.arange(num_steps + 1)[:, None] + 10.0 * stream[:, None]
  assert rewards.shape == shape
  state = types.TrainingState(*[jnp.zeros((), jnp.int32)] * 8)
  trajectories = types.Trajectory(
    timestep=dm_env.TimeStep(None, jnp.asarray(rewards), None, None),
    previous_action=None,
    logits=None,
    recurrent_state=jnp.asarray(stream),
  )
  _, _, (metrics, skipped) = jax.jit(
    functools.partial(loop.learn, _make_echo(), None, num_updates, unroll)
  )(state, (), trajectories)
  np.testing.assert_array_equal(skipped, np.arange(num_updates) + 1)
  metrics = jax.tree.map(np.asarray, metrics)
  size = num_rollouts * num_rows // num_updates
  assert metrics['rewards'].shape == (num_updates, num_steps + 1, size)
  np.testing.assert_array_equal(
    metrics['carried'].reshape(-1), stream.reshape(-1)
  )
  np.testing.assert_array_equal(
    metrics['rewards'],
    np.arange(num_steps + 1)[:, None] + 10.0 * metrics['carried'][:, None],
  )


def test_sizes_of_an_iteration():
  spec = catch.make().spec
  few = loop.make_sizes(spec, 5, num_environments=4, batch_size=8)
  assert (few.num_rollouts, few.num_updates) == (2, 1)
  many = loop.make_sizes(spec, 5, num_environments=8, batch_size=4)
  assert (many.num_rollouts, many.num_updates) == (1, 2)
  assert few.steps_per_iteration == many.steps_per_iteration == 40
  assert many.num_iterations(10**9) == 8192 // 40
  assert many.num_iterations(100) == 2
  assert not many.unroll
  image = specs.BoundedArray((8, 8, 3), np.uint8, 0, 255)
  images = loop.make_sizes(spec._replace(observations=image), 5, 8, 4)
  assert images.unroll
  assert images.num_iterations(10**9) == 1


def test_environments_and_batches_must_fit():
  with pytest.raises(ValueError, match=r'num_environments \(6\) must divide'):
    loop.make_sizes(catch.make().spec, 5, num_environments=6, batch_size=4)


# Runs.


def test_the_agent_learns_to_match(run, make_experiment):
  config = CONFIG.replace(
    batch_size=8,
    priors=CONFIG.priors._replace(
      learning_rate=hyperparameters.Constant(3e-3),
      discount=hyperparameters.Constant(0.5),
    ),
  )
  result = run(
    make_experiment(
      config=config, max_num_actor_steps=20_000, num_environments=8
    )
  )
  assert result.mean_return > 8.5  # Chance is 5 of 10.


def test_a_run_leaves_its_records(run, make_experiment, short_calls, capsys):
  result = run(make_experiment(), eval_every=100, num_eval_episodes=6)
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
  assert int(result.state.steps) == result.counts.learner_steps
  assert np.isfinite(learner[-1]['loss'])
  for name in ('config.json', 'versions.json', 'checkpoints', 'curves.png'):
    assert (result.run_dir / name).exists()
  assert 'test: compiling took' in capsys.readouterr().out
  with pytest.raises(
    run_directory.ConfigMismatchError, match=r'seed: 0 in the run.*, 1 now'
  ):
    run(make_experiment(seed=1), resume=True)


def test_a_resumed_run_goes_on_bit_for_bit(run, make_experiment, short_calls):
  make_experiment = functools.partial(
    make_experiment,
    config=CONFIG.replace(core='lstm'),
    max_num_actor_steps=300,
    checkpointing=checkpoints.CheckpointingConfig(1e-9, max_to_keep=100),
  )
  whole = run(make_experiment())
  # Step 92 is in the middle of episodes, which have ten.
  calls = sorted((whole.run_dir / 'checkpoints').iterdir())
  assert [int(path.name) for path in calls[4:6]] == [92, 112]
  for later in calls[5:]:
    shutil.rmtree(later)
  resumed = run(make_experiment(), resume=True)
  _assert_same(whole.state, resumed.state)
  assert resumed.counts[:3] == whole.counts[:3]
  assert resumed.mean_return == whole.mean_return
  again = run(make_experiment(), resume=True)
  _assert_same(resumed.state, again.state)
  other = run(make_experiment(seed=1), 'other')
  assert _differ(whole.state.params, other.state.params)


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


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_saves_and_can_go_on(
  run, make_experiment, short_calls, tmp_path, capsys, signum
):
  def make_logger(label, steps_key, instance):
    del steps_key, instance
    if label == 'train':
      return _InterruptingLogger(signum)
    return loggers.JSONLLogger(tmp_path / f'{label}.jsonl')

  config = make_experiment(max_num_actor_steps=1000, logger_factory=make_logger)
  with pytest.raises(KeyboardInterrupt):
    run(config)
  assert '--resume --run_dir=' in capsys.readouterr().out
  saved = checkpoints.Checkpointer(tmp_path / 'run' / 'checkpoints')
  (step,) = saved.steps()
  saved.close()
  assert 0 < step < 1000


def _poison_observation(timestep):
  return timestep._replace(observation=timestep.observation * jnp.nan)


def _poison_reward(timestep):
  return timestep._replace(reward=timestep.reward * jnp.nan)


def test_a_reward_that_is_not_finite_is_named(run, make_experiment):
  def make_poisoned(seed):
    return functional_fakes.map_timesteps(_make_matching(seed), _poison_reward)

  with pytest.raises(
    validation.InvalidTimestepError,
    match=r"reward of environment 'test' \(nan, .*must be finite",
  ):
    run(make_experiment(make_poisoned))


def test_bad_gradients_are_skipped_counted_and_end_the_run(
  run, make_experiment, short_calls, tmp_path
):
  def make_poisoned(seed):
    return functional_fakes.map_timesteps(
      _make_matching(seed), _poison_observation
    )

  config = make_experiment(
    make_poisoned,
    config=CONFIG.replace(max_skipped_updates=3),
    max_num_actor_steps=10_000,
  )
  with pytest.raises(
    faults.NonFiniteGradientError, match=r'3 updates in a row had some'
  ):
    run(config)
  # What was learned until then is saved: 3 rollouts of 5 steps in 4 rows,
  # of which one step each was a reset.
  saved = checkpoints.Checkpointer(tmp_path / 'run' / 'checkpoints')
  assert saved.steps() == [56]
  saved.close()
  learner = loggers.read_jsonl(loggers.log_path(tmp_path / 'run', 'learner'))
  assert learner[-1]['skipped_updates'] == 3


def test_events_are_weighed_by_internal_rewards(run, make_experiment):
  def make_with_events(seed):
    made = _make_matching(seed)
    spec = made.spec._replace(rewards=specs.Array((2,), np.float32, 'reward'))

    def add_event(timestep):
      reward = jnp.stack([timestep.reward, timestep.reward * 10.0])
      return timestep._replace(reward=reward)

    return functional_fakes.map_timesteps(made, add_event, spec)

  config = CONFIG.replace(internal_rewards_prior=hyperparameters.Constant(0.5))
  result = run(make_experiment(make_with_events, config=config))
  train = loggers.read_jsonl(loggers.log_path(result.run_dir, 'train'))
  row = train[-1]
  right, tenfold = row['event_returns']
  np.testing.assert_allclose(tenfold, 10 * right, rtol=1e-5)
  np.testing.assert_allclose(row['own_return'], 5.5 * right, rtol=1e-5)
  np.testing.assert_allclose(row['episode_return'], 11 * right, rtol=1e-5)


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
  assert int(result.state.skipped) == 0


# Bad input.


def test_an_environment_in_python_is_refused(run, make_experiment):
  def make_python(seed):
    return functional.DmEnv(functional_fakes.make_matching(), seed)

  with pytest.raises(TypeError, match=r'must make a functional.*made a DmEnv'):
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
    (_with_structure, r'must have the structure that its spec tells'),
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

  with pytest.raises(ValueError, match=r'sign of the environment .*as reset'):
    run(make_experiment(make_growing))


def test_a_run_inside_jit_is_refused(run, make_experiment):
  with pytest.raises(RuntimeError, match='must not be called inside'):
    jax.jit(lambda: run(make_experiment()).mean_return)()


def test_observers_are_refused(run, make_experiment):
  with pytest.raises(ValueError, match=r'observers .* must be empty'):
    run(make_experiment(observers=[object()]))


def test_an_unknown_runtime_is_refused(make_experiment):
  with pytest.raises(ValueError, match=r"runtime \('tpu'\) must be one of"):
    runs.run_experiment(make_experiment(), runtime='tpu')
