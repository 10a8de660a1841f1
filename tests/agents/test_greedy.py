"""A greedy policy is deterministic, whatever noise the network learns with."""

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import restart

from ftwax import types
from ftwax.agents import ftw, impala
from ftwax.agents.actor_critic import acting
from ftwax.networks.dnc import interfaces

SPEC = fakes.make_vector_spec()
IMPALA = impala.IMPALAConfig(hidden_size=8)
FTW = ftw.FTWConfig.paper(
  core='rpth_dnc',
  memory=interfaces.MemoryConfig(4, 4, 2),
  use_pixel_control=False,
  use_reward_prediction=False,
).with_size(8)
NETWORKS = {
  'factorised': lambda: IMPALA.replace(noise='factorised').make_network(SPEC),
  'independent': lambda: IMPALA.replace(noise='independent').make_network(SPEC),
  'dropout': lambda: IMPALA.replace(layer_norm=True, dropout=0.5).make_network(
    SPEC
  ),
  'latent': lambda: FTW.make_network(SPEC),
}


@pytest.mark.parametrize('name', NETWORKS)
def test_greedy_choice_does_not_depend_on_the_key(name, key):
  network = NETWORKS[name]()
  config = FTW if name == 'latent' else IMPALA
  variables = types.ActorVariables(
    network.init(key),
    config.sample_hyperparameters(key),
    jnp.ones((1,)),
    jnp.int32(0),
  )
  observation = fakes.sample(np.random.default_rng(0), SPEC.observations)
  timestep = jax.tree.map(
    lambda x: np.stack([x]), restart(observation)._replace(reward=0.0)
  )._replace(step_type=np.array([types.FIRST]), discount=np.ones(1))

  def logits(greedy, key):
    actor = acting.make_actor_core(network, SPEC, greedy=greedy)
    _, state = jax.jit(actor.select_action)(
      variables, timestep, actor.init(key, 1)
    )
    return state.logits

  other_key = jax.random.PRNGKey(7)
  np.testing.assert_array_equal(logits(True, key), logits(True, other_key))
  # Behaviour keeps its noise; nothing is ever dropped in acting.
  differs = np.any(logits(False, key) != logits(False, other_key))
  assert differs == (name != 'dropout')
