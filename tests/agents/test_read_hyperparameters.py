"""An agent has exactly the hyperparameters that its parts read."""

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches

from ftwax import hyperparameters
from ftwax.agents import ftw, unreal
from ftwax.agents.actor_critic import tasks
from ftwax.networks import cores

SIZES = {'sequence_length': 4, 'batch_size': 2, 'num_minibatches': 1}
AGENTS = {
  'lstm with ppo': ftw.small(
    core='lstm', learning_rate=0.1, num_epochs=4, tasks=(), **SIZES
  ),
  'rpth with vtrace': ftw.FTWConfig(  # Costs that no rounding hides.
    core=cores.RPTH(),
    learning_rate=0.1,
    tasks=(tasks.LatentKL(posterior_prior_cost=0.1, prior_fixed_cost=0.1),),
    **SIZES,
  ),
  'value replay': unreal.UNREALConfig(tasks=('value_replay',), **SIZES),
}


def _change(values, name):
  """Returns the values of which one is smaller."""

  def shrink(value):
    small = 2 if value.dtype == jnp.int32 else jnp.minimum(0.5 * value, 0.01)
    return jnp.asarray(small, value.dtype)

  return hyperparameters.update(values, {name: shrink})


def _are_equal(a, b):
  return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


@pytest.mark.parametrize('name', AGENTS)
def test_updates_depend_on_every_hyperparameter(name, key):
  config, spec = AGENTS[name].with_size(4), fakes.make_vector_spec()
  network = config.make_network(spec)
  core = config.make_learner_core(network, spec)
  batch = random_batches.make_batch(0, spec, network, config)
  state = core.init(key)
  values = jax.tree.map(jnp.asarray, state.hyperparameters)

  @jax.jit
  def update_twice(values):
    changed = state._replace(hyperparameters=values)
    for _ in range(2):
      changed, _ = core.update(changed, batch)
    return changed.params

  params = update_twice(values)
  without_effect = {
    name
    for name in hyperparameters.names(values)
    if _are_equal(update_twice(_change(values, name)), params)
  }
  assert not without_effect
