import acme
import gym
import haiku as hk
import numpy as np
from acme import specs, wrappers
from acme.agents.jax import ppo
from acme.jax import networks


@hk.without_apply_rng
@hk.transform
def forward(observations):
  torso = hk.nets.MLP((64, 64), activate_final=True)
  return networks.CategoricalValueHead(2)(torso(observations))


def init(key):
  return forward.init(key, np.zeros((1, 4)))


env = wrappers.GymWrapper(gym.make('CartPole-v1'))
env = wrappers.SinglePrecisionWrapper(env)
spec = specs.make_environment_spec(env)
network = networks.FeedForwardNetwork(init, forward.apply)
functions = ppo.make_ppo_networks(network)
config = ppo.PPOConfig(unroll_length=2048, num_minibatches=32, num_epochs=10)
for seed in range(3):
  agent = ppo.PPO(spec, functions, config, seed=seed, workdir=None)
  loop = acme.EnvironmentLoop(env, agent)
  loop.run(num_steps=10_000)
  print([loop.run_episode()['episode_return'] for _ in range(10)])
