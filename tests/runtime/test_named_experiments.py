"""Experiments told by names, and the agents that come of them."""

import gymnasium
import numpy as np
import pytest
import run_helpers
from gymnasium import spaces

import ftwax
from ftwax.agents import ppo

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


def test_names_give_the_defaults():
  made = ftwax.make_experiment('ppo', 'CartPole-v1', 100, seed=3)
  assert made.name == 'ppo_CartPole-v1'
  assert made.builder.config == ppo.PPOConfig()
  assert (made.max_num_actor_steps, made.seed) == (100, 3)
  spec = made.read_game_spec().environment
  assert spec.observations.shape == (4,) and spec.actions.num_values == 2


def test_a_config_and_fields_take_the_place_of_defaults():
  made = ftwax.make_experiment(
    _SMALL, 'ALE/Pong-v5', 100, name='mine', network_factory=len
  )
  assert made.name == 'mine' and made.network_factory is len
  assert made.builder.config is _SMALL
  made = ftwax.make_experiment(_SMALL, 'ALE/Pong-v5', 100)
  assert made.name == 'impala_ALE_Pong-v5'


@pytest.mark.parametrize('agent', ['pppo', None, 3])
def test_other_agents_are_refused(agent):
  with pytest.raises(ValueError, match=r"agent .* must be one of \['a2c'"):
    ftwax.make_experiment(agent, 'CartPole-v1', 100)


@pytest.mark.slow
def test_a_class_of_gymnasium_is_played_as_it_is(tmp_path):
  experiment = ftwax.make_experiment(_SMALL, Counting, 64, replay='functional')
  result = ftwax.run(experiment, run_dir=tmp_path / 'run')
  assert result.mean_return == 3.0
  agent = ftwax.load(result.run_dir)
  np.testing.assert_array_equal(agent.evaluate(Counting(), 2), [3.0, 3.0])


def test_a_factory_may_make_an_environment_of_gymnasium():
  made = ftwax.make_experiment(_SMALL, lambda seed: Counting(), 64)
  games = made.make_games(made.environment_factory, [0, 1], 'games')
  assert games.reset().observation.shape == (2, 1)
  timestep = games.step(np.zeros(2, np.int32))
  np.testing.assert_array_equal(timestep.reward, [1.0, 1.0])
