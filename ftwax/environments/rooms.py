"""Four rooms in JAX: a walk to a goal in the room across, the only reward.

The rooms are those of Sutton et al. (1999, "Between MDPs and semi-MDPs"), but
doors, start and goal are others in each episode, and all of the board is seen.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional

# Up, down, left, right, as (rows, columns).
_MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.int32)

# What squares look like; an empty one is 0.
_WALL, _GOAL, _AGENT = 0.25, 0.5, 1.0


class RoomsState(NamedTuple):
  """Where things are.

  Attributes:
    is_wall: bool [side, side].
    position: int32 [2], row and column of the agent.
    goal: int32 [2].
    num_steps: int32 [], transitions done.
  """

  is_wall: types.Array
  position: types.Array
  goal: types.Array
  num_steps: types.Array


def make(
  side: int = 9, max_steps: int = 60
) -> functional.FunctionalEnvironment:
  """Makes four rooms on a board of `side` by `side`.

  A wall across the middle and one down it have a door on each side of where
  they meet. The agent moves by a square up, down, left or right, and not
  through walls. It starts anywhere in one of the rooms; the goal is anywhere in
  the one diagonally across. There the reward is 1 and the episode terminates;
  all other rewards are 0. After `max_steps` transitions it is truncated.

  Args:
    side: of the board, odd, at least 3.
    max_steps: of an episode, at least 1.

  Returns:
    The environment; its observation is float32 [side, side]: 0.25 where a wall
    is, 0.5 at the goal, 1 where the agent is.

  Raises:
    ValueError: if the board is even or too small, or there is no step.
  """
  if side < 3 or side % 2 == 0:
    raise ValueError(
      f'side ({side}) must be odd and at least 3, a wall in the middle and'
      f' rooms around; choose {max(3, side + 1 - side % 2)}.'
    )
  if max_steps < 1:
    raise ValueError(f'max_steps ({max_steps}) must be at least 1; choose 60.')
  room_side = side // 2

  def observe(state):
    board = jnp.where(state.is_wall, _WALL, 0.0)
    board = board.at[tuple(state.goal)].set(_GOAL)
    return board.at[tuple(state.position)].set(_AGENT)

  def reset(key):
    door_key, room_key, position_key, goal_key = jax.random.split(key, 4)
    # The corner of a room, [2].
    room = (room_side + 1) * jax.random.bernoulli(room_key, shape=(2,))
    across = room_side + 1 - room
    state = RoomsState(
      is_wall=_make_walls(door_key, side),
      position=room + _draw(position_key, room_side),
      goal=across + _draw(goal_key, room_side),
      num_steps=jnp.zeros((), jnp.int32),
    )
    return state, functional.restart(observe(state))

  def step(state, action):
    moved = state.position + jnp.asarray(_MOVES)[action.astype(jnp.int32)]
    moved = jnp.clip(moved, 0, side - 1)
    position = jnp.where(state.is_wall[tuple(moved)], state.position, moved)
    state = state._replace(position=position, num_steps=state.num_steps + 1)
    found = jnp.all(position == state.goal)
    return state, functional.transition(
      found,
      observe(state),
      is_terminal=found,
      is_truncated=state.num_steps >= max_steps,
    )

  return functional.FunctionalEnvironment(_make_spec(side), reset, step)


def _make_walls(key: types.Key, side: int) -> types.Array:
  """Returns where walls are, but for a door in each of their four arms."""
  middle = side // 2
  top, bottom, left, right = jax.random.randint(key, (4,), 0, middle, jnp.int32)
  is_wall = jnp.zeros((side, side), bool)
  is_wall = is_wall.at[middle].set(True).at[:, middle].set(True)
  rows = jnp.stack([top, middle + 1 + bottom])
  columns = jnp.stack([left, middle + 1 + right])
  is_wall = is_wall.at[rows, middle].set(False)
  return is_wall.at[middle, columns].set(False)


def _draw(key: types.Key, room_side: int) -> types.Array:
  """Returns row and column of a square of a room, int32 [2]."""
  return jax.random.randint(key, (2,), 0, room_side, jnp.int32)


def _make_spec(side: int) -> types.EnvironmentSpec:
  return types.EnvironmentSpec(
    observations=specs.BoundedArray(
      (side, side), np.float32, 0, 1, 'observation'
    ),
    actions=specs.DiscreteArray(len(_MOVES), np.int32, 'action'),
    rewards=specs.BoundedArray((), np.float32, 0, 1, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
  )
