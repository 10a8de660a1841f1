import haiku as hk
import jax

import ftwax
from ftwax import networks


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


def make_network(environment_spec):
  return networks.make_recurrent_network(
    environment_spec, make_core=BottleneckGRU
  )


experiment = ftwax.make_experiment(
  'ppo', 'CartPole-v1', 10_000, network_factory=make_network
)
ftwax.run(experiment, eval_every=10_000)
