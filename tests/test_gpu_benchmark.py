"""What `benchmarks/gpu.py` counts in a jaxpr."""

import pathlib
import sys

import jax
import jax.numpy as jnp
import pytest

_FOLDER = pathlib.Path(__file__).parents[1] / 'benchmarks'

sys.path.insert(0, str(_FOLDER))
import gpu  # noqa: E402

sys.path.remove(str(_FOLDER))


def _product(x):
  return x @ jnp.ones((3, 4))  # Of [2, 3] with [3, 4]: 48 FLOPs.


def _branches(x):
  return jax.lax.cond(x[0, 0] > 0, _product, lambda x: jnp.ones((2, 4)), x)


def _convolution(x):
  image = jnp.ones((1, 8, 8, 3))
  kernel = jnp.ones((2, 2, 3, 5))  # 64 outputs of 5 channels, 12 inputs each.
  return jax.lax.conv_general_dilated(
    image, kernel, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
  )


@pytest.mark.parametrize(
  ('function', 'flops'),
  [
    (_product, 48),
    (jax.jit(_product), 48),
    (_branches, 48),
    (_convolution, 2 * 64 * 5 * 12),
    (jax.vmap(_product), 7 * 48),
  ],
)
def test_flops_are_those_of_products_and_convolutions(function, flops):
  x = jnp.ones((7, 2, 3) if flops == 7 * 48 else (2, 3))
  assert gpu.count_flops(jax.make_jaxpr(function)(x).jaxpr) == flops


def test_loops_count_as_often_as_they_run():
  def loop(x):
    return jax.lax.scan(
      lambda total, _: (total + _product(x), None), jnp.zeros((2, 4)), length=5
    )

  jaxpr = jax.make_jaxpr(loop)(jnp.ones((2, 3)))
  assert gpu.count_flops(jaxpr.jaxpr) == 5 * 48
