import acme
import gym
import haiku as hk
import numpy as np
from acme import specs, wrappers
from acme.agents.jax import ppo
from acme.jax import networks
from gym import spaces


class Target(gym.Env):
  """Move along a line to a point that is shown."""

  observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
  action_space = spaces.Discrete(3)

  def reset(self):
    self._state = self.np_random.uniform(-1, 1, 2).astype(np.float32)
    self._steps = 0
    return self._state.copy()

  def step(self, action):
    self._state[0] = np.clip(self._state[0] + 0.1 * (action - 1), -2, 2)
    self._steps += 1
    reward = 1.0 - abs(float(self._state[0] - self._state[1]))
    info = {'TimeLimit.truncated': self._steps == 50}
    return self._state.copy(), reward, self._steps == 50, info


@hk.without_apply_rng
@hk.transform
def forward(observations):
  torso = hk.nets.MLP((64, 64), activate_final=True)
  return networks.CategoricalValueHead(3)(torso(observations))


def init(key):
  return forward.init(key, np.zeros((1, 2)))


env = wrappers.SinglePrecisionWrapper(wrappers.GymWrapper(Target()))
spec = specs.make_environment_spec(env)
network = networks.FeedForwardNetwork(init, forward.apply)
functions = ppo.make_ppo_networks(network)
config = ppo.PPOConfig(unroll_length=2048, num_minibatches=32, num_epochs=10)
agent = ppo.PPO(spec, functions, config, seed=0, workdir=None)
loop = acme.EnvironmentLoop(env, agent)
loop.run(num_steps=10_000)
print([loop.run_episode()['episode_return'] for _ in range(10)])
