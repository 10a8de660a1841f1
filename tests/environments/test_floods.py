"""Floods of maps, against a search cell by cell."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import scans
from ftwax.environments.capture_the_flag import maps


def _search(is_open, start):
  """Returns the number of steps from a cell to each that can be reached."""
  steps, queue = {start: 0}, collections.deque([start])
  while queue:
    row, column = queue.popleft()
    for down, right in maps.STEPS.tolist():
      cell = row + down, column + right
      if is_open[cell] and cell not in steps:
        steps[cell] = steps[row, column] + 1
        queue.append(cell)
  return steps


@pytest.mark.parametrize(
  ('width', 'on_gpu'),  # Of one, two and three words.
  [
    (7, False),
    (7, True),
    (34, False),
    (34, True),
    (66, False),
    # What is unrolled is the step of the loop, 75 times.
    pytest.param(66, True, marks=pytest.mark.slow),
  ],
)
def test_floods_are_searches(width, on_gpu, monkeypatch):
  monkeypatch.setattr(scans, 'counts_launches', lambda: on_gpu)
  is_open = np.random.default_rng(width).random((20, 9, width)) < 0.7
  is_open[:, [0, -1]] = is_open[:, :, [0, -1]] = False
  start = width + 1  # Often not open itself.
  cells = jnp.arange(9 * width)
  reached, steps = jax.jit(
    jax.vmap(lambda is_open: maps.flood(is_open, jnp.int32(start), cells))
  )(jnp.asarray(is_open))
  sizes = []
  for grid, found, distances in zip(is_open, reached, steps, strict=True):
    expected = np.full(grid.shape, grid.size)
    for cell, distance in _search(grid, (1, 1)).items():
      expected[cell] = distance
    np.testing.assert_array_equal(distances.reshape(grid.shape), expected)
    np.testing.assert_array_equal(found, expected < grid.size)
    sizes.append(expected[expected < grid.size].max())
  # Some paths cross from word to word and take more steps than are unrolled.
  assert max(sizes) > (width if width > 32 else 7)
