"""Catch in JAX: move a paddle to catch one falling ball per episode.

Follows the rules of bsuite's catch (Osband et al., 2020, arXiv:1908.03568).
"""

import math
import pathlib
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import registry, types
from ftwax.environments import functional, game_pages, specified

_NUM_ACTIONS = 3  # Left, stay, right.


class CatchState(NamedTuple):
  """Positions on the board.

  Attributes:
    ball_x: int32 [], column of the ball.
    ball_y: int32 [], row of the ball, counted from the top.
    paddle_x: int32 [], column of the paddle, which stays in the last row.
  """

  ball_x: types.Array
  ball_y: types.Array
  paddle_x: types.Array


@registry.register('catch.game')
def make(
  rows: int = 10, columns: int = 5, miss_reward: float = -1.0
) -> functional.FunctionalEnvironment:
  """Makes catch on a board of `rows` by `columns`.

  The ball falls one row per step. When it reaches the last row, the reward is 1
  if the paddle is below it and `miss_reward` otherwise, and the episode
  terminates. All other rewards are 0.

  Args:
    rows: number of rows, at least 2; an episode has `rows - 1` transitions.
    columns: number of columns, at least 1.
    miss_reward: reward of a miss, at most 1. With 0, a random policy is
      rewarded in only one of `columns` episodes.

  Returns:
    The environment. Its observation is float32 [rows, columns], 1 at the ball
    and the paddle and 0 elsewhere; its actions are left, stay and right.

  Raises:
    ValueError: if the board is too small or a miss pays more than a catch.
  """
  specified.check_at_least(2, 4096, rows=rows)
  specified.check_at_least(1, 4096, columns=columns)
  if not -math.inf < miss_reward <= 1.0:
    raise ValueError(
      f'miss_reward ({miss_reward}) must be finite and at most 1, the reward of'
      ' a catch; choose -1 or 0.'
    )

  def observe(state: CatchState) -> types.Array:
    board = jnp.zeros((rows, columns), jnp.float32)
    board = board.at[state.ball_y, state.ball_x].set(1.0)
    return board.at[rows - 1, state.paddle_x].set(1.0)

  def reset(key: types.Key) -> tuple[CatchState, dm_env.TimeStep]:
    state = CatchState(
      ball_x=jax.random.randint(key, (), 0, columns, jnp.int32),
      ball_y=jnp.zeros((), jnp.int32),
      paddle_x=jnp.full((), columns // 2, jnp.int32),
    )
    return state, functional.restart(observe(state))

  def step(
    state: CatchState, action: types.Array
  ) -> tuple[CatchState, dm_env.TimeStep]:
    moved = state.paddle_x + action.astype(jnp.int32) - 1
    state = CatchState(
      ball_x=state.ball_x,
      ball_y=state.ball_y + 1,
      paddle_x=jnp.clip(moved, 0, columns - 1),
    )
    last = state.ball_y == rows - 1
    reward = jnp.where(state.paddle_x == state.ball_x, 1.0, miss_reward)
    return state, functional.transition(
      jnp.where(last, reward, 0.0), observe(state), is_terminal=last
    )

  spec = specified.make_spec(
    specs.BoundedArray((rows, columns), np.float32, 0, 1, 'observation'),
    _NUM_ACTIONS,
    reward_range=(min(miss_reward, 0.0), 1.0),
  )
  return functional.FunctionalEnvironment(
    spec, reset, step, _make_page(rows, columns)
  )


def _make_page(rows: int, columns: int) -> game_pages.GamePage:
  """Makes the page of catch; a state becomes [ball_x, ball_y, paddle_x]."""

  def view(observation: types.ArrayTree) -> Any:
    board = np.asarray(observation).reshape(rows, columns)
    return {'board': board.astype(int).tolist()}

  keys = (
    game_pages.Key(('ArrowLeft', 'KeyA'), 'left', 0),
    game_pages.Key(('ArrowRight', 'KeyD'), 'right', 2),
  )
  return game_pages.GamePage(
    pathlib.Path(__file__).with_suffix('.js'),
    keys,
    lambda state: {'rows': rows, 'columns': columns},
    lambda state: jnp.stack(state),
    view,
    lambda choices: np.int32(choices.get('', 1)),
  )
