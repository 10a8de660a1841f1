"""A population whose members learn nothing, for tests of evolution."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import hyperparameters as hyperparameters_lib
from ftwax import internal_rewards as internal_rewards_lib
from ftwax import types
from ftwax.population import exploring
from ftwax.population import population_config as config_lib
from ftwax.population import state as state_lib

NUM_EVENTS = 3


class Hyperparameters(NamedTuple):
  learning_rate: Any
  gradient_scale: Any
  slow_period: Any
  max_gradient_norm: Any


PRIORS = exploring.Traits(
  hyperparameters=Hyperparameters(
    learning_rate=hyperparameters_lib.LogUniform(1e-5, 5e-3),
    gradient_scale=hyperparameters_lib.Uniform(0.1, 1.0),
    slow_period=hyperparameters_lib.UniformInteger(5, 20),
    max_gradient_norm=hyperparameters_lib.Constant(float('inf')),
  ),
  internal_rewards=hyperparameters_lib.Uniform(-1.0, 1.0),
)


def learner_init(key):
  """Draws a member; its parameters tell it from all others."""
  keys = jax.random.split(key, 5)
  return types.TrainingState(
    params={'w': jax.random.normal(keys[0], (2, 3)), 'b': jnp.zeros(())},
    opt_state=(jax.random.normal(keys[1], (2, 3)), jnp.int32(0)),
    hyperparameters=hyperparameters_lib.sample(keys[2], PRIORS.hyperparameters),
    internal_rewards=internal_rewards_lib.sample(
      keys[3], PRIORS.internal_rewards, NUM_EVENTS
    ),
    key=keys[4],
    steps=jnp.int32(0),
    skipped=jnp.int32(0),
    skipped_in_a_row=jnp.int32(0),
  )


def make_population(num_members=6, seed=0, **options):
  """Returns a population before any game, and its config."""
  config = config_lib.PopulationConfig(num_members, **options)
  population = state_lib.init(
    jax.random.PRNGKey(seed), learner_init, config, team_size=2
  )
  return population, config
