import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy


class Target(gymnasium.Env):
  """Move along a line to a point that is shown."""

  observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
  action_space = spaces.Discrete(3)

  def reset(self, seed=None, options=None):
    super().reset(seed=seed)
    self._state = self.np_random.uniform(-1, 1, 2).astype(np.float32)
    self._steps = 0
    return self._state.copy(), {}

  def step(self, action):
    self._state[0] = np.clip(self._state[0] + 0.1 * (action - 1), -2, 2)
    self._steps += 1
    reward = 1.0 - abs(float(self._state[0] - self._state[1]))
    return self._state.copy(), reward, False, self._steps == 50, {}


agent = PPO('MlpPolicy', Target()).learn(10_000)
print(evaluate_policy(agent, agent.get_env()))
