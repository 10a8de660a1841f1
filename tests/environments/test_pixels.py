"""Boards as frames: every square where it belongs, at every size."""

import episodes
import jax
import numpy as np
import pytest

from ftwax.environments import catch, pixels, recall

_ROWS, _COLUMNS = 10, 5


def _show(size, seed=0):
  """Returns a frame and the board that it shows."""
  environment = catch.make(_ROWS, _COLUMNS)
  framed = pixels.make(environment, size)
  key = jax.random.PRNGKey(seed)
  _, board = environment.reset(key)
  _, frame = framed.reset(key)
  assert frame.observation.dtype == np.uint8
  framed.spec.observations.validate(np.asarray(frame.observation))
  return np.asarray(frame.observation), np.asarray(board.observation)


@pytest.mark.parametrize('size', [10, 23, 84])
def test_a_frame_is_the_board_in_blocks_amid_black(size):
  frame, board = _show(size)
  block = np.ones((size // _ROWS, size // _COLUMNS))
  expected = np.zeros((size, size))
  blocks = 255 * np.kron(board, block)
  top, left = ((size - side) // 2 for side in blocks.shape)
  expected[top : top + blocks.shape[0], left : left + blocks.shape[1]] = blocks
  for channel in range(3):
    np.testing.assert_array_equal(frame[..., channel], expected)


def test_all_but_the_observation_is_the_environments():
  environment = catch.make(_ROWS, _COLUMNS)
  framed = pixels.make(environment, 20)
  ours = episodes.HostLoop(framed, seed=1)
  theirs = episodes.HostLoop(environment, seed=1)
  actions = np.random.default_rng(0).integers(3, size=40)
  rewards = []
  for action in actions:
    timestep, expected = ours.step(action), theirs.step(action)
    assert timestep[:3] == expected[:3]
    assert np.any(timestep.observation)
    rewards.append(float(timestep.reward))
  assert set(rewards) >= {0.0, -1.0}
  assert framed.spec[1:] == environment.spec[1:]


def test_a_frame_smaller_than_the_board_is_refused():
  message = r'observations \(shape \(10, 5\)\) .* at most 8 squares'
  with pytest.raises(ValueError, match=message):
    pixels.make(catch.make(_ROWS, _COLUMNS), 8)


def test_what_is_no_board_is_refused():
  with pytest.raises(ValueError, match=r'observations .* must be two-dim'):
    pixels.make(recall.make())
