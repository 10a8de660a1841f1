"""PB2 finds what brings most, by a model of the gains that it has seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import hyperparameters
from ftwax.experiments import pbt_quadratic  # noqa: TID251
from ftwax.population import evolution, pb2, population_config, selection
from ftwax.population import state as state_lib

PRIORS = evolution.Traits(
  pbt_quadratic.Surrogate(
    hyperparameters.LogUniform(1e-4, 1.0), hyperparameters.Uniform(-1.0, 1.0)
  ),
  hyperparameters.Constant(1.0),
)
CONFIG = population_config.PopulationConfig(
  4, burn_in_games=0, num_returns=1, truncation_fraction=0.5
)


def _distance(values):
  """Returns how far members are from the best values, 1e-2 and 0.5."""
  x = jnp.log10(values.h_x / 1e-2) / 4.0
  return jnp.sqrt(x**2 + ((values.h_y - 0.5) / 2.0) ** 2)


def _run(key):
  """Returns the distances [4] after 40 generations; near members gain more."""
  explore = pb2.PB2()
  start = jax.vmap(
    lambda key: hyperparameters.sample(key, PRIORS.hyperparameters)
  )(jax.random.split(key, 4))
  members = evolution.members_of_traits(
    evolution.Traits(start, jnp.ones((4, 1)))
  )._replace(params=jnp.zeros(4))
  population = state_lib.from_members(
    members, key, CONFIG, evolution.init_explore(explore, 4, PRIORS)
  )

  def step(population, key):
    members = population.members
    reached = members.params + 1.0 - _distance(members.hyperparameters)
    population = state_lib.record_returns(
      population._replace(members=members._replace(params=reached)),
      reached[:, None],
      jnp.ones((4, 1), bool),
    )
    return evolution.evolve(
      key, population, PRIORS, CONFIG, selection.truncation, explore
    )[0], None

  population, _ = jax.lax.scan(step, population, jax.random.split(key, 40))
  return _distance(population.members.hyperparameters)


@pytest.mark.slow
def test_members_come_to_what_brings_most():
  keys = jax.random.split(jax.random.PRNGKey(0), 3)
  found = np.asarray(jax.jit(jax.vmap(_run))(keys))
  # Of random values, one in a hundred is as near as this.
  assert (found.min(axis=1) < 0.06).all()
  assert (np.median(found, axis=1) < 0.2).all()


@pytest.mark.slow
@pytest.mark.parametrize('seed', [0, 1, 2])
def test_the_population_reaches_the_top_of_the_quadratic(seed):
  key = jax.random.PRNGKey(seed)
  _, theta, _ = pbt_quadratic.run(pbt_quadratic.CONFIG, key, 200, pb2.PB2())
  assert pbt_quadratic.objective(theta[-1]).max() >= 1.199


def test_the_unit_interval_spans_a_prior():
  for prior in PRIORS.hyperparameters:
    values = pb2._from_unit(prior, jnp.array([0.0, 0.5, 1.0]))
    np.testing.assert_allclose(values[::2], prior.limits, rtol=1e-5)
    units = pb2._to_unit(prior, values)
    np.testing.assert_allclose(units, [0.0, 0.5, 1.0], atol=1e-5)
