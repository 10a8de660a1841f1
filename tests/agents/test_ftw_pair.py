"""The For-The-Win agent as an acme pair."""

import acme
import fakes
import ftw_batches
import jax
import numpy as np
import pytest

from ftwax import acme as pair
from ftwax import hyperparameters
from ftwax.acme import learner as learner_lib
from ftwax.acme import servers, tables

SPEC = ftw_batches.SPEC


class _MemoryLogger:
  def __init__(self):
    self.rows = []

  def write(self, values):
    self.rows.append(jax.tree.map(np.asarray, dict(values)))

  def close(self):
    pass


class _Agent:
  """The pair and the replay between them."""

  def __init__(self, config):
    builder = pair.Builder(config)
    network = config.make_network(SPEC)
    policy = builder.make_policy(network, SPEC)
    learner_key, actor_key = map(jax.random.PRNGKey, (3, 4))
    self.batch_size = config.batch_size
    self.logger = _MemoryLogger()
    self.server = servers.make_server(builder.make_replay_tables(SPEC, policy))
    client = self.server.localhost_client()
    self.dataset = builder.make_dataset_iterator(client)
    self.adder = builder.make_adder(client, SPEC, policy)
    self.learner = learner_lib.make_learner(
      config, learner_key, network, self.dataset, lambda *_: self.logger, SPEC
    )
    self.actor = builder.make_actor(
      actor_key, policy, SPEC, self.learner, self.adder
    )

  def learn(self):
    """Does one update for each full batch of trajectories written so far."""
    due = self.adder.num_items // self.batch_size
    self.learner.run(due - len(self.logger.rows))

  def close(self):
    self.adder.close()
    self.dataset.close()
    servers.stop(self.server)


@pytest.fixture(scope='module')
def agent():
  config = ftw_batches.make_config(core='rpth', batch_size=2)
  agent = _Agent(config)
  yield agent
  agent.close()


def test_the_agent_acts_and_learns_in_acmes_loop(agent):
  environment = fakes.FakeEnvironment(SPEC, episode_length=7)
  loop = acme.EnvironmentLoop(environment, agent.actor, logger=_MemoryLogger())
  before = agent.learner.get_variables(['policy'])[0].params
  for _ in range(8):
    loop.run_episode()
    agent.learn()
  rows = agent.logger.rows
  assert len(rows) == agent.learner.num_steps >= 4
  assert all(np.isfinite(row['loss']) for row in rows)
  # Replay lives from the first update on that came after a trajectory.
  assert rows[-1]['pixel_control_live'] == 1.0
  assert rows[-1]['reward_prediction_live'] in (0.0, 1.0)
  after = agent.learner.get_variables(['policy'])[0].params
  assert any(
    np.any(x != y)
    for x, y in zip(
      jax.tree.leaves(before), jax.tree.leaves(after), strict=True
    )
  )


def test_what_evolves_can_be_read_and_set(agent):
  learner = agent.learner
  learner.set_internal_rewards([1.0, 2.0, 3.0])
  np.testing.assert_array_equal(learner.state.internal_rewards, [1, 2, 3])
  (variables,) = learner.get_variables(['policy'])
  np.testing.assert_array_equal(variables.internal_rewards, [1, 2, 3])
  hypers = hyperparameters.update(
    learner.state.hyperparameters, {'core.slow_period': lambda _: 9}
  )
  learner.set_hyperparameters(hypers)
  assert int(learner.state.hyperparameters.core.slow_period) == 9
  assert learner.state.hyperparameters.core.slow_period.dtype == np.int32
  learner.set_steps(100)
  assert learner.num_steps == int(learner.state.steps) == 100
  zeros = jax.tree.map(np.zeros_like, learner.state.params)
  learner.set_params(zeros)
  assert not any(np.any(x) for x in jax.tree.leaves(learner.state.params))
  with pytest.raises(
    ValueError, match=r'internal_rewards \(shape \(2,\)\) must have the shape'
  ):
    learner.set_internal_rewards([1.0, 2.0])


def _check_tables(info):
  assert set(info) == {
    tables.QUEUE,
    tables.REPLAY,
    tables.REWARD_PREDICTION_ZERO,
    tables.REWARD_PREDICTION_NONZERO,
  }
  assert info[tables.REPLAY].max_size == 100
  assert info[tables.REWARD_PREDICTION_ZERO].max_size == 800


@pytest.mark.slow
def test_a_learner_leaves_acting_to_others():
  config = ftw_batches.make_config(core='lstm', batch_size=2)
  agent = _Agent(config)
  _check_tables(agent.server.localhost_client().server_info())
  loop = acme.EnvironmentLoop(
    fakes.FakeEnvironment(SPEC, episode_length=7),
    agent.actor,
    logger=_MemoryLogger(),
  )
  loop.run(num_episodes=4)
  agent.learner.run(num_steps=2)
  assert agent.learner.num_steps == 2
  agent.learner.restore(agent.learner.save())
  assert agent.learner.num_steps == 2
  assert isinstance(agent.actor, acme.Actor)
  assert isinstance(agent.learner, acme.Learner)
  agent.close()
