"""The For-The-Win agent behind acme's interfaces, with either replay."""

import acme
import fakes
import ftw_batches
import jax
import numpy as np
import pytest

from ftwax.agents.ftw import shells
from ftwax.replay.reverb import tables

SPEC = ftw_batches.SPEC


class _MemoryLogger:
  def __init__(self):
    self.rows = []

  def write(self, values):
    self.rows.append(jax.tree.map(np.asarray, dict(values)))

  def close(self):
    pass


@pytest.fixture(scope='module')
def logger():
  return _MemoryLogger()


@pytest.fixture(scope='module', params=['reverb', 'functional'])
def agent(logger, request):
  config = ftw_batches.make_config(core='rpth', batch_size=2)
  logger.rows.clear()
  made = shells.FTW(SPEC, config, seed=3, logger=logger, replay=request.param)
  yield made
  made.close()


def test_the_agent_acts_and_learns_in_acmes_loop(agent, logger):
  environment = fakes.FakeEnvironment(SPEC, episode_length=7)
  loop = acme.EnvironmentLoop(environment, agent, logger=_MemoryLogger())
  before = agent.learner.get_variables(['policy'])[0].params
  for _ in range(8):
    loop.run_episode()
  assert len(logger.rows) == agent.learner.num_steps >= 4
  assert all(np.isfinite(row['loss']) for row in logger.rows)
  # Replay lives from the first update on that came after a trajectory.
  assert logger.rows[-1]['pixel_control_live'] == 1.0
  assert logger.rows[-1]['reward_prediction_live'] in (0.0, 1.0)
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
  hypers = learner.state.hyperparameters._replace(slow_period=9)
  learner.set_hyperparameters(hypers)
  assert int(learner.state.hyperparameters.slow_period) == 9
  assert learner.state.hyperparameters.slow_period.dtype == np.int32
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


def test_a_learning_agent_leaves_acting_to_others():
  config = ftw_batches.make_config(core='lstm', batch_size=2)
  learning = shells.LearningFTW(SPEC, config, seed=1)
  _check_tables(learning.client.server_info())
  adder = learning.make_adder()
  actor = learning.make_actor(seed=5, adder=adder)
  loop = acme.EnvironmentLoop(
    fakes.FakeEnvironment(SPEC, episode_length=7),
    actor,
    logger=_MemoryLogger(),
  )
  loop.run(num_episodes=4)
  learning.run(num_steps=2)
  assert learning.learner.num_steps == 2
  saved = learning.save()
  learning.restore(saved)
  assert learning.learner.num_steps == 2
  assert isinstance(actor, shells.FTWActor)
  assert isinstance(learning.learner, shells.FTWLearner)
  adder.close()
  learning.close()
