"""Priors against their definitions."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import hyperparameters


class _Tuple(NamedTuple):
  rate: Any
  period: Any
  fixed: Any
  weight: Any


PRIORS = _Tuple(
  rate=hyperparameters.LogUniform(1e-5, 1e-3),
  period=hyperparameters.UniformInteger(5, 20),
  fixed=hyperparameters.Constant(0.5),
  weight=hyperparameters.Uniform(-1.0, 1.0),
)
NUM_MEMBERS = 4000


@pytest.fixture(scope='module')
def population():
  keys = jax.random.split(jax.random.PRNGKey(1), NUM_MEMBERS)
  return jax.jit(jax.vmap(lambda key: hyperparameters.sample(key, PRIORS)))(
    keys
  )


def _assert_uniform(values, low, high):
  """Kolmogorov-Smirnov distance below the 0.1% critical value."""
  ordered = np.sort((np.asarray(values, np.float64) - low) / (high - low))
  distance = np.max(np.abs(ordered - np.arange(len(ordered)) / len(ordered)))
  assert distance < 1.95 / np.sqrt(len(ordered))


def test_samples_follow_their_priors(population):
  _assert_uniform(np.log(population.rate), np.log(1e-5), np.log(1e-3))
  _assert_uniform(population.weight, -1.0, 1.0)
  assert np.all(population.fixed == np.float32(0.5))
  values, counts = np.unique(population.period, return_counts=True)
  np.testing.assert_array_equal(values, np.arange(5, 21))
  expected = NUM_MEMBERS / 16
  assert np.sum((counts - expected) ** 2 / expected) < 37.7  # p = 0.001, df 15


def test_samples_are_typed_scalars_and_depend_on_the_key(key):
  values = hyperparameters.sample(key, PRIORS)
  assert isinstance(values, _Tuple)
  assert [leaf.shape for leaf in values] == [()] * 4
  assert values.period.dtype == jnp.int32
  assert values.rate.dtype == values.fixed.dtype == jnp.float32
  again = hyperparameters.sample(key, PRIORS)
  other = hyperparameters.sample(jax.random.PRNGKey(7), PRIORS)
  assert values == again
  assert values.rate != other.rate and values.weight != other.weight


def _explore(population, function, **options):
  keys = jax.random.split(jax.random.PRNGKey(2), NUM_MEMBERS)
  return jax.vmap(lambda key, x: function(key, x, PRIORS, **options))(
    keys, population
  )


def test_perturb_scales_each_value_alone_with_its_probability(population):
  perturbed = _explore(population, hyperparameters.perturb, probability=0.25)
  changed = {}
  for name, low, high in [('rate', 1e-5, 1e-3), ('weight', -1.0, 1.0)]:
    before = np.asarray(getattr(population, name))
    after = np.asarray(getattr(perturbed, name))
    ratio = after / before
    changed[name] = ratio != 1.0
    inside = (after > low) & (after < high) & changed[name]
    assert np.all(
      np.isclose(ratio[inside], 0.8, rtol=1e-5)
      | np.isclose(ratio[inside], 1.2, rtol=1e-5)
    )
    assert 0.4 < np.mean(ratio[inside] < 1.0) < 0.66
    assert abs(np.mean(changed[name]) - 0.25) < 0.03
  both = np.mean(changed['rate'] & changed['weight'])
  assert abs(both - 0.25**2) < 0.02
  np.testing.assert_array_equal(perturbed.fixed, population.fixed)


def test_perturbing_an_integer_draws_it_anew(population):
  perturbed = _explore(population, hyperparameters.perturb, probability=1.0)
  moved = np.mean(np.asarray(perturbed.period) != np.asarray(population.period))
  assert abs(moved - 15 / 16) < 0.02
  assert set(np.unique(perturbed.period)) == set(range(5, 21))


def test_resample_draws_from_the_prior_with_its_probability(population):
  never = _explore(population, hyperparameters.resample, probability=0.0)
  jax.tree.map(np.testing.assert_array_equal, never, population)
  edge = population._replace(rate=jnp.full((NUM_MEMBERS,), 1e-5))
  always = _explore(edge, hyperparameters.resample, probability=1.0)
  _assert_uniform(np.log(always.rate), np.log(1e-5), np.log(1e-3))


def test_bounds_hold_over_many_generations(population):
  keys = jax.random.split(jax.random.PRNGKey(3), 300)
  members = jax.tree.map(lambda leaf: leaf[:64], population)

  def generation(members, key):
    perturbed = jax.vmap(
      lambda key, x: hyperparameters.perturb(key, x, PRIORS, 1.0)
    )(jax.random.split(key, 64), members)
    return perturbed, perturbed

  _, history = jax.lax.scan(generation, members, keys)
  assert np.all((history.rate >= 1e-5) & (history.rate <= np.float32(1e-3)))
  assert np.all((history.period >= 5) & (history.period <= 20))
  assert np.all(np.abs(history.weight) <= 1.0)
  assert np.any(history.rate == np.float32(1e-3))  # The bound was reached.


def test_clip_moves_values_inside():
  clipped = hyperparameters.clip(
    _Tuple(*map(jnp.asarray, (1.0, 99, 7.0, -3.0))), PRIORS
  )
  np.testing.assert_allclose(clipped, (1e-3, 20, 7.0, -1.0))


def test_exploring_leaves_what_was_drawn_but_not_the_bounds():
  priors = _Tuple(
    rate=hyperparameters.LogUniform(1e-4, 1e-3, bounds=(1e-6, 1e-2)),
    period=hyperparameters.Initial(1e-4, bounds=(1e-5, 1.0)),
    fixed=hyperparameters.Initial(-0.5, bounds=(-2.0, 0.0)),
    weight=hyperparameters.Uniform(-1.0, 1.0, bounds=(-4.0, 4.0)),
  )
  draw = jax.jit(jax.vmap(lambda key: hyperparameters.sample(key, priors)))
  drawn = draw(jax.random.split(jax.random.PRNGKey(1), 500))
  plain = hyperparameters.Uniform(-1.0, 1.0)
  assert np.all(np.abs(drawn.weight) <= plain.high)
  assert np.all((drawn.rate >= 1e-4) & (drawn.rate <= np.float32(1e-3)))
  assert np.all(drawn.period == np.float32(1e-4))
  assert np.all(drawn.fixed == -0.5)

  def generation(members, key):
    members = jax.vmap(
      lambda key, x: hyperparameters.perturb(key, x, priors, 1.0)
    )(jax.random.split(key, 500), members)
    return members, members

  keys = jax.random.split(jax.random.PRNGKey(2), 200)
  _, history = jax.lax.scan(generation, drawn, keys)
  for name, (low, high) in (
    ('rate', (1e-6, 1e-2)),
    ('period', (1e-5, 1.0)),
    ('fixed', (-2.0, 0.0)),
    ('weight', (-4.0, 4.0)),
  ):
    values = getattr(history, name)
    assert np.float32(low) <= np.min(values)
    assert np.max(values) <= np.float32(high)
  assert np.max(history.rate) > 2e-3 and np.min(history.rate) < 5e-5
  assert np.max(history.period) > 2e-4 and np.min(history.period) < 5e-5
  assert np.min(history.fixed) == -2.0 and np.max(history.weight) > 2.0


def test_bounds_change_no_draw(key):
  plain = hyperparameters.Uniform(-1.0, 1.0)
  wide = hyperparameters.Uniform(-1.0, 1.0, bounds=(-9.0, 9.0))
  assert plain.sample(key) == wide.sample(key)
  assert plain.limits == (-1.0, 1.0) and wide.limits == (-9.0, 9.0)


def test_a_number_is_a_prior_of_this_value_alone(key):
  fixed = _Tuple(
    *(
      hyperparameters.as_prior(value, is_integer)
      for value, is_integer in ((0, False), (7, True), (1, False), (2, False))
    )
  )
  values = hyperparameters.sample(key, fixed)
  assert [leaf.dtype for leaf in values] == [
    jnp.float32, jnp.int32, jnp.float32, jnp.float32
  ]  # fmt: skip
  np.testing.assert_array_equal(values, (0, 7, 1, 2))
  with pytest.raises(
    ValueError, match=r'UniformInteger low \(0.5\) must be an'
  ):
    hyperparameters.as_prior(0.5, is_integer=True)


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (
      lambda: hyperparameters.LogUniform(0.0, 1.0),
      r'LogUniform low \(0.0\) must be above zero.*use Uniform',
    ),
    (
      lambda: hyperparameters.UniformInteger(20, 5),
      r'UniformInteger low \(20\) must not be above high \(5\); swap',
    ),
    (
      lambda: hyperparameters.UniformInteger(1.5, 3),
      r'UniformInteger low \(1.5\) must be an integer',
    ),
    (
      lambda: hyperparameters.Uniform(0.0, float('inf')),
      r'Uniform bounds \(0.0, inf\) must be finite',
    ),
    (
      lambda: hyperparameters.Uniform(0.0, 2.0, bounds=(0.0, 1.0)),
      r'Uniform bounds \(0.0, 1.0\) must contain the range of .* \[0.0, 2.0',
    ),
    (
      lambda: hyperparameters.Initial(5.0, bounds=(0.0, 1.0)),
      r'Initial bounds \(0.0, 1.0\) must contain the range of .* \[5.0, 5.0',
    ),
    (
      lambda: hyperparameters.Initial(float('nan'), bounds=(0.0, 1.0)),
      r'Initial bounds \(nan, nan\) must be finite',
    ),
    (
      lambda: hyperparameters.Constant(1e39),
      r'Constant value \(1e\+39\) must be infinite or in the range',
    ),
    (
      lambda: hyperparameters.Constant(float('nan')),
      r'Constant value \(nan\) must be infinite or in the range',
    ),
  ],
)
def test_bad_priors_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()
