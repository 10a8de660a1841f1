"""Pixel control against loops over cells and steps."""

import itertools

import jax
import jax.numpy as jnp
import loss_streams
import numpy as np
import pytest

from ftwax import types
from ftwax.losses import pixel_control

T, ROWS, COLUMNS = 6, 2, 3


def _frames(seed, shape=(9, 13, 2), dtype=np.uint8):
  frames = np.random.default_rng(seed).integers(0, 256, (T + 1, *shape))
  return frames.astype(np.uint8) if dtype == np.uint8 else frames / dtype(255)


def _values(seed, num_actions):
  rng = np.random.default_rng(seed)
  shape = (T + 1, ROWS, COLUMNS, num_actions)
  return jnp.asarray(rng.normal(size=shape), jnp.float32)


def _rewards_by_definition(frames):
  """Cells of 4x4 pixels in the middle of frames of 9x13."""
  pixels = frames.astype(np.float64) / (255 if frames.dtype == np.uint8 else 1)
  rewards = np.zeros((T, ROWS, COLUMNS))
  for t, row, column in np.ndindex(*rewards.shape):
    at = slice(4 * row, 4 * row + 4), slice(4 * column, 4 * column + 4)
    cells = [frame[: 9 - 1, : 13 - 1][at] for frame in pixels[t : t + 2]]
    rewards[t, row, column] = np.mean(np.abs(cells[1] - cells[0]))
  return rewards


def _loss_by_definition(values, frames, trajectory, discount):
  rewards = _rewards_by_definition(frames)
  values = np.asarray(values, np.float64)
  timestep = trajectory.timestep
  mask = np.asarray(timestep.step_type)[:-1] != loss_streams.LAST
  best = values[1:].max(-1)
  loss = np.zeros(T)
  for row, column in np.ndindex(ROWS, COLUMNS):
    targets = loss_streams.returns_by_definition(
      rewards[:, row, column],
      discount * np.asarray(timestep.discount)[1:],
      best[:, row, column],
      mask,
      T,
    )
    for t in np.flatnonzero(mask):
      taken = values[t, row, column, int(trajectory.previous_action[t + 1])]
      loss[t] += 0.5 * (targets[t] - taken) ** 2
  return loss


@pytest.mark.parametrize('shape', [(9, 13), (9, 13, 1), (9, 13, 5)])
@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
def test_pseudo_rewards_equal_their_definition(shape, dtype):
  frames = _frames(0, shape, dtype)
  found = pixel_control.pseudo_rewards(frames)
  assert found.shape == (T, *pixel_control.grid_shape(shape))
  np.testing.assert_allclose(found, _rewards_by_definition(frames), atol=1e-6)


def test_crop_is_in_the_middle():
  """Rows and columns 2 to 82 of 84, as UNREAL and FTW have it."""
  frames = np.zeros((2, 84, 84, 3), np.uint8)
  frames[1, 2:6, 78:82] = 255
  frames[1, :2], frames[1, 82:] = 255, 255
  found = pixel_control.pseudo_rewards(frames, 4, (80, 80))
  expected = np.zeros((1, 20, 20))
  expected[0, 0, 19] = 1.0
  np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
def test_loss_equals_its_definition(dtype):
  loss = jax.jit(pixel_control.pixel_control_loss)
  num_ends = 0
  for seed in range(8):
    frames, values = _frames(seed, dtype=dtype), _values(seed, 3)
    trajectory = loss_streams.random_trajectory(seed, T)
    expected = _loss_by_definition(values, frames, trajectory, 0.9)
    np.testing.assert_allclose(
      loss(values, frames, trajectory), expected, rtol=1e-5, atol=1e-5
    )
    num_ends += np.sum(expected == 0.0)
  assert num_ends > 3


def test_each_part_of_an_action_has_values_of_its_own():
  frames, trajectory = _frames(0), loss_streams.random_trajectory(0, T, 2)
  values = {'move': _values(0, 2), 'fire': _values(1, 4)}
  parts = dict.fromkeys(values, trajectory.previous_action)
  found = pixel_control.pixel_control_loss(
    values, frames, trajectory._replace(previous_action=parts), 0.8
  )
  expected = sum(
    _loss_by_definition(x, frames, trajectory, 0.8) for x in values.values()
  )
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_gradient_is_the_error_of_the_action_taken():
  """Targets have none, though they are made of values."""
  frames, values = _frames(2), _values(2, 3)
  trajectory = loss_streams.random_trajectory(2, T)

  def loss(values):
    return jnp.sum(pixel_control.pixel_control_loss(values, frames, trajectory))

  gradient = np.asarray(jax.grad(loss)(values))
  step_type = np.asarray(trajectory.timestep.step_type)
  actions = np.asarray(trajectory.previous_action)[1:]
  expected = np.zeros(values.shape)
  for cell in np.ndindex(ROWS, COLUMNS):
    at = (slice(None), *cell)
    targets = loss_streams.returns_by_definition(
      _rewards_by_definition(frames)[at],
      0.9 * np.asarray(trajectory.timestep.discount)[1:],
      np.asarray(values)[1:].max(-1)[at],
      step_type[:-1] != loss_streams.LAST,
      T,
    )
    for t in np.flatnonzero(step_type[:-1] != loss_streams.LAST):
      taken = (t, *cell, actions[t])
      expected[taken] = values[taken] - targets[t]
  np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_change_between_episodes_is_not_counted():
  trajectory = loss_streams.random_trajectory(0, T, end=0.0)
  step_type = trajectory.timestep.step_type.at[2].set(loss_streams.LAST)
  step_type = step_type.at[3].set(loss_streams.FIRST)
  trajectory = trajectory._replace(
    timestep=trajectory.timestep._replace(step_type=step_type)
  )
  frames, values = _frames(0), _values(0, 3)
  moved = frames.copy()
  moved[3:] = 255 - moved[3:]  # Changes only what lies between 2 and 3.
  np.testing.assert_allclose(
    *(
      pixel_control.pixel_control_loss(values, x, trajectory)
      for x in (frames, moved)
    ),
    rtol=1e-5,
  )


def test_the_maximum_is_of_allowed_actions():
  """As if forbidden ones had the lowest value; of all where none is allowed."""
  frames, values = _frames(0), {'a': _values(0, 3), 'b': _values(1, 2)}
  trajectory = loss_streams.random_trajectory(0, T, end=0.0)
  actions = trajectory.previous_action
  trajectory = trajectory._replace(
    previous_action={'a': jnp.where(actions == 1, 0, actions), 'b': 0 * actions}
  )

  def loss(values, observation):
    timestep = trajectory.timestep._replace(observation=observation)
    return pixel_control.pixel_control_loss(
      values, frames, trajectory._replace(timestep=timestep)
    )

  allowed = jnp.tile(jnp.array([1, 0, 1], jnp.int8), (T + 1, 1))
  masks = {'a': allowed, 'b': jnp.ones((T + 1, 2), jnp.int8)}
  found = loss(values, {types.ACTION_MASK: masks})
  lowest = {**values, 'a': values['a'].at[..., 1].set(-100.0)}
  np.testing.assert_allclose(found, loss(lowest, {}), rtol=1e-5)
  unmasked = loss(values, {})
  assert np.any(np.abs(found - unmasked) > 1e-3)
  none = {**masks, 'a': allowed.at[-1].set(0)}
  np.testing.assert_allclose(loss(values, {types.ACTION_MASK: none}), unmasked)


CELLS = 7  # Of a signal of 30 steps: 1 to 29.


def _signals(seed, channels=3):
  rng = np.random.default_rng(seed)
  return rng.normal(0.0, 10.0, (T + 1, 30, channels)).astype(np.float32)


def _signal_rewards_by_definition(signals):
  rewards = np.zeros((T, CELLS))
  for t, cell in np.ndindex(T, CELLS):
    total = 0.0
    for at in range(1 + 4 * cell, 1 + 4 * cell + 4):
      for channel in range(signals.shape[2]):
        now, then = signals[t + 1, at, channel], signals[t, at, channel]
        total += abs(float(now) - float(then))
    rewards[t, cell] = total / (4 * signals.shape[2])
  return rewards


@pytest.mark.parametrize('channels', [1, 3, 15])
def test_cells_of_a_signal_span_time_and_all_channels(channels):
  signals = _signals(0, channels)
  found = pixel_control.pseudo_rewards(signals, is_signal=True)
  expected = _signal_rewards_by_definition(signals)
  np.testing.assert_allclose(found, expected, rtol=1e-5)
  assert pixel_control.grid_shape(signals.shape[1:], is_signal=True) == (CELLS,)
  if channels == 1:
    flat = pixel_control.pseudo_rewards(signals[..., 0], is_signal=True)
    np.testing.assert_array_equal(flat, found)
  cropped = pixel_control.pseudo_rewards(signals, 2, (8,), is_signal=True)
  change = np.abs(np.diff(signals[:, 11:19], axis=0)).reshape(T, 4, -1)
  np.testing.assert_allclose(cropped, change.mean(-1), rtol=1e-5)


def test_the_loss_of_a_signal_and_its_gradient_equal_their_definition():
  signals, discount = _signals(1), 0.9
  rng = np.random.default_rng(2)
  values = {
    'a': rng.normal(size=(T + 1, CELLS, 3)).astype(np.float32),
    'b': rng.normal(size=(T + 1, CELLS, 2)).astype(np.float32),
  }
  num_ends = 0
  for seed in range(4):
    trajectory = loss_streams.random_trajectory(seed, T)
    actions = np.asarray(trajectory.previous_action) % 2
    step_type = np.asarray(trajectory.timestep.step_type)
    mask = step_type[:-1] != loss_streams.LAST
    num_ends += np.sum(~mask)
    trajectory = trajectory._replace(
      previous_action={'a': jnp.asarray(actions), 'b': jnp.asarray(actions)}
    )
    rewards = _signal_rewards_by_definition(signals)
    losses, gradient = (
      np.zeros(T),
      {k: np.zeros(v.shape) for k, v in values.items()},
    )
    for name, cell in itertools.product(values, range(CELLS)):
      targets = loss_streams.returns_by_definition(
        rewards[:, cell],
        discount * np.asarray(trajectory.timestep.discount)[1:],
        values[name][1:, cell].max(-1),
        mask,
        T,
      )
      for t in np.flatnonzero(mask):
        taken = (t, cell, actions[t + 1])
        error = values[name][taken] - targets[t]
        losses[t] += 0.5 * error**2
        gradient[name][taken] = error

    def loss(values, trajectory=trajectory):
      found = pixel_control.pixel_control_loss(
        values, signals, trajectory, discount, is_signal=True
      )
      return jnp.sum(found), found

    found_gradient, found = jax.grad(loss, has_aux=True)(values)
    np.testing.assert_allclose(found, losses, rtol=1e-5, atol=1e-5)
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5),
      found_gradient,
      gradient,
    )
  assert num_ends


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (((30, 3), 4, (28, 3), True), r'crop_size \(28, 3\) must be \(length\)'),
    (((30, 3), 4, (32,), True), r'crop_size \(32,\) must not be larger than'),
    (((30, 3), 4, (30,), True), r'crop_size \(30,\) must be a positive mult'),
    (((3, 30, 3), 4, None, True), r'frame_shape .* must be \(length\) or'),
    (((84, 84, 3), 4, (80,)), r'crop_size \(80,\) must be \(height, width\)'),
    (((84, 84, 3), 4, (88, 80)), r'crop_size \(88, 80\) must not be larger'),
    (((84, 84, 3), 4, (78, 80)), r'crop_size \(78, 80\) must be a positive mu'),
    (((3, 84), 4, None), r'crop_size \(0, 84\) must be a positive multiple of'),
    (((84,), 4, None), r'frame_shape \(84,\) must be \(height, width\)'),
    (((84, 84), 0, None), r'cell_size \(0\) at least 1'),
  ],
)
def test_crops_that_do_not_fit_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    pixel_control.grid_shape(*arguments)


def test_values_of_another_grid_are_refused():
  message = r"action_values\['a'\] \(7, 2, 3, 4\) must be \[7, 9, 13, num_act"
  with pytest.raises(ValueError, match=message):
    pixel_control.pixel_control_loss(
      {'a': _values(0, 4)},
      _frames(0),
      loss_streams.random_trajectory(0, T),
      0.9,
      1,
    )
