import functools

import jax
import jax.numpy as jnp
import numpy as np
import population_fakes
import pytest
import scipy.stats

from ftwax.population import evolution
from ftwax.population import ratings as ratings_lib
from ftwax.population import selection as selection_lib
from ftwax.population import state as state_lib


def _select_often(rule, population, config, num_keys=2000):
  """Returns parents and evidence [num_keys, N] for many keys."""
  deviation = ratings_lib.online_deviation(config.k_factor)
  select = functools.partial(
    rule, population=population, rating_deviation=deviation
  )
  keys = jax.random.split(jax.random.PRNGKey(0), num_keys)
  selected = jax.jit(jax.vmap(select))(keys)
  return np.asarray(selected.parent), np.asarray(selected.evidence)


def _with_ratings(ratings, games):
  population, config = population_fakes.make_population(len(ratings))
  population = population._replace(
    ratings=jnp.float32(ratings),
    games_since_exploitation=jnp.int32(games),
  )
  return population, config


def _with_returns(returns, **options):
  returns = jnp.float32(returns)
  population, config = population_fakes.make_population(
    returns.shape[0],
    burn_in_games=returns.shape[1],
    num_returns=10,
    **options,
  )
  done = jnp.ones(returns.shape, bool)
  return state_lib.record_returns(population, returns, done), config


def test_who_would_lose_by_a_margin_copies():
  # 73.6 points make 70% between teams of two.
  population, config = _with_ratings([1000, 1073, 1074, 900], [1000] * 4)
  parents, evidence = _select_often(
    selection_lib.WinProbability(), population, config
  )
  assert set(parents[:, 0]) == {0, 2}
  assert set(parents[:, 1]) == {1}
  assert set(parents[:, 2]) == {2}
  assert set(parents[:, 3]) == {0, 1, 2}
  # Another one is drawn uniformly, and the evidence is its win probability.
  counts = [(parents[:, 3] == parent).sum() for parent in range(3)]
  assert scipy.stats.chisquare(counts).pvalue > 1e-3
  expected = 1 / (1 + 10 ** (-2 * (1074 - 900) / 400))
  np.testing.assert_allclose(evidence[parents[:, 3] == 2, 3], expected, 1e-5)


def test_nobody_copies_during_its_burn_in():
  population, config = _with_ratings([0, 0, 1000], [999, 1000, 1000])

  def select(key):
    priors = population_fakes.PRIORS
    return evolution.evolve(key, population, priors, config)[1].parent

  keys = jax.random.split(jax.random.PRNGKey(0), 50)
  parents = np.asarray(jax.jit(jax.vmap(select))(keys))
  assert set(parents[:, 0]) == {0}
  assert set(parents[:, 1]) == {1, 2}


def test_truncation_copies_the_top_to_the_bottom():
  returns = np.arange(10.0)[:, None] + np.zeros((10, 2))
  population, config = _with_returns(returns[::-1])
  parents, evidence = _select_often(
    selection_lib.Truncation(), population, config
  )
  assert (parents[:, :8] == np.arange(8)).all()
  for member in (8, 9):
    assert (
      scipy.stats.chisquare(
        [(parents[:, member] == 0).sum(), (parents[:, member] == 1).sum()]
      ).pvalue
      > 1e-3
    )
  np.testing.assert_array_equal(
    evidence[:, 9], np.where(parents[:, 9] == 0, 9.0, 8.0)
  )


@pytest.mark.parametrize('num_members', [2, 3, 5])
def test_truncation_of_a_few_has_a_top_and_a_bottom(num_members):
  returns = np.arange(float(num_members))[:, None] + np.zeros((1, 3))
  population, config = _with_returns(returns)
  parents, _ = _select_often(selection_lib.Truncation(), population, config, 20)
  expected = np.arange(num_members)
  expected[0] = num_members - 1
  assert (parents == expected).all()


def test_equals_do_not_copy_each_other():
  population, config = _with_returns(np.ones((4, 3)))
  parents, _ = _select_often(selection_lib.Truncation(), population, config, 20)
  assert (parents == np.arange(4)).all()


def test_who_has_no_returns_is_nobodys_donor():
  population, config = population_fakes.make_population(3, burn_in_games=0)
  parents, _ = _select_often(selection_lib.Truncation(), population, config, 20)
  assert (parents == np.arange(3)).all()
  done = jnp.array([[True], [False], [False]])
  population = state_lib.record_returns(population, jnp.zeros((3, 1)), done)
  parents, _ = _select_often(selection_lib.Truncation(), population, config, 20)
  assert (parents == [0, 0, 2]).all()


def test_p_values_are_scipys():
  rng = np.random.default_rng(0)
  high = rng.normal(0.5, 1.0, size=(50, 10)).astype(np.float32)
  low = rng.normal(0.0, 3.0, size=(50, 7)).astype(np.float32)
  actual = selection_lib.welch_p_value(
    jnp.asarray(high), jnp.ones(high.shape, bool),
    jnp.asarray(low), jnp.ones(low.shape, bool),
  )  # fmt: skip
  expected = scipy.stats.ttest_ind(
    high, low, axis=1, equal_var=False, alternative='greater'
  ).pvalue
  np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=1e-6)
  # Part of the samples.
  kept = jnp.broadcast_to(jnp.arange(10) < 4, high.shape)
  actual = selection_lib.welch_p_value(
    jnp.asarray(high), kept, jnp.asarray(low), jnp.ones(low.shape, bool)
  )
  expected = scipy.stats.ttest_ind(
    high[:, :4], low, axis=1, equal_var=False, alternative='greater'
  ).pvalue
  np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize(
  ('high', 'low', 'expected'),
  [
    ([1, 1, 1], [1, 1, 1], 1.0),
    ([2, 2, 2], [1, 1, 1], 0.0),
    ([1, 1, 1], [2, 2, 2], 1.0),
  ],
)
def test_p_values_without_scatter(high, low, expected):
  every = jnp.ones((3,), bool)
  p_value = selection_lib.welch_p_value(
    jnp.float32(high), every, jnp.float32(low), every
  )
  if high == low:
    # No lead: half of what chance would give is above it.
    assert 0.5 <= p_value <= expected
  else:
    np.testing.assert_allclose(p_value, expected, atol=1e-6)


def test_one_return_is_no_sample():
  p_value = selection_lib.welch_p_value(
    jnp.array([5.0, 6.0]), jnp.array([True, True]),
    jnp.array([0.0, 9.0]), jnp.array([True, False]),
  )  # fmt: skip
  assert p_value == 1.0


def test_a_confident_copy_needs_more_than_the_noise_of_ratings():
  # 73.6 points are enough for the estimate. Their noise is 26 at K = 4.
  noise = ratings_lib.online_deviation(4.0)
  limit = 400 * np.log10(0.7 / 0.3) / 2
  quantile = scipy.stats.norm.ppf(0.95)
  population, config = _with_ratings(
    [1000, 1000 + limit + quantile * noise - 0.1], [1000] * 2
  )
  rule = selection_lib.WinProbability()
  parents, _ = _select_often(rule, population, config, 5)
  assert set(parents[:, 0]) == {1}
  rule = rule.replace(confidence=0.95)
  parents, evidence = _select_often(rule, population, config, 5)
  assert set(parents[:, 0]) == {0}
  np.testing.assert_allclose(evidence[:, 0], 0.7, atol=1e-3)
  population = population._replace(
    ratings=population.ratings + jnp.float32([0.0, 0.2])
  )
  parents, _ = _select_often(rule, population, config, 5)
  assert set(parents[:, 0]) == {1}


def test_a_confident_truncation_needs_a_significant_gain():
  returns = np.float32([[0, 1, 0, 1], [0, 1, 1, 1], [9, 9, 9, 8], [9, 9, 9, 9]])
  for rows, copies in (([0, 1], False), ([0, 3], True)):
    population, config = _with_returns(returns[rows])
    rule = selection_lib.Truncation(0.5, confidence=0.95)
    parents, _ = _select_often(rule, population, config, 5)
    assert (parents == [1 if copies else 0, 1]).all()
