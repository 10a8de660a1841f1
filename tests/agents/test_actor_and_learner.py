"""acme's actor and learner, on a real Reverb server."""

import inspect

import acme
import cloudpickle
import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reverb
from acme.utils import counting

from ftwax import acme as pair
from ftwax import hyperparameters, types
from ftwax.acme import datasets, servers, tables
from ftwax.agents import r2d2
from ftwax.agents.actor_critic import faults, optimization
from ftwax.environments import vector
from ftwax.networks import cores
from ftwax.replay import replay_options
from ftwax.runtime import sharding

EPISODE_LENGTH = 4


class _MemoryLogger:
  """Keeps what is written."""

  def __init__(self):
    self.rows = []

  def write(self, values):
    self.rows.append(jax.tree.map(np.asarray, dict(values)))


def _make_logger(label, steps_key, instance):
  del label, steps_key, instance
  return _MemoryLogger()


class _Agent:
  """The parts that a process makes with a builder."""

  def __init__(self, spec, network, config, num_environments=None):
    self.config = config
    builder = pair.Builder(config, num_environments)
    policy = builder.make_policy(network, spec)
    self.server = servers.make_server(builder.make_replay_tables(spec, policy))
    client = self.server.localhost_client()
    self.logger = _MemoryLogger()
    self.dataset = builder.make_dataset_iterator(client)
    self.learner = builder.make_learner(
      jax.random.PRNGKey(0),
      network,
      self.dataset,
      lambda label, steps_key, instance: self.logger,
      spec,
      client,
    )
    self.adder = builder.make_adder(client, spec, policy)
    self.actor = builder.make_actor(
      jax.random.PRNGKey(1), policy, spec, self.learner, self.adder
    )

  def close(self):
    self.adder.close()
    self.dataset.close()
    self.server.stop()


@pytest.fixture
def make_agent(spec, network, config):
  agents = []

  def make(num_environments=None, **options):
    agents.append(
      _Agent(spec, network, config.replace(**options), num_environments)
    )
    return agents[-1]

  yield make
  for agent in agents:
    agent.close()


def _fake(spec, seed=0):
  return fakes.FakeEnvironment(spec, EPISODE_LENGTH, seed=seed)


def test_acmes_environment_loop_runs_the_actor(make_agent, spec):
  agent = make_agent()
  loop = acme.EnvironmentLoop(_fake(spec), agent.actor, logger=_MemoryLogger())
  for _ in range(6):
    result = loop.run_episode()
    assert result['episode_length'] == EPISODE_LENGTH
  # 6 episodes are 30 timesteps; 5 trajectories of 5 use 26 of them.
  assert agent.adder.num_items == 5
  trajectory = next(agent.dataset).batch.trajectory
  step_type = np.asarray(trajectory.timestep.step_type)
  first = step_type == dm_env.StepType.FIRST
  assert first[0, 0] and step_type[4, 0] == dm_env.StepType.LAST
  np.testing.assert_array_equal(
    np.asarray(trajectory.previous_action) == types.NO_ACTION, first
  )
  # No choice is asked for at LAST, one is everywhere else.
  chosen = np.any(np.asarray(trajectory.logits) != 0, axis=-1)
  np.testing.assert_array_equal(chosen, step_type[:-1] != dm_env.StepType.LAST)


def test_trajectories_hold_what_the_environments_showed(make_agent, spec):
  """Each row of the server's items against the stream of its environment."""
  num_environments = 3
  agent = make_agent(num_environments)
  environment = vector.VectorEnvironment(
    [_fake(spec, seed) for seed in range(num_environments)]
  )
  seen = [environment.reset()]
  agent.actor.observe_first(seen[0])
  for _ in range(agent.config.sequence_length):
    action = agent.actor.select_action(seen[-1].observation)
    seen.append(environment.step(action))
    agent.actor.observe(action, seen[-1])
  stream = jax.tree.map(lambda *x: np.stack(x), *seen)
  trajectory = next(agent.dataset).batch.trajectory
  jax.tree.map(np.testing.assert_array_equal, trajectory.timestep, stream)


def test_learner_steps_change_what_the_actor_gets(make_agent, spec):
  agent = make_agent()
  loop = acme.EnvironmentLoop(_fake(spec), agent.actor, logger=_MemoryLogger())
  before = agent.learner.get_variables(['policy'])[0]
  loop.run(num_episodes=4)
  agent.learner.step()
  after = agent.learner.get_variables(['policy'])[0]
  assert (int(before.steps), int(after.steps)) == (0, 1)
  moved = jax.tree.map(lambda x, y: np.any(x != y), before.params, after.params)
  assert all(jax.tree.leaves(moved))
  (row,) = agent.logger.rows
  assert row['learner_steps'] == 1 and row['sample_age_steps'] == 0
  assert 0 < row['sample_age_s'] < 60 and 0 <= row['wait_fraction'] <= 1
  assert np.isfinite(row['loss']) and row['skipped_updates'] == 0


class _OnMesh:
  """A learner whose variables are on a mesh of one device."""

  def __init__(self, learner):
    self._learner = learner
    self._sharding = sharding.replicated(sharding.make_mesh(None))

  def get_variables(self, names):
    return jax.device_put(self._learner.get_variables(names), self._sharding)


def test_a_policy_is_compiled_once(make_agent, spec, network):
  agent = make_agent()
  core = agent.config.make_policy(network, spec)
  num_traces = 0

  def select_action(*args):
    nonlocal num_traces
    num_traces += 1
    return core.select_action(*args)

  actor = pair.Actor(
    core._replace(select_action=select_action),
    jax.random.PRNGKey(1),
    pair.VariableClient(_OnMesh(agent.learner)),
  )
  loop = acme.EnvironmentLoop(_fake(spec), actor, logger=_MemoryLogger())
  loop.run(num_episodes=2)
  assert num_traces == 1


def test_sample_age_counts_learner_steps(make_agent, spec):
  agent = make_agent(queue=replay_options.Queue(max_size=20))
  loop = acme.EnvironmentLoop(_fake(spec), agent.actor, logger=_MemoryLogger())
  loop.run(num_episodes=14)
  for _ in range(3):
    agent.learner.step()
  # All was written before the first step, by the first parameters.
  assert [row['sample_age_steps'] for row in agent.logger.rows] == [0, 1, 2]


def test_a_restored_learner_goes_on_bit_for_bit(
  make_agent, network, config, make_batch, spec
):
  batches = [_sample(make_batch(seed)) for seed in range(4)]

  def make_learner(dataset, seed):
    return pair.Builder(config).make_learner(
      jax.random.PRNGKey(seed), network, dataset, _make_logger, spec
    )

  straight = make_learner(iter(batches), seed=0)
  for _ in range(4):
    straight.step()
  first = make_learner(iter(batches[:2]), seed=0)
  for _ in range(2):
    first.step()
  second = make_learner(iter(batches[2:]), seed=1)
  second.restore(jax.tree.map(np.asarray, first.save()))
  assert second.num_steps == 2
  for _ in range(2):
    second.step()
  assert second.num_steps == straight.num_steps == 4
  jax.tree.map(np.testing.assert_array_equal, straight.state, second.state)


def test_the_learner_gives_up_after_too_many_bad_gradients(
  network, config, make_batch, spec
):
  good = make_batch(0)
  timestep = good.trajectory.timestep
  bad_timestep = timestep._replace(reward=timestep.reward.at[:].set(jnp.nan))
  bad = good._replace(
    trajectory=good.trajectory._replace(timestep=bad_timestep)
  )
  builder = pair.Builder(
    config.replace(optimizer=optimization.Adam(max_skipped_updates=3))
  )
  learner = builder.make_learner(
    jax.random.PRNGKey(0),
    network,
    iter([_sample(good)] + 10 * [_sample(bad)]),
    _make_logger,
    spec,
  )
  learner.step()
  params = learner.state.params
  with pytest.raises(
    faults.NonFiniteGradientError,
    match=r'3 updates in a row.*max_skipped_updates=3.*lower the learning rate',
  ):
    learner.run()
  assert learner.num_steps == 4
  jax.tree.map(np.testing.assert_array_equal, params, learner.state.params)


@pytest.fixture
def make_learner(network, config, make_batch, spec):
  def make(**priors):
    changed = config.replace(**priors)
    return pair.Builder(changed).make_learner(
      jax.random.PRNGKey(0),
      network,
      iter([_sample(make_batch(0))]),
      _make_logger,
      spec,
    )

  return make


def test_hyperparameters_can_be_set_while_running(make_learner):
  learner = make_learner()
  frozen = learner.state.hyperparameters._replace(learning_rate=0.0)
  learner.set_hyperparameters(frozen)
  before = learner.state.params
  learner.step()
  jax.tree.map(np.testing.assert_array_equal, before, learner.state.params)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'learning_rate': -1.0}, r'learning_rate \(-1.0\) must lie in \[0, inf\]'),
    ({'entropy_cost': np.nan}, r'entropy_cost \(nan\) must lie in \[0, inf\]'),
    ({'discount': 1.5}, r'discount \(1.5\) must lie in \[0, 1\]'),
    ({'baseline_cost': 0.5}, r'hyperparameters \(0.5\) must be integers'),
  ],
)
def test_hyperparameters_that_would_not_hold_are_refused(
  make_learner, changes, message
):
  learner = make_learner(baseline_cost=hyperparameters.UniformInteger(1, 1))
  before = learner.state.hyperparameters
  with pytest.raises(ValueError, match=message):
    learner.set_hyperparameters(before._replace(**changes))
  assert learner.state.hyperparameters is before
  learner.set_hyperparameters(before._replace(baseline_cost=2.0))
  assert learner.state.hyperparameters.baseline_cost == 2


def test_internal_rewards_must_be_finite(make_learner):
  with pytest.raises(ValueError, match=r'internal_rewards \(\[nan\]\) must be'):
    make_learner().set_internal_rewards([np.nan])


@pytest.mark.parametrize('num_environments', [None, 2])
def test_the_action_that_was_taken_is_recorded(
  make_agent, spec, num_environments
):
  agent = make_agent(num_environments, batch_size=1)
  environment = vector.VectorEnvironment(
    [_fake(spec, seed) for seed in range(num_environments or 1)]
  )

  def strip(tree):
    single = num_environments is None
    return jax.tree.map(lambda x: x[0], tree) if single else tree

  timestep = environment.reset()
  agent.actor.observe_first(strip(timestep))
  taken = []
  for _ in range(EPISODE_LENGTH + 1):
    selected = agent.actor.select_action(None)
    taken.append((np.atleast_1d(selected) + 1) % 3)
    timestep = environment.step(taken[-1])
    agent.actor.observe(strip(taken[-1]), strip(timestep))
  trajectory = next(agent.dataset).batch.trajectory
  first = np.asarray(trajectory.timestep.step_type)[1:, 0] == types.FIRST
  np.testing.assert_array_equal(
    np.asarray(trajectory.previous_action)[1:, 0],
    np.where(first, types.NO_ACTION, np.stack(taken)[:, 0]),
  )


def test_unknown_variables_are_refused(make_agent):
  with pytest.raises(ValueError, match=r"names \(\['critic'\]\) must be"):
    make_agent().learner.get_variables(['critic'])


def test_an_actor_must_observe_before_it_acts(make_agent):
  with pytest.raises(
    ValueError, match='select_action must be called after observe'
  ):
    make_agent().actor.select_action(np.zeros(4, np.float32))


def _sample(batch):
  return datasets.ReplaySample(
    batch, np.zeros(3, np.int64), np.zeros(3, np.float64)
  )


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      {'batch_size': 9},
      r'batch_size \(9\) must not be above max_size \(8\) of the queue.*'
      r'choose queue=Queue\(max_size=18\)',
    ),
    ({'sequence_length': 0}, r'sequence_length \(0\) must be at least 1'),
    ({'core': 'rnn'}, r"core \('rnn'\) must be one of \['lstm', 'gru', 'lru"),
    ({'torso': 'x'}, r"torso \('x'\) must be one of"),
  ],
)
def test_bad_options_are_refused(config, options, message):
  with pytest.raises(ValueError, match=message):
    config.replace(**options)


def test_tables_have_the_size_of_the_config(spec, network, config):
  builder = pair.Builder(config)
  (table,) = builder.make_replay_tables(
    spec, builder.make_policy(network, spec)
  )
  assert table.info.max_size == config.queue.max_size
  assert table.info.name == tables.QUEUE


# `acme.agents.jax.builders.ActorLearnerBuilder` on acme's main branch.
_ACME = {
  'make_replay_tables': '(environment_spec, policy)',
  'make_dataset_iterator': '(replay_client)',
  'make_adder': '(replay_client, environment_spec, policy)',
  'make_learner': (
    '(random_key, networks, dataset, logger_fn, environment_spec,'
    ' replay_client=None, counter=None)'
  ),
  'make_actor': (
    '(random_key, policy, environment_spec, variable_source=None, adder=None)'
  ),
  'make_policy': '(networks, environment_spec, evaluation=False)',
}


@pytest.mark.parametrize('method', _ACME)
def test_a_builder_has_the_arguments_of_acmes(config, method):
  signature = inspect.signature(getattr(pair.Builder(config), method))
  empty = inspect.Parameter.empty
  plain = [
    parameter.replace(annotation=empty)
    for parameter in signature.parameters.values()
  ]
  assert str(inspect.Signature(plain)) == _ACME[method]


def test_a_learners_process_needs_only_the_server(make_agent, network, spec):
  agent = make_agent()
  loop = acme.EnvironmentLoop(_fake(spec), agent.actor, logger=_MemoryLogger())
  loop.run(num_episodes=6)
  # As acme's programs do: the iterator first, and the specs of acme.
  builder = cloudpickle.loads(cloudpickle.dumps(pair.Builder(agent.config)))
  dataset = builder.make_dataset_iterator(
    reverb.Client(f'localhost:{agent.server.port}')
  )
  with pytest.raises(ValueError, match=r'needs the layout.*call its make_'):
    next(dataset)
  counter = counting.Counter(prefix='learner')
  logger = _MemoryLogger()
  learner = builder.make_learner(
    jax.random.PRNGKey(0),
    network,
    dataset,
    lambda *label: logger,
    acme.specs.EnvironmentSpec(*spec[:4]),
    counter=counter,
  )
  learner.step()
  assert counter.get_counts() == {'learner_steps': 1}
  (row,) = logger.rows
  assert row['learner_steps'] == 1 and np.isfinite(row['loss'])
  dataset.close()


def test_an_actor_needs_variables(config, network, spec):
  builder = pair.Builder(config)
  with pytest.raises(ValueError, match=r'variable_source \(None\) must serve'):
    builder.make_actor(
      jax.random.PRNGKey(0), builder.make_policy(network, spec), spec
    )


_BY_PRIORITY = r2d2.R2D2Config(
  core=cores.LSTM(8),
  sequence_length=5,
  batch_size=2,
  queue=replay_options.Queue(timeout_s=3.0),
  replay=replay_options.Prioritized(
    capacity=20, min_size=4, samples_per_insert=2.0
  ),
)


def test_the_pair_learns_by_priority_at_its_ratio(spec):
  agent = _Agent(spec, _BY_PRIORITY.make_network(spec), _BY_PRIORITY)
  loop = acme.EnvironmentLoop(_fake(spec), agent.actor, logger=_MemoryLogger())
  loop.run(num_episodes=6)
  assert agent.adder.num_items == 5
  agent.learner.step()
  # Each trajectory after the fourth is worth one more batch of two, and the
  # limiter lets four samples be taken in advance.
  with pytest.raises(tables.ReplayTimeoutError, match="table 'replay' must"):
    for _ in range(20):
      agent.learner.step()
  num_before = agent.learner.num_steps
  assert 2 <= num_before <= 4
  loop.run(num_episodes=2)
  agent.learner.step()
  row = agent.logger.rows[-1]
  assert row['learner_steps'] == num_before + 1
  assert row['replay_size'] >= 5 and np.isfinite(row['loss'])
  assert 'priorities' not in row
  client = agent.server.localhost_client()
  assert client.server_info()[tables.LARGEST_PRIORITY].current_size == 1
  assert tables.LargestPriority(client).read() != 1.0
  agent.close()


def test_a_learner_by_priority_needs_the_server(spec):
  builder = pair.Builder(_BY_PRIORITY)
  with pytest.raises(
    ValueError, match=r'replay_client \(None\) must be a client'
  ):
    builder.make_learner(
      jax.random.PRNGKey(0),
      _BY_PRIORITY.make_network(spec),
      iter(()),
      _make_logger,
      spec,
    )
