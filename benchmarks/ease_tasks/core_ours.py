import haiku as hk
import jax

import ftwax
from ftwax.agents import ppo
from ftwax.networks import cores


class BottleneckGRU(hk.Module):
  def __init__(self):
    super().__init__()
    self._squeeze = hk.Linear(32)
    self._gru = cores.GRU(64).make()
    self.initial_state = self._gru.initial_state

  def __call__(self, inputs, state):
    return self._gru(jax.nn.relu(self._squeeze(inputs)), state)

  def unroll(self, inputs, start, state):
    inputs = jax.nn.relu(self._squeeze(inputs))
    return self._gru.unroll(inputs, start, state)


config = ppo.PPOConfig(core=BottleneckGRU)
experiment = ftwax.ExperimentConfig(config, 'CartPole-v1', 10_000)
ftwax.run(experiment, eval_every=10_000)
