import haiku as hk
import jax

import ftwax
from ftwax.agents import ppo


class Torso(hk.Module):
  def __call__(self, observation):
    features = hk.LayerNorm(-1, True, True)(hk.Linear(128)(observation))
    return jax.nn.relu(hk.Linear(64)(jax.nn.relu(features)))


config = ppo.PPOConfig(core='feed_forward', torso=Torso)
experiment = ftwax.ExperimentConfig(config, 'CartPole-v1', 10_000)
ftwax.run(experiment, eval_every=10_000)
