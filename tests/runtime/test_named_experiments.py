"""Experiments told by names, and the agents that come of them."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import ftwax
from ftwax.agents import impala, ppo
from ftwax.environments import capture_the_flag, catch

_SMALL = impala.IMPALAConfig(
  core='feed_forward',
  vector_hidden_sizes=(4,),
  batch_size=4,
  sequence_length=4,
)


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


@pytest.mark.parametrize('environment', [Counting, lambda seed: Counting()])
def test_an_environment_of_gymnasium_is_played_as_it_is(environment, tmp_path):
  experiment = ftwax.make_experiment(
    _SMALL, environment, 64, name='counting', replay='functional'
  )
  result = ftwax.run(experiment, run_dir=tmp_path / 'run')
  assert result.mean_return == 3.0
  agent = ftwax.load(result.run_dir)
  np.testing.assert_array_equal(agent.evaluate(Counting(), 2), [3.0, 3.0])


def test_an_agent_is_evaluated_in_its_own_environment_alone(tmp_path):
  experiment = ftwax.make_experiment(_SMALL, lambda seed: catch.make(), 64)
  result = ftwax.run(experiment, run_dir=tmp_path / 'run', runtime='device')
  agent = ftwax.load(result.run_dir)
  returns = agent.evaluate(catch.make(), 20)
  assert returns.shape == (20,) and set(returns) == {-1.0, 1.0}
  with pytest.raises(ValueError, match=r'num_episodes \(0\) must be at least'):
    agent.evaluate(catch.make(), 0)
  with pytest.raises(ValueError, match=r'observation \(shape \(4,\)\) must be'):
    agent.evaluate('CartPole-v1')
  with pytest.raises(ValueError, match=r'environment \(4 players\) must be of'):
    agent.evaluate(capture_the_flag.make())


def test_an_environment_is_filmed_by_its_name(tmp_path):
  experiment = ftwax.make_experiment(
    _SMALL, 'CartPole-v1', 64, replay='functional'
  )
  result = ftwax.run(experiment, run_dir=tmp_path / 'run')
  path = tmp_path / 'film.gif'
  ftwax.load(result.run_dir).record('CartPole-v1', path, max_num_steps=3)
  assert path.read_bytes().startswith(b'GIF')
