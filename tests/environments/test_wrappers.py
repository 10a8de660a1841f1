"""Running statistics in wrappers are found, wherever they are."""

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers as of_gymnasium

from ftwax.environments import (
  adapting,
  checking,
  game_vectors,
  gymnasium_adapter,
  vector,
)

OPTIONS = {
  of_gymnasium.NormalizeObservation: 'normalize_observations=True',
  of_gymnasium.NormalizeReward: 'normalize_returns=True',
}


class _OwnMoments:
  def __init__(self):
    self.mean, self.var, self.count = 0.0, 1.0, 1e-4


class OwnScaling(gymnasium.Wrapper):
  """A recipe of one's own."""

  def __init__(self, env):
    super().__init__(env)
    self.reward_moments = _OwnMoments()


def _make(wrapper):
  env = wrapper(gymnasium.make('CartPole-v1'))
  return of_gymnasium.ClipReward(env, -10.0, 10.0)


@pytest.mark.parametrize('wrapper', [*OPTIONS, OwnScaling])
def test_statistics_in_the_stack_are_refused(wrapper):
  option = OPTIONS.get(wrapper, 'normalize_returns=True')
  message = f'{wrapper.__name__} of CartPoleEnv .* must not keep.*{option}'
  with pytest.raises(ValueError, match=message):
    game_vectors.make_games(lambda seed: _make(wrapper), [0], 'pole')
  with pytest.raises(ValueError, match=message):
    adapting.wrap(_make(wrapper), seed=0)


# Gymnasium's vectors fork.
@pytest.mark.filterwarnings('ignore:os.fork')
@pytest.mark.parametrize('wrapper', OPTIONS)
@pytest.mark.parametrize('way', ['rows', 'processes', 'vector'])
def test_statistics_of_vectors_are_refused(wrapper, way):
  def make(num_environments, seed):
    row = (lambda: _make(wrapper)) if way != 'vector' else (
      lambda: gymnasium.make('CartPole-v1')
    )  # fmt: skip
    kind = gymnasium.vector.SyncVectorEnv
    if way == 'processes':
      kind = gymnasium.vector.AsyncVectorEnv
    envs = kind([row] * num_environments)
    if way == 'vector':
      envs = getattr(of_gymnasium.vector, wrapper.__name__)(envs)
    try:
      return gymnasium_adapter.GymnasiumVectorEnvironment(envs, seed)
    except ValueError:
      envs.close()
      raise

  with pytest.raises(ValueError, match=f'must not keep.*{OPTIONS[wrapper]}'):
    game_vectors.make_games(vector.VectorFactory(make), [0, 1], 'pole')


def test_final_statistics_are_taken():
  def make(seed):
    env = of_gymnasium.NormalizeObservation(gymnasium.make('CartPole-v1'))
    env.update_running_mean = False
    return env

  games = game_vectors.make_games(make, [0], 'pole')
  assert games.reset().observation.shape == (1, 4)


def test_a_table_of_data_has_no_statistics():
  class Table:
    def mean(self):
      return 0.0

    var = count = mean

  class Trading(gymnasium.Wrapper):
    def __init__(self, env):
      super().__init__(env)
      self.prices = Table()

  games = game_vectors.make_games(
    lambda seed: Trading(gymnasium.make('CartPole-v1')), [0], 'pole'
  )
  assert games.wrappers[0] == 'Trading'


def test_a_check_names_masks_metrics_and_wrappers():
  class Counted(gymnasium.Wrapper):
    def step(self, action):
      *rest, info = self.env.step(action)
      return *rest, {**info, 'height': 1.0, 'text': 'high'}

    def reset(self, **options):
      observation, _ = self.env.reset(**options)
      return observation, {'action_mask': np.ones(2, np.int8)}

  def make(seed):
    class Masked(Counted):
      def step(self, action):
        *rest, info = super().step(action)
        return *rest, {**info, 'action_mask': np.ones(2, np.int8)}

    return Masked(gymnasium.make('CartPole-v1'))

  facts = checking.check(make, num_steps=200).facts
  assert facts['metrics'] == 'height'
  assert facts['action masks'] == "from info['action_mask']"
  assert facts['wrappers'].startswith('Masked, TimeLimit')
