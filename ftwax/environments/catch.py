"""Catch in JAX: a paddle at the bottom catches one ball an episode.

The rules are those of bsuite's catch (Osband et al., 2020, arXiv:1908.03568).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional

_NUM_ACTIONS = 3  # Left, stay, right.


class CatchState(NamedTuple):
  """Where things are, each int32 [].

  Attributes:
    ball_x: column of the ball.
    ball_y: row of the ball, from the top.
    paddle_x: column of the paddle, which is in the last row.
  """

  ball_x: types.Array
  ball_y: types.Array
  paddle_x: types.Array


def make(
  rows: int = 10, columns: int = 5, miss_reward: float = -1.0
) -> functional.FunctionalEnvironment:
  """Makes catch on a board of `rows` by `columns`.

  The ball falls by a row at each step. In the last row the reward is 1 if the
  paddle is there and `miss_reward` if not, and the episode terminates.

  Args:
    rows: of the board, at least 2; an episode has `rows - 1` transitions.
    columns: of the board.
    miss_reward: at most 1. With 0 rewards are rare at first, the rarer the more
      columns there are.

  Returns:
    The environment; its observation is float32 [rows, columns], 1 where the
    ball or the paddle is.

  Raises:
    ValueError: if the board is too small, or misses pay more than catches.
  """
  for name, value, least in (('rows', rows, 2), ('columns', columns, 1)):
    if value < least:
      raise ValueError(
        f'{name} ({value}) must be at least {least}; choose {least}.'
      )
  if not -math.inf < miss_reward <= 1.0:
    raise ValueError(
      f'miss_reward ({miss_reward}) must be finite and at most 1, the reward of'
      ' a catch; choose -1 or 0.'
    )

  def observe(state):
    board = jnp.zeros((rows, columns), jnp.float32)
    board = board.at[state.ball_y, state.ball_x].set(1.0)
    return board.at[rows - 1, state.paddle_x].set(1.0)

  def reset(key):
    state = CatchState(
      ball_x=jax.random.randint(key, (), 0, columns, jnp.int32),
      ball_y=jnp.zeros((), jnp.int32),
      paddle_x=jnp.full((), columns // 2, jnp.int32),
    )
    return state, functional.restart(observe(state))

  def step(state, action):
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

  return functional.FunctionalEnvironment(
    _make_spec(rows, columns, miss_reward), reset, step
  )


def _make_spec(
  rows: int, columns: int, miss_reward: float
) -> types.EnvironmentSpec:
  return types.EnvironmentSpec(
    observations=specs.BoundedArray(
      (rows, columns), np.float32, 0, 1, 'observation'
    ),
    actions=specs.DiscreteArray(_NUM_ACTIONS, np.int32, 'action'),
    rewards=specs.BoundedArray(
      (), np.float32, min(miss_reward, 0.0), 1, 'reward'
    ),
    discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
  )
