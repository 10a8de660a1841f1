"""Few kernels on an accelerator: bounds, so that launches cannot creep back.

`python tests/launches.py` prints the table behind them.
"""

import jax
import jax.numpy as jnp
import launches
import pytest

# Most launches of an iteration of 16 to 32 games, at most 2% above what it is.
MAX_LAUNCHES = {
  'feed-forward': 5_150,
  'gru': 4_650,
  'main experiment': 2_330,
  'rpth': 8_250,
  'whole agent': 17_350,
}


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(
      name,
      marks=[] if name in ('feed-forward', 'gru') else [pytest.mark.slow],
    )
    for name in MAX_LAUNCHES
  ],
)
def test_launches_do_not_creep_back(name):
  total, found = launches.of_case(name)
  assert 0.9 * MAX_LAUNCHES[name] < total <= MAX_LAUNCHES[name]
  loops = [scan for scan in found if scan.length > 4]
  assert loops
  for scan in loops:
    # Words, and pictures where there are any.
    assert scan.stacked <= (2 if name == 'whole agent' else 1), scan


def test_what_is_counted():
  weights = jnp.ones((3, 3))

  def step(carry, x):
    h, n = carry
    h = jnp.tanh(h @ weights) + x
    return (h, n + 1), (h, jnp.sum(h))

  def function(h, xs):
    h = jax.lax.cond(h[0] > 0, lambda: jnp.sort(h), lambda: h)
    return jax.lax.scan(step, (h, 0), xs)

  jaxpr = jax.make_jaxpr(jax.jit(function))(jnp.ones(3), jnp.ones((7, 3)))
  total, (scan,) = launches.count(jaxpr.jaxpr)
  # Two carried, two stacked, a product and a sum.
  assert scan[:5] == (7, 1, 2, 1, 2) and scan.launches == 6
  # The sort, and the result of the condition.
  assert total == 7 * 6 + 2
