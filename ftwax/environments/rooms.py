"""Four rooms in JAX: walk to a goal in the opposite room.

The rooms follow Sutton et al. (1999, "Between MDPs and semi-MDPs"), but doors,
start and goal are redrawn in every episode, and the whole board is observed.
"""

from typing import NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional, specified

# Up, down, left, right, as [rows, columns] to add.
_MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.int32)

# Values of squares in the observation; an empty square is 0.
_WALL, _GOAL, _AGENT = 0.25, 0.5, 1.0


class RoomsState(NamedTuple):
  """State of an episode.

  Attributes:
    is_wall: bool [side, side], whether each square is a wall.
    position: int32 [2], row and column of the agent.
    goal: int32 [2], row and column of the goal.
    num_steps: int32 [], number of transitions so far.
  """

  is_wall: types.Array
  position: types.Array
  goal: types.Array
  num_steps: types.Array


def make(
  side: int = 9, max_steps: int = 60
) -> functional.FunctionalEnvironment:
  """Makes four rooms on a board of `side` by `side`.

  A horizontal and a vertical wall cross in the middle of the board; each of
  their four arms has one door. The agent moves one square up, down, left or
  right, and not through walls. It starts in a random square of a random room,
  and the goal is in a random square of the room diagonally opposite. Reaching
  the goal is rewarded with 1 and terminates the episode; all other rewards are
  0. After `max_steps` transitions the episode is truncated.

  Args:
    side: number of rows and of columns; odd, at least 3.
    max_steps: largest number of transitions in an episode, at least 1.

  Returns:
    The environment. Its observation is float32 [side, side]: 0.25 at walls, 0.5
    at the goal, 1 at the agent and 0 elsewhere.

  Raises:
    ValueError: if `side` is even or below 3, or `max_steps` is below 1.
  """
  if side < 3 or side % 2 == 0:
    raise ValueError(
      f'side ({side}) must be odd and at least 3, for walls in the middle and'
      f' rooms around them; choose {max(3, side + 1 - side % 2)}.'
    )
  if max_steps < 1:
    raise ValueError(f'max_steps ({max_steps}) must be at least 1; choose 60.')
  room_side = side // 2

  def observe(state: RoomsState) -> types.Array:
    board = jnp.where(state.is_wall, _WALL, 0.0)
    board = board.at[tuple(state.goal)].set(_GOAL)
    return board.at[tuple(state.position)].set(_AGENT)

  def reset(key: types.Key) -> tuple[RoomsState, dm_env.TimeStep]:
    door_key, room_key, position_key, goal_key = jax.random.split(key, 4)
    # Upper left squares of the agent's room and of the opposite one, [2].
    room = (room_side + 1) * jax.random.bernoulli(room_key, shape=(2,))
    across = room_side + 1 - room
    state = RoomsState(
      is_wall=_make_walls(door_key, side),
      position=room + _draw(position_key, room_side),
      goal=across + _draw(goal_key, room_side),
      num_steps=jnp.zeros((), jnp.int32),
    )
    return state, functional.restart(observe(state))

  def step(
    state: RoomsState, action: types.Array
  ) -> tuple[RoomsState, dm_env.TimeStep]:
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

  spec = specified.make_spec(
    specs.BoundedArray((side, side), np.float32, 0, 1, 'observation'),
    len(_MOVES),
    reward_range=(0, 1),
  )
  return functional.FunctionalEnvironment(spec, reset, step)


def _make_walls(key: types.Key, side: int) -> types.Array:
  """Returns walls with a door in each of their four arms, bool [side, side]."""
  middle = side // 2
  top, bottom, left, right = jax.random.randint(key, (4,), 0, middle, jnp.int32)
  is_wall = jnp.zeros((side, side), bool)
  is_wall = is_wall.at[middle].set(True).at[:, middle].set(True)
  rows = jnp.stack([top, middle + 1 + bottom])
  columns = jnp.stack([left, middle + 1 + right])
  is_wall = is_wall.at[rows, middle].set(False)
  return is_wall.at[middle, columns].set(False)


def _draw(key: types.Key, room_side: int) -> types.Array:
  """Draws a square of a room, int32 [2], relative to its upper left corner."""
  return jax.random.randint(key, (2,), 0, room_side, jnp.int32)
