"""Actions of one and of several discrete parts."""

import itertools

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import distributions, types

SPEC = {
  'move': dm_env.specs.DiscreteArray(3),
  'tag': dm_env.specs.DiscreteArray(2),
}


def _logits(seed=0, batch=()):
  rng = np.random.default_rng(seed)
  return {
    name: jnp.asarray(
      2 * rng.normal(size=(*batch, spec.num_values)), jnp.float32
    )
    for name, spec in SPEC.items()
  }


def _joint(logits):
  """Probabilities of all composite actions, as an outer product."""
  parts = [np.exp(x - x.max()) for x in map(np.float64, logits.values())]
  parts = [x / x.sum() for x in parts]
  return np.multiply.outer(*parts)


def test_log_prob_entropy_and_divergence_are_those_of_the_joint():
  logits, other = _logits(0), _logits(1)
  joint, other_joint = _joint(logits), _joint(other)
  for move, tag in itertools.product(range(3), range(2)):
    action = {'move': jnp.int32(move), 'tag': jnp.int32(tag)}
    np.testing.assert_allclose(
      distributions.log_prob(logits, action),
      np.log(joint[move, tag]),
      atol=1e-5,
    )
  np.testing.assert_allclose(
    distributions.entropy(logits), -np.sum(joint * np.log(joint)), atol=1e-5
  )
  np.testing.assert_allclose(
    distributions.kl_divergence(logits, other),
    np.sum(joint * np.log(joint / other_joint)),
    atol=1e-5,
  )


def test_samples_follow_the_joint(key):
  logits = jax.tree.map(lambda x: jnp.tile(x, (20_000, 1)), _logits())
  action = distributions.sample(key, logits)
  assert action['move'].dtype == jnp.int32 and action['move'].shape == (20_000,)
  counts = np.zeros((3, 2))
  np.add.at(counts, (action['move'], action['tag']), 1)
  expected = 20_000 * _joint(_logits())
  assert np.sum((counts - expected) ** 2 / expected) < 20.5  # p = 0.001, df 5


def test_mode_is_the_most_probable():
  logits = _logits()
  action = distributions.mode(logits)
  best = np.unravel_index(np.argmax(_joint(logits)), (3, 2))
  assert (int(action['move']), int(action['tag'])) == best


def test_forbidden_actions_have_no_probability_and_leave_all_finite(key):
  logits = _logits(batch=(1000,))
  mask = {
    'move': jnp.tile(jnp.array([1, 0, 1], jnp.uint8), (1000, 1)),
    'tag': jnp.tile(jnp.array([0, 1], jnp.uint8), (1000, 1)),
  }
  masked = distributions.mask_logits(logits, mask)
  action = distributions.sample(key, masked)
  assert set(np.unique(action['move'])) == {0, 2}
  assert set(np.unique(action['tag'])) == {1}
  assert np.all(jax.nn.softmax(masked['move'])[:, 1] == 0.0)

  def total(logits):
    masked = distributions.mask_logits(logits, mask)
    return jnp.sum(
      distributions.entropy(masked) + distributions.log_prob(masked, action)
    )

  gradient = jax.grad(total)(logits)
  assert np.all(np.isfinite(total(logits)))
  assert np.all(gradient['move'][:, 1] == 0.0)
  assert np.all(np.isfinite(gradient['move'])) and np.any(gradient['move'] != 0)


def test_no_action_is_finite():
  logits = jnp.zeros((2, 3))
  action = jnp.array([types.NO_ACTION, 1], jnp.int32)
  np.testing.assert_allclose(
    distributions.log_prob(logits, action), np.log(1 / 3)
  )


def test_num_actions_keeps_the_structure():
  assert distributions.num_actions(SPEC) == {'move': 3, 'tag': 2}
  assert distributions.num_actions(dm_env.specs.DiscreteArray(5)) == 5


@pytest.mark.parametrize(
  ('spec', 'message'),
  [
    (
      {'turn': dm_env.specs.BoundedArray((2, 2), np.float32, -1, 1)},
      r"action_spec\['turn'\] \(BoundedArray.*must be a dm_env.specs.Discrete",
    ),
    (
      dm_env.specs.BoundedArray((2,), np.int32, -1, 1),
      r'action_spec \(BoundedArray.*or an array of floats with one axis',
    ),
    ((), r'action_spec \(\(\)\) must have at least one part'),
  ],
)
def test_what_is_neither_a_choice_nor_a_vector_is_refused(spec, message):
  with pytest.raises(ValueError, match=message):
    distributions.check_action_spec(spec)


def test_choices_of_a_vector_cannot_be_counted():
  spec = {'turn': dm_env.specs.Array((2,), np.float32)}
  with pytest.raises(
    ValueError, match=r"action_spec\['turn'\] .* be discrete for"
  ):
    distributions.num_actions(spec)
