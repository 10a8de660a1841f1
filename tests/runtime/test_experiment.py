"""Configs of experiments: names, agents and environments."""

import gymnasium
import numpy as np
import pytest
import run_helpers
from gymnasium import spaces

import ftwax
from ftwax.agents import ppo
from ftwax.environments import catch
from ftwax.records import config_files
from ftwax.runtime import prepare

_SMALL = run_helpers.FEED_FORWARD


class Counting(gymnasium.Env):
  """Pays 1 for each of three steps."""

  observation_space = spaces.Box(0.0, 3.0, (1,), np.float32)
  action_space = spaces.Discrete(2)

  def reset(self, seed=None, options=None):
    super().reset(seed=seed)
    self._steps = 0
    return np.zeros(1, np.float32), {}

  def step(self, action):
    self._steps += 1
    observation = np.full(1, self._steps, np.float32)
    return observation, 1.0, self._steps == 3, False, {}


def test_an_experiment_is_named_after_agent_and_environment():
  made = ftwax.ExperimentConfig(ppo.PPOConfig(), 'CartPole-v1', 100)
  assert made.name == 'ppo_CartPole-v1'
  spec = prepare.prepare(made).spec.environment
  assert spec.observations.shape == (4,) and spec.actions.num_values == 2
  made = ftwax.ExperimentConfig(_SMALL, 'ALE/Pong-v5', 100)
  assert made.name == 'impala_ALE_Pong-v5'
  assert ftwax.ExperimentConfig(_SMALL, Counting, 1).name == 'impala_Counting'
  assert ftwax.ExperimentConfig(_SMALL, Counting, 1, name='a').name == 'a'


@pytest.mark.parametrize('agent', ['ppo', None, 3])
def test_other_agents_are_refused(agent):
  with pytest.raises(ValueError, match=r'agent .* must be the config'):
    ftwax.ExperimentConfig(agent, 'CartPole-v1', 100)


@pytest.mark.parametrize('field', ['environment', 'evaluation_environment'])
def test_other_environments_are_refused(field):
  fields = {'environment': 'CartPole-v1', field: 3}
  with pytest.raises(TypeError, match=r'environment \(3\) must be the name'):
    ftwax.ExperimentConfig(_SMALL, max_num_actor_steps=100, **fields)


def test_an_environment_in_jax_may_be_given_as_it_is():
  environment = catch.make()
  made = ftwax.ExperimentConfig(_SMALL, environment, 64)
  assert made.environment_factory(1) is environment
  config_files.to_json(made)  # Can be recorded.


def test_a_class_gets_a_seed_if_it_takes_one():
  class Seeded(Counting):
    def __init__(self, seed):
      self.observation_space = spaces.Box(0.0, seed, (1,), np.float32)

  made = ftwax.ExperimentConfig(_SMALL, Seeded, 64)
  spec = made.environment_factory(5).observation_spec()
  assert spec.maximum == 5.0


@pytest.mark.slow
def test_a_class_of_gymnasium_is_played_as_it_is(tmp_path):
  experiment = ftwax.ExperimentConfig(_SMALL, Counting, 64, replay='functional')
  result = ftwax.run(experiment, run_dir=tmp_path / 'run')
  assert result.mean_return == 3.0
  agent = ftwax.load(result.run_dir)
  np.testing.assert_array_equal(agent.evaluate(Counting(), 2), [3.0, 3.0])


def test_a_factory_may_make_an_environment_of_gymnasium():
  made = ftwax.ExperimentConfig(_SMALL, lambda seed: Counting(), 64)
  games = prepare.prepare(made).make_games([0, 1], 'games')
  assert games.reset().observation.shape == (2, 1)
  timestep = games.step(np.zeros(2, np.int32))
  np.testing.assert_array_equal(timestep.reward, [1.0, 1.0])
