"""Tests GIFs of games: frames, palettes and bad input."""

import io
import pathlib

import numpy as np
import pytest
from PIL import Image

from ftwax.reporting import videos


def read_gif(path: pathlib.Path) -> np.ndarray:
  """Returns all frames, uint8 [T, H, W, 3]."""
  with Image.open(io.BytesIO(path.read_bytes())) as image:
    frames = []
    for index in range(image.n_frames):
      image.seek(index)
      frames.append(np.asarray(image.convert('RGB')))
  return np.stack(frames)


def test_gifs_hold_all_frames(tmp_path):
  frames = np.zeros((5, 4, 6, 3), np.uint8)
  for t in range(5):
    frames[t, :, t] = (255, 0, 0)
  path = videos.write_gif(tmp_path / 'deep' / 'game.gif', frames, 10.0, 3)
  assert [p.name for p in path.parent.iterdir()] == ['game.gif']
  with Image.open(io.BytesIO(path.read_bytes())) as image:
    assert (image.n_frames, image.size) == (5, (18, 12))
    assert image.info['loop'] == 0
    for t in range(5):
      image.seek(t)
      assert image.info['duration'] == 100
      shown = np.asarray(image.convert('RGB'))[::3, ::3]
      np.testing.assert_array_equal(shown, frames[t])


@pytest.mark.parametrize(
  ('frames', 'options', 'message'),
  [
    (np.zeros((2, 4, 4, 3)), {}, r'frames \(float64 of shape .* must be uint8'),
    (np.zeros((4, 4, 3), np.uint8), {}, r'frames \(uint8 of shape \(4, 4, 3\)'),
    (np.zeros((0, 4, 4, 3), np.uint8), {}, r'must have at least one frame'),
    (
      np.zeros((1, 4, 4, 3), np.uint8),
      {'frames_per_second': 0.0},
      r'frames_per_second \(0.0\) must be above 0',
    ),
    (np.zeros((1, 4, 4, 3), np.uint8), {'scale': 0}, r'scale \(0\) must be'),
  ],
)
def test_what_is_no_video(tmp_path, frames, options, message):
  with pytest.raises(ValueError, match=message):
    videos.write_gif(tmp_path / 'game.gif', frames, **options)
  assert not list(tmp_path.iterdir())


def test_the_colors_of_drawn_games_are_exact(tmp_path):
  frames = np.zeros((3, 20, 30, 3), np.uint8)
  for t in range(3):
    frames[t, ..., 0] = 7 * np.arange(30)
    frames[t, :, :3, 1] = 80 * t
  path = videos.write_gif(tmp_path / 'game.gif', frames)
  np.testing.assert_array_equal(read_gif(path), frames)


def test_areas_stay_exact_where_smoothed_edges_have_many_shades(tmp_path):
  frames = np.full((2, 40, 40, 3), (200, 30, 90), np.uint8)
  shades = np.arange(600).reshape(2, 10, 30)
  frames[:, :10, :30, 0] = shades % 200
  frames[:, :10, :30, 1] = shades // 3
  path = videos.write_gif(tmp_path / 'game.gif', frames)
  shown = read_gif(path)
  np.testing.assert_array_equal(shown[:, 10:], frames[:, 10:])
  error = shown[:, :10].astype(int) - frames[:, :10]
  assert 0 < np.abs(error).max() <= 32


def test_photographs_keep_their_colors_roughly(tmp_path):
  frames = np.zeros((2, 80, 80, 3), np.uint8)
  frames[0] = np.random.RandomState(0).randint(0, 255, (80, 80, 3))
  frames[1] = 255 - frames[0]
  shown = read_gif(videos.write_gif(tmp_path / 'game.gif', frames))
  error = shown.astype(float) - frames
  assert np.sqrt(np.mean(error**2)) < 40
