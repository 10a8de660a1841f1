import haiku as hk
import jax

import ftwax
from ftwax import networks
from ftwax.agents import ppo


class BottleneckGRU(hk.Module):
  def __init__(self):
    super().__init__()
    self._squeeze = hk.Linear(32)
    self._gru = networks.GRU(64)
    self.initial_state = self._gru.initial_state

  def __call__(self, inputs, state, hyperparameters):
    return self._gru(jax.nn.relu(self._squeeze(inputs)), state, hyperparameters)

  def unroll(self, inputs, start, state, hyperparameters):
    inputs = jax.nn.relu(self._squeeze(inputs))
    return self._gru.unroll(inputs, start, state, hyperparameters)


def make_network(environment_spec, config):
  return networks.make_recurrent_network(
    environment_spec, make_core=BottleneckGRU
  )


config = ppo.PPOConfig(network=make_network)
experiment = ftwax.ExperimentConfig(config, 'CartPole-v1', 10_000)
ftwax.run(experiment, eval_every=10_000)
