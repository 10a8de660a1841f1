"""What pixel control is of: images in any range, nested entries."""

import dm_env
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.agents.actor_critic import tasks
from ftwax.losses import pixel_control
from ftwax.networks import embeddings


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
