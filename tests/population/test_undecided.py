"""Members in whose games nobody wins draw new traits."""

import jax
import jax.numpy as jnp
import numpy as np
import population_fakes
import pytest

from ftwax.population import evolution


@pytest.fixture(scope='module')
def evolve():
  return jax.jit(evolution.evolve, static_argnames=('priors', 'config'))


def _make_population(games, decided, **options):
  population, config = population_fakes.make_population(
    4, burn_in_games=100, **options
  )
  return population._replace(
    games_since_exploitation=jnp.array(games, jnp.int32),
    decided_games=jnp.array(decided, jnp.int32),
  ), config


def _is_same(before, after):
  """Returns which members have the same values in both trees."""
  same = jax.tree.map(
    lambda x, y: np.all(np.equal(x, y).reshape(4, -1), axis=1), before, after
  )
  return np.all(jax.tree.leaves(same), axis=0)


def test_only_they_do_and_only_after_their_burn_in(evolve):
  population, config = _make_population(
    [99, 100, 200, 200], [0, 9, 20, 19], min_decided_fraction=0.1
  )
  after, generation = evolve(
    jax.random.PRNGKey(0), population, population_fakes.PRIORS, config
  )
  expected = [False, True, False, True]
  np.testing.assert_array_equal(generation.is_redrawn, expected)
  np.testing.assert_array_equal(generation.parent, np.arange(4))
  before, now = population.members, after.members
  for part in ('hyperparameters', 'internal_rewards'):
    is_same = _is_same(getattr(before, part), getattr(now, part))
    np.testing.assert_array_equal(is_same, ~np.array(expected))
  for part in ('params', 'opt_state', 'key', 'steps'):
    assert _is_same(getattr(before, part), getattr(now, part)).all()
  np.testing.assert_array_equal(after.games_since_exploitation, [99, 0, 200, 0])
  np.testing.assert_array_equal(after.decided_games, [0, 0, 20, 0])
  weights = np.asarray(now.internal_rewards)
  assert (np.abs(weights) <= 1.0).all()
  assert len(np.unique(weights)) == weights.size


@pytest.mark.parametrize(
  'options', [{}, {'min_decided_fraction': 0.1, 'exploits': False}]
)
def test_nobody_does_unless_asked(evolve, options):
  population, config = _make_population([200] * 4, [0] * 4, **options)
  after, generation = evolve(
    jax.random.PRNGKey(0), population, population_fakes.PRIORS, config
  )
  assert not np.any(generation.is_redrawn)
  assert _is_same(population.members, after.members).all()
