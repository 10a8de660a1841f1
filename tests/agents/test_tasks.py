"""What pixel control is of: images in any range, nested entries, signals."""

import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches

from ftwax.agents import a2c
from ftwax.agents.actor_critic import tasks
from ftwax.losses import pixel_control
from ftwax.networks import cores, embeddings, torsos

SIZES = {'sequence_length': 4, 'batch_size': 2, 'core': cores.LSTM(4)}
LENGTH, CHANNELS, CELL = 11, 3, 4


def _image_spec(dtype, low, high):
  return dm_env.specs.BoundedArray((24, 24, 3), dtype, low, high, 'image')


@pytest.mark.parametrize(
  ('dtype', 'low', 'high'),
  [(np.float32, 0, 255), (np.int32, 0, 255), (np.float32, -1, 1)],
)
def test_images_in_any_range_count_as_bytes_do(dtype, low, high):
  images = np.random.default_rng(0).integers(0, 256, (5, 2, 24, 24, 3), 'uint8')
  scaled = (low + (high - low) * (images / 255.0)).astype(dtype)
  task = tasks.PixelControl()
  found, expected = (
    pixel_control.pseudo_rewards(task.frames(jnp.asarray(frames), spec)[:, 0])
    for frames, spec in (
      (scaled, _image_spec(dtype, low, high)),
      (images, _image_spec(np.uint8, 0, 255)),
    )
  )
  atol = 1 / 255 if dtype == np.int32 else 1e-6
  np.testing.assert_allclose(found, expected, atol=atol)


def test_images_without_finite_bounds_stay_as_they_are():
  image = jnp.full((24, 24, 3), 200.0)
  for spec in (
    dm_env.specs.Array((24, 24, 3), np.float32),
    _image_spec(np.float32, -np.inf, np.inf),
  ):
    assert embeddings.scale_image(image, spec) is image


def test_a_nested_image_is_found_by_its_path():
  task = tasks.PixelControl(entry='state/external')
  frames = jnp.zeros((5, 2, 24, 24, 3), jnp.uint8)
  observation = {'state': {'external': frames, 'internal': jnp.ones(3)}}
  assert task.frames(observation) is frames


def _signal_config(**options):
  return a2c.A2CConfig.paper(
    **SIZES,
    tasks=(tasks.PixelControl(is_signal=True, **options),),
    torso=torsos.Torso(entries={'': 'signal'}),
  )


def test_cells_of_a_signal_are_moments_of_one_channel():
  rng = np.random.default_rng(0)
  signal = rng.normal(size=(5, 2, LENGTH, CHANNELS)).astype(np.float32)
  frames = _signal_config().tasks[0].frames(jnp.asarray(signal))
  found = pixel_control.pseudo_rewards(frames[:, 1], CELL)
  newest = signal[:, 1, LENGTH % CELL :]
  change = np.abs(np.diff(newest, axis=0)).reshape(4, -1, CELL, CHANNELS)
  np.testing.assert_allclose(found, change.mean(axis=2), rtol=1e-5)


@pytest.mark.slow
def test_an_agent_learns_to_control_a_signal():
  spec = fakes.make_vector_spec()
  spec = spec._replace(
    observations=dm_env.specs.Array((LENGTH, CHANNELS), np.float32, 'signal')
  )
  config = _signal_config()
  network = config.make_network(spec)
  core = config.make_learner_core(network, spec)
  state = core.init(jax.random.PRNGKey(0))
  values = network.heads['pixel_control'](
    state.params, jnp.ones((5, 2, config.core.hidden_size))
  )
  num_actions = spec.actions.num_values
  assert values.shape == (5, 2, LENGTH // CELL, CHANNELS, num_actions)
  batch = random_batches.make_batch(0, spec, network, config)
  after, metrics = jax.jit(core.update)(
    state, batch._replace(reward_prediction=None)
  )
  assert np.isfinite(metrics['loss']) and metrics['pixel_control_error'] > 0
  moved = jax.tree.map(
    lambda x, y: bool(np.any(x != y)), after.params, state.params
  )
  assert all(jax.tree.leaves(moved))


@pytest.mark.parametrize(
  ('shape', 'options'),
  [((3, CHANNELS), {}), ((24, 24, 3), {}), ((8, 3), {'crop_size': (4, 4)})],
)
def test_what_is_no_signal_is_refused(shape, options):
  spec = fakes.make_vector_spec()
  spec = spec._replace(observations=dm_env.specs.Array(shape, np.float32))
  with pytest.raises(ValueError, match='signal of pixel control .* must be'):
    _signal_config(**options).make_network(spec)


@pytest.mark.parametrize(('threshold', 'expected'), [(0.0, 0.0), (0.5, 1.0)])
def test_small_rewards_are_predicted_as_they_are_sampled(threshold, expected):
  spec = fakes.make_vector_spec()
  config = a2c.A2CConfig(
    tasks=(tasks.RewardPrediction(threshold=threshold),), **SIZES
  )
  network = config.make_network(spec)
  core = config.make_learner_core(network, spec)
  state = core.init(jax.random.PRNGKey(0))
  # With zeros as parameters, all logits are equal and the first class is told.
  state = state._replace(params=jax.tree.map(jnp.zeros_like, state.params))
  batch = random_batches.make_batch(0, spec, network, config)
  small = batch.reward_prediction._replace(
    reward=jnp.full_like(batch.reward_prediction.reward, 0.25)
  )
  _, metrics = jax.jit(core.update)(
    state, batch._replace(reward_prediction=small)
  )
  assert metrics['reward_prediction_accuracy'] == expected


@pytest.mark.parametrize('threshold', [-1.0, float('nan'), float('inf')])
def test_a_threshold_of_rewards_is_a_size(threshold):
  with pytest.raises(ValueError, match=r'threshold \(.*must be at least 0'):
    tasks.RewardPrediction(threshold=threshold)
