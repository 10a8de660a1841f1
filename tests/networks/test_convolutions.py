"""Convolutions equal Haiku's, gradients as well."""

import re

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.networks import convolutions

KEY = jax.random.PRNGKey(0)
# Kernel, stride, padding, height, width.
SHAPES = [
  (3, 1, 'SAME', 9, 7),
  (8, 4, 'SAME', 84, 84),
  (8, 4, 'VALID', 84, 84),
  (4, 2, 'SAME', 21, 21),
  (4, 2, 'VALID', 20, 23),
  (3, 2, 'SAME', 42, 11),
  (3, 2, 'VALID', 12, 12),
  (2, 3, 'VALID', 11, 12),
  (5, 3, 'SAME', 10, 17),
]


def _make(convolution):
  return hk.without_apply_rng(hk.transform(lambda x: convolution()(x)))


@pytest.mark.parametrize('shape', SHAPES)
def test_values_and_gradients_equal_those_of_haiku(shape):
  kernel, stride, padding, height, width = shape
  ours = _make(
    lambda: convolutions.Conv2D(4, kernel, stride, padding, name='conv')
  )
  want = _make(
    lambda: hk.Conv2D(4, kernel, stride, padding=padding, name='conv')
  )
  x = jax.random.normal(KEY, (2, height, width, 3))
  params = ours.init(KEY, x)
  assert jax.tree.structure(params) == jax.tree.structure(want.init(KEY, x))

  def loss(function, params, x):
    y = function.apply(params, x)
    return jnp.sum(y * jnp.cos(jnp.arange(y.size).reshape(y.shape))), y

  results = [
    jax.jit(
      jax.value_and_grad(
        lambda params, x, function=function: loss(function, params, x),
        argnums=(0, 1),
        has_aux=True,
      )
    )(params, x)
    for function in (ours, want)
  ]
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4),
    *results,
  )


def test_members_with_weights_of_their_own_by_vmap():
  x = jax.random.normal(KEY, (3, 2, 12, 12, 2))
  w = jax.random.normal(KEY, (3, 4, 4, 2, 5))

  def gradient(x, w):
    return jax.grad(
      lambda w: jnp.sum(jnp.sin(convolutions.conv(x, w, 2, 'SAME')))
    )(w)

  got = jax.vmap(gradient)(x, w)
  want = jnp.stack([gradient(*pair) for pair in zip(x, w, strict=True)])
  np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('shape', SHAPES)
def test_products_of_patches_equal_convolutions(shape):
  kernel, stride, padding, height, width = shape
  x = jax.random.normal(KEY, (2, height, width, 3))
  w = jax.random.normal(KEY, (kernel, kernel, 3, 4))

  def evaluate(function):
    y, vjp = jax.vjp(lambda *pair: function(*pair, stride, padding), x, w)
    return y, vjp(jnp.cos(y))

  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3),
    jax.jit(lambda: evaluate(convolutions._multiply_patches))(),
    jax.jit(lambda: evaluate(convolutions._conv))(),
  )


@pytest.mark.parametrize(
  ('platform', 'stride', 'num_channels', 'num_convolutions'),
  [
    ('cuda', 4, 3, 0),
    ('rocm', 4, 4, 0),
    ('cuda', 1, 3, 2),
    ('cuda', 2, 16, 2),
    ('tpu', 4, 3, 2),
  ],
)
def test_gpus_multiply_patches_of_strided_frames(
  platform, stride, num_channels, num_convolutions
):
  x = jnp.ones((2, 24, 24, num_channels))
  w = jnp.ones((8, 8, num_channels, 5))

  def loss(w):
    return jnp.sum(jnp.sin(convolutions.conv(x, w, stride, 'SAME')))

  traced = jax.jit(jax.grad(loss)).trace(w)
  text = traced.lower(lowering_platforms=(platform,)).as_text()
  assert text.count('stablehlo.convolution') == num_convolutions


def test_gradients_in_loops_have_the_order_of_dimensions_that_is_fast():
  x = jax.random.normal(KEY, (2, 12, 12, 2))
  w = jax.random.normal(KEY, (4, 4, 2, 5))

  def gradient(pair, _):
    return jax.grad(lambda pair: jnp.sum(convolutions.conv(*pair, 2, 'SAME')))(
      pair
    ), ()

  step = jax.jit(lambda pair: jax.lax.scan(gradient, pair, length=2)[0])
  text = step.lower((x, w)).compile().as_text()
  orders = set(re.findall(r'dim_labels=(\S+?),', text))
  assert orders == {'b01f_01io->b01f'}
