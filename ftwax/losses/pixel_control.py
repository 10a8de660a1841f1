"""Pixel control (Jaderberg et al., 2017, arXiv:1611.05397, section 3.1).

An auxiliary task: change the observation. The frame is divided into cells, and
the mean absolute change of a cell's pixels is its pseudo-reward. The cells of a
signal [length, channels] are stretches of it, with all channels. The action
values of all cells are learned off-policy by n-step Q-learning:

  G_{t-1} = r_t + discount_t G_t,  at the end of the stream  max_a Q(s_t, a)
  loss_{t-1} = sum over cells of 0.5 (G_{t-1} - Q(s_{t-1}, a_{t-1}))^2

If an action has several parts, each has its own action values for the same
pseudo-rewards (Jaderberg et al., 2019, arXiv:1807.01281), and the losses are
summed. The maximum is over the actions that the action mask allows.

`rlax.pixel_control_loss` supports neither action parts nor action masks nor
episode ends, and since its Q-learning gathers action values, value and gradient
take 1.2 to 1.4 times as long.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ftwax import distributions, shapes, types
from ftwax.losses import lazy_rlax, policy_loss, returns


def grid_shape(
  frame_shape: Sequence[int],
  cell_size: int = 4,
  crop_size: Sequence[int] | None = None,
  is_signal: bool = False,
) -> tuple[int, ...]:
  """Returns the number of rows and columns of cells in a frame.

  Args:
    frame_shape: (H, W) or (H, W, C), or (L,) or (L, C) of a signal.
    cell_size: height and width of a cell in pixels, or its length in a signal.
    crop_size: (height, width) of the central crop that is used, or (length,) of
      a signal; None for the largest one that whole cells fill, such as 84 x 84
      for a frame of that size and cells of 4. UNREAL and FTW use (80, 80).
    is_signal: whether frames are signals, of one side and cells in a row.

  Returns:
    Rows and columns, or the number of cells of a signal.

  Raises:
    ValueError: if the frame is smaller than the crop or than a cell, or cells
      do not fill the crop.
  """
  crop = _crop_size(frame_shape, cell_size, crop_size, is_signal)
  return tuple(side // cell_size for side in crop)


def pseudo_rewards(
  frames: types.Array,
  cell_size: int = 4,
  crop_size: Sequence[int] | None = None,
  is_signal: bool = False,
) -> types.Array:
  """Computes the mean absolute change of the pixels of each cell.

  Args:
    frames: [T + 1, H, W] or [T + 1, H, W, C], uint8, or floats in [0, 1]; or
      signals, [T + 1, L] or [T + 1, L, C], of any numbers.
    cell_size: see `grid_shape`.
    crop_size: see `grid_shape`.
    is_signal: see `grid_shape`.

  Returns:
    float32 [T, rows, columns], in [0, 1]; [T, cells] of signals.

  Raises:
    ImportError: if rlax cannot be imported any more, on Python 3.10.
  """
  crop = _crop_size(frames.shape[1:], cell_size, crop_size, is_signal)
  for axis, size in enumerate(crop, start=1):
    begin = (frames.shape[axis] - size) // 2
    frames = jax.lax.slice_in_dim(frames, begin, begin + size, axis=axis)
  if frames.dtype == jnp.uint8:
    frames = frames.astype(jnp.float32) / 255.0
  if is_signal:
    change = jnp.abs(jnp.diff(frames, axis=0))  # [T, L] or [T, L, C]
    cells = change.reshape(len(change), crop[0] // cell_size, -1)
    return jnp.mean(cells, axis=-1, dtype=jnp.float32)  # [T, cells]
  frames = frames.reshape(*frames.shape[:3], -1)  # [T + 1, H, W, C]
  return jnp.asarray(lazy_rlax.load().pixel_control_rewards(frames, cell_size))


def pixel_control_loss(
  action_values: types.ArrayTree,
  frames: types.Array,
  trajectory: types.Trajectory,
  discount: types.Array | float = 0.9,
  cell_size: int = 4,
  crop_size: Sequence[int] | None = None,
  is_signal: bool = False,
) -> types.Array:
  """Computes the loss of the action values of all cells on one stream.

  The change between two episodes is not learned from. A terminated episode has
  no value at its end, a truncated one bootstraps.

  Args:
    action_values: [T + 1, rows, columns, num_actions], or [T + 1, cells,
      num_actions] of signals, for each part of the action, in its structure.
    frames: the observation, or the entry of it to control; see
      `pseudo_rewards`.
    trajectory: trajectory of the behaviour policy, without a batch axis. Its
      rewards are not used, and of its observations only `types.ACTION_MASK`, if
      present.
    discount: discount of pseudo-rewards; multiplies the environment's.
    cell_size: see `grid_shape`.
    crop_size: see `grid_shape`.
    is_signal: see `grid_shape`.

  Returns:
    float32 [T], zero where no action was taken.

  Raises:
    ValueError: if the shape of the action values does not match the cells.
  """
  r_t = pseudo_rewards(frames, cell_size, crop_size, is_signal)
  cell_axes = tuple(range(1, r_t.ndim))
  _check_action_values(action_values, frames, r_t)
  timestep = trajectory.timestep
  steps = (frames.shape[0],)
  shapes.check(
    'pixel_control_loss',
    frames=(frames, 'T+1 ...'),
    **{
      f'trajectory.timestep.{name}': (getattr(timestep, name), 'T+1')
      for name in ('discount', 'step_type')
    },
    discount=(discount, ''),
  )
  for path, leaf in jax.tree.leaves_with_path(trajectory.previous_action):
    name = f'trajectory.previous_action{jax.tree_util.keystr(path)}'
    shapes.check('pixel_control_loss', **{name: (leaf, str(steps[0]))})
  discount_t = discount * timestep.discount[1:]
  mask_tm1 = policy_loss.make_mask(timestep)

  def part_loss(
    values: types.Array, allowed: types.Array, previous_action: types.Array
  ) -> types.Array:
    # There is no target network.
    best = jnp.max(jnp.where(allowed, values, -jnp.inf), axis=-1)
    v_t = jax.lax.stop_gradient(best[1:])  # [T, rows, columns] or [T, cells]
    targets = returns.lambda_returns(r_t, discount_t, v_t, mask_tm1)
    # A one-hot sum instead of a gather, whose gradient is slow.
    a_tm1 = jax.nn.one_hot(previous_action[1:], values.shape[-1])
    a_tm1 = jnp.expand_dims(a_tm1, cell_axes)
    q_tm1 = jnp.sum(values[:-1] * a_tm1, axis=-1)
    return 0.5 * jnp.sum(jnp.square(targets - q_tm1), axis=cell_axes)  # [T]

  losses = jax.tree.map(
    part_loss,
    action_values,
    _allowed(action_values, timestep.observation, cell_axes),
    trajectory.previous_action,
  )
  return jnp.where(mask_tm1 != 0, sum(jax.tree.leaves(losses)), 0.0)


def _allowed(
  action_values: types.ArrayTree,
  observation: types.ArrayTree,
  cell_axes: tuple[int, ...],
) -> types.ArrayTree:
  """Returns which actions are allowed, broadcastable to their values.

  If a mask forbids all actions, as it may at the end of an episode, it is
  ignored.
  """
  if not (
    isinstance(observation, Mapping) and types.ACTION_MASK in observation
  ):
    return jax.tree.map(lambda _: True, action_values)

  values, structure = jax.tree.flatten(action_values)
  sizes = [leaf.shape[-1] for leaf in values]
  masks = distributions.split_mask(
    jax.tree.unflatten(structure, sizes), observation[types.ACTION_MASK]
  )

  def of_part(mask: types.Array | None) -> Any:
    if mask is None:
      return True
    allowed = (mask != 0) | jnp.all(mask == 0, axis=-1, keepdims=True)
    # [T + 1, 1, num_actions] or [T + 1, 1, 1, num_actions]
    return jnp.expand_dims(allowed, cell_axes)

  return jax.tree.unflatten(structure, [of_part(mask) for mask in masks])


def _crop_size(
  frame_shape: Sequence[int],
  cell_size: int,
  crop_size: Sequence[int] | None,
  is_signal: bool,
) -> Sequence[int]:
  sides = 'length' if is_signal else 'height, width'
  num_sides = 1 if is_signal else 2
  if len(frame_shape) - num_sides not in (0, 1) or cell_size < 1:
    kind = 'a signal' if is_signal else 'an image'
    raise ValueError(
      f'frame_shape {tuple(frame_shape)} must be ({sides}) or ({sides},'
      f' channels), and cell_size ({cell_size}) at least 1; name the entry of'
      f' the observation that is {kind}.'
    )
  size = tuple(frame_shape[:num_sides])
  crop = crop_size or tuple(side // cell_size * cell_size for side in size)
  if len(crop) != num_sides:
    raise ValueError(
      f'crop_size {tuple(crop)} must be ({sides}) for frames'
      f' {tuple(frame_shape)}; choose it, or None for the whole frame.'
    )
  if any(side < part for side, part in zip(size, crop, strict=True)):
    raise ValueError(
      f'crop_size {tuple(crop)} must not be larger than the frame {size};'
      ' choose a smaller one, or None for the whole frame.'
    )
  if min(crop) < cell_size or any(side % cell_size for side in crop):
    raise ValueError(
      f'crop_size {tuple(crop)} must be a positive multiple of cell_size'
      f' ({cell_size}) on each side; choose another of the two.'
    )
  return crop


def _check_action_values(
  action_values: types.ArrayTree, frames: types.Array, r_t: types.Array
) -> None:
  for path, leaf in jax.tree.leaves_with_path(action_values):
    expected = frames.shape[0], *r_t.shape[1:]
    if leaf.shape[:-1] != expected:
      raise ValueError(
        f'action_values{jax.tree_util.keystr(path)} {leaf.shape} must be'
        f' [{", ".join(map(str, expected))}, num_actions] for frames'
        f" {frames.shape}; choose cell_size, crop_size and the head's grid to"
        ' match.'
      )
