import haiku as hk
import jax

import ftwax
from ftwax import networks
from ftwax.agents import ppo


class Torso(hk.Module):
  def __call__(self, observation):
    features = hk.LayerNorm(-1, True, True)(hk.Linear(128)(observation))
    return jax.nn.relu(hk.Linear(64)(jax.nn.relu(features)))


def make_network(environment_spec, config):
  return networks.make_recurrent_network(
    environment_spec, make_core=networks.FeedForward, make_torso=Torso
  )


config = ppo.PPOConfig(network=make_network)
experiment = ftwax.ExperimentConfig(config, 'CartPole-v1', 10_000)
ftwax.run(experiment, eval_every=10_000)
