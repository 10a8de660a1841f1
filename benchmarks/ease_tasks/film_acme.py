import acme
import gym
import haiku as hk
import jax
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


env = gym.make('CartPole-v1', render_mode='rgb_array')
env = wrappers.GymWrapper(gym.wrappers.RecordVideo(env, 'film'))
env = wrappers.SinglePrecisionWrapper(env)
spec = specs.make_environment_spec(env)
network = networks.FeedForwardNetwork(init, forward.apply)
functions = ppo.make_ppo_networks(network)
config = ppo.PPOConfig(unroll_length=2048, num_minibatches=32, num_epochs=10)
agent = ppo.PPO(spec, functions, config, seed=0, workdir='cartpole')
policy = ppo.make_inference_fn(functions, evaluation=True)
evaluator = agent.builder.make_actor(
  jax.random.PRNGKey(0), policy, variable_source=agent
)
acme.EnvironmentLoop(env, evaluator).run(num_episodes=1)
env.close()
