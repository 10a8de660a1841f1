import dm_env
import fakes
import jax
import numpy as np
import pytest
from dm_env import specs

from ftwax import types

SPECS = {
  'default': fakes.make_spec(),
  'vector': fakes.make_vector_spec(6, 5),
  'image': fakes.make_image_spec((4, 5, 3), 2),
  'dict': fakes.make_dict_spec(),
  'composite': fakes.make_composite_spec(),
  'tuple': fakes.make_composite_spec(as_tuple=True),
  'mask': fakes.add_action_mask(fakes.make_vector_spec()),
  'composite mask': fakes.add_action_mask(fakes.make_composite_spec()),
  'bounds': fakes.make_spec(
    (
      specs.BoundedArray((3,), np.float64, [-1, 0, -np.inf], [1, np.inf, 0]),
      specs.BoundedArray((2, 2), np.int32, [-5, 7], [-5, 9]),
      specs.Array((), np.int8),
      specs.Array((7,), bool),
      specs.BoundedArray(
        (), np.float32, *[np.finfo('f4').max * i for i in (-1, 1)]
      ),
    )
  ),
}


def legal_action(rng, environment, timestep):
  observation = timestep.observation
  if isinstance(observation, dict) and types.ACTION_MASK in observation:
    return jax.tree.map(
      lambda mask: rng.choice(np.flatnonzero(mask)),
      observation[types.ACTION_MASK],
    )
  return fakes.sample(rng, environment.action_spec())


def play(environment, num_steps, seed=0):
  rng = np.random.default_rng(seed)
  timesteps = [environment.reset()]
  for _ in range(num_steps):
    action = legal_action(rng, environment, timesteps[-1])
    timesteps.append(environment.step(action))
  return timesteps


@pytest.mark.parametrize('spec', SPECS.values(), ids=SPECS.keys())
def test_timesteps_obey_specs(spec):
  environment = fakes.FakeEnvironment(spec, episode_length=3)
  timesteps = play(environment, 20)
  assert types.make_environment_spec(environment) == spec
  for timestep in timesteps:
    jax.tree.map(
      lambda leaf, value: leaf.validate(value),
      spec.observations,
      timestep.observation,
    )
    if timestep.first():
      assert timestep.reward is None and timestep.discount is None
    else:
      spec.rewards.validate(timestep.reward)
      spec.discounts.validate(timestep.discount)


@pytest.mark.parametrize('truncate', [False, True])
def test_episode_ends(truncate):
  environment = fakes.FakeEnvironment(fakes.make_spec(), 2, truncate=truncate)
  timesteps = play(environment, 7)
  first, mid, last = dm_env.StepType
  assert [t.step_type for t in timesteps] == [first, mid, last] * 2 + [
    first,
    mid,
  ]
  assert timesteps[1].discount == 1
  assert timesteps[2].discount == (1 if truncate else 0)


def test_first_step_resets():
  environment = fakes.FakeEnvironment(fakes.make_spec())
  assert environment.step('ignored').first()


def test_seed_decides():
  def observations(seed):
    environment = fakes.FakeEnvironment(fakes.make_dict_spec(), 3, seed=seed)
    return jax.tree.leaves([t.observation for t in play(environment, 9)])

  first, again, other = map(observations, (1, 1, 2))
  assert all(map(np.array_equal, first, again))
  assert not all(map(np.array_equal, first, other))


def test_observations_spread_over_bounds():
  spec = specs.BoundedArray((1000,), np.float32, -2, 6)
  draw = fakes.sample(np.random.default_rng(0), spec)
  np.testing.assert_allclose(draw.mean(), 2, atol=0.3)
  assert draw.min() < -1.9 and draw.max() > 5.9


def test_mask_always_allows_and_sometimes_forbids():
  environment = fakes.FakeEnvironment(SPECS['composite mask'], 50)
  masks = [
    np.concatenate(jax.tree.leaves(t.observation[types.ACTION_MASK]))
    for t in play(environment, 50)
  ]
  assert np.asarray(masks).min(axis=0).max() == 0
  for timestep in play(environment, 50):
    for mask in jax.tree.leaves(timestep.observation[types.ACTION_MASK]):
      assert mask.any()


def test_forbidden_action_is_refused():
  environment = fakes.FakeEnvironment(SPECS['mask'], 1000)
  timestep = environment.reset()
  while (mask := timestep.observation[types.ACTION_MASK]).all():
    timestep = environment.step(0)
  with pytest.raises(ValueError, match='must be allowed by the action mask'):
    environment.step(int(np.argmin(mask)))


@pytest.mark.parametrize(
  ('spec', 'action', 'message'),
  [
    ('default', 3, r'action \(3\) must be .* \[0, 3\)'),
    ('default', -1, r'action \(-1\) must be .* \[0, 3\)'),
    ('default', 1.0, r'action \(1\.0\) must be an integer'),
    ('default', np.zeros(1, np.int32), 'must be an integer scalar'),
    ('default', {'move': 0}, 'must have the structure of its spec'),
    ('composite', {'move': 0}, 'must have the structure of its spec'),
    ('composite', {'move': 0, 'fire': 2}, r"action\['fire'\] .* \[0, 2\)"),
    ('tuple', (3, 0), r'action\[0\] .* \[0, 3\)'),
  ],
)
def test_bad_actions_are_refused(spec, action, message):
  environment = fakes.FakeEnvironment(SPECS[spec])
  environment.reset()
  with pytest.raises(ValueError, match=message):
    environment.step(action)


def test_episode_length_must_be_positive():
  with pytest.raises(
    ValueError, match=r'episode_length \(0\) must be at least'
  ):
    fakes.FakeEnvironment(fakes.make_spec(), episode_length=0)
