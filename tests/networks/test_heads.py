import chex
import fakes
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import distributions
from ftwax.networks import heads, layers


def _transform(make_head):
  return hk.without_apply_rng(hk.transform(lambda x: make_head()(x)))


@pytest.mark.parametrize(
  'num_actions', [4, (5, 3), {'move': 3, 'turn': (2, 2)}]
)
@pytest.mark.parametrize('hidden_sizes', [(), (7,)])
def test_logits_have_the_structure_of_the_action(
  key, num_actions, hidden_sizes
):
  head = _transform(lambda: heads.PolicyHead(num_actions, hidden_sizes))
  features = jnp.ones((3, 2, 6))
  logits = head.apply(head.init(key, features), features)
  assert jax.tree.structure(logits) == jax.tree.structure(num_actions)
  for num, leaf in zip(
    jax.tree.leaves(num_actions), jax.tree.leaves(logits), strict=True
  ):
    assert leaf.shape == (3, 2, num)
  assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(logits))


@pytest.mark.parametrize('hidden_sizes', [(), (256,)])
def test_first_policy_is_near_uniform(key, hidden_sizes):
  num_actions = (5, 3)
  head = _transform(lambda: heads.PolicyHead(num_actions, hidden_sizes))
  features = jax.random.normal(key, (8, 256))
  logits = head.apply(head.init(key, features), features)
  entropy = distributions.entropy(logits)
  np.testing.assert_allclose(entropy, np.log(15), atol=1e-3)
  # Near, but not the same for all features.
  assert np.ptp(logits[0], axis=0).min() > 0


def test_each_part_has_its_own_branch(key):
  head = _transform(lambda: heads.PolicyHead({'b': 2, 'a': 3}, (4,)))
  features = jnp.ones((1, 6))
  params = head.init(key, features)
  assert len(jax.tree.leaves(params)) == 2 * 2 * 2
  gradient = jax.grad(lambda params: head.apply(params, features)['a'][0, 1])(
    params
  )
  moved = {name for name, layer in gradient.items() if np.any(layer['w'] != 0)}
  assert len(moved) == 2
  assert {params[name]['b'].size for name in moved} == {4, 3}


@pytest.mark.parametrize('hidden_sizes', [(), (5,), (5, 4, 3)])
def test_policy_head_agrees_with_oracle(key, hidden_sizes):
  head = _transform(lambda: heads.PolicyHead((3, 2), hidden_sizes))
  features = np.random.RandomState(0).randn(2, 6).astype(np.float32)
  params = jax.tree.map(np.asarray, head.init(key, features))
  layers = list(params.values())
  for index, logits in enumerate(head.apply(params, features)):
    x = features
    *hidden, last = layers[index * len(layers) // 2 :][: len(layers) // 2]
    for layer in hidden:
      x = np.maximum(x @ layer['w'] + layer['b'], 0.0)
    np.testing.assert_allclose(logits, x @ last['w'] + last['b'], atol=1e-6)
  assert list(params)[:2] == ['policy_head/linear', 'policy_head/linear_1']


@pytest.mark.parametrize('hidden_sizes', [(), (5, 4)])
@pytest.mark.parametrize('prefix', [(3,), (2, 3)])
def test_value_head_agrees_with_oracle(key, hidden_sizes, prefix):
  head = _transform(lambda: heads.ValueHead(hidden_sizes))
  features = np.random.RandomState(0).randn(*prefix, 6).astype(np.float32)
  params = jax.tree.map(np.asarray, head.init(key, features))
  *hidden, last = params.values()
  assert len(hidden) == len(hidden_sizes)
  x = features
  for layer in hidden:
    x = np.maximum(x @ layer['w'] + layer['b'], 0.0)
  value = head.apply(params, features)
  assert value.shape == prefix
  np.testing.assert_allclose(
    value, (x @ last['w'] + last['b'])[..., 0], atol=1e-6
  )


def test_parts_of_all_kinds_begin_near_what_is_uniform(key):
  spec = fakes.make_continuous_spec().actions
  head = _transform(lambda: heads.PolicyHead(spec, (4,)))
  features = jax.random.normal(key, (8, 16))
  params = head.init(key, features)
  logits = head.apply(params, features)
  chex.assert_trees_all_equal_shapes_and_dtypes(
    logits, distributions.zero_logits(spec, (8,))
  )
  np.testing.assert_allclose(logits['arm']['torque'].loc, 0.0, atol=0.1)
  scale = np.exp(logits['arm']['torque'].log_scale)
  np.testing.assert_allclose(scale, np.std(np.linspace(-1, 1, 9999)), rtol=1e-3)
  # Each vector has deviations of its own.
  scales = [x for x in params.values() if 'log_scale' in x]
  assert sorted(x['log_scale'].shape for x in scales) == [(1,), (2,)]


def test_initial_deviation_is_an_option(key):
  spec = fakes.make_continuous_spec().actions
  head = _transform(lambda: heads.PolicyHead(spec, initial_log_scale=0.0))
  features = jax.random.normal(key, (8, 16))
  logits = head.apply(head.init(key, features), features)
  np.testing.assert_array_equal(logits['arm']['torque'].log_scale, 0.0)


def test_deviation_may_depend_on_the_state(key):
  spec = fakes.make_continuous_spec().actions
  head = _transform(
    lambda: heads.PolicyHead(
      spec, (4,), initial_log_scale=-1.0, state_dependent_scale=True
    )
  )
  features = jax.random.normal(key, (8, 16))
  params = head.init(key, features)
  logits = head.apply(params, features)
  chex.assert_trees_all_equal_shapes_and_dtypes(
    logits, distributions.zero_logits(spec, (8,))
  )
  log_scale = logits['arm']['torque'].log_scale
  np.testing.assert_allclose(log_scale, -1.0, atol=0.1)
  assert np.ptp(log_scale, axis=0).min() > 0
  assert not any('log_scale' in layer for layer in params.values())


def test_hidden_layers_may_have_another_nonlinearity(key):
  style = layers.Style('tanh', 'orthogonal')
  head = _transform(lambda: heads.ValueHead((5, 4), style=style))
  features = np.random.RandomState(0).randn(3, 6).astype(np.float32)
  params = jax.tree.map(np.asarray, head.init(key, features))
  *hidden, last = params.values()
  x = features
  for layer in hidden:
    x = np.tanh(x @ layer['w'] + layer['b'])
  np.testing.assert_allclose(
    head.apply(params, features), (x @ last['w'] + last['b'])[..., 0], atol=1e-6
  )


@pytest.mark.parametrize(
  ('make_head', 'gain'), [(lambda s: heads.PolicyHead(3, style=s), 0.01),
                          (lambda s: heads.ValueHead(style=s), 1.0)],
)  # fmt: skip
def test_last_layers_have_the_gains_of_ppo(key, make_head, gain):
  style = layers.Style(initializer='orthogonal')
  head = _transform(lambda: make_head(style))
  (layer,) = head.init(key, jnp.ones((1, 8))).values()
  w = np.asarray(layer['w'])
  np.testing.assert_allclose(
    w.T @ w, gain**2 * np.eye(w.shape[1]), atol=1e-5 * gain**2
  )


def test_noisy_layers_have_no_other_initializer():
  with pytest.raises(
    ValueError, match=r"initializer \('orthogonal'\) of Heads"
  ):
    heads.Heads(noise='factorised', initializer='orthogonal')
