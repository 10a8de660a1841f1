"""Seats that are out of a game, or wait in it for their next decision.

The step type of such a row is `types.ABSENT`. A seat is out from its `LAST` to
its next `FIRST`; what is paid then is nobody's. A seat that waits has made a
decision: what is paid meanwhile belongs to it and is handed out with the seat's
next row. There the reward is the sum and the discount the product since the
decision, so an agent's own discount counts decisions, not steps of the game.

A game is over when all of its seats are `LAST`; a seat that is out repeats it.
Functions take arrays of NumPy or JAX.
"""

from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import trees, types


class Owed(NamedTuple):
  """What seats are owed since their last decision, leaves [...].

  Attributes:
    reward: float32 [...] or [..., num_events].
    discount: float32 [...].
    is_out: bool [...], whether the seat is in no episode.
  """

  reward: Any
  discount: Any
  is_out: Any


def start(timestep: dm_env.TimeStep) -> Owed:
  """Returns what seats are owed before the first timestep of a game."""
  xp = _library(timestep)
  return Owed(
    xp.zeros_like(timestep.reward),
    xp.ones_like(timestep.discount),
    timestep.step_type != types.FIRST,
  )


def pay(owed: Owed, timestep: dm_env.TimeStep) -> tuple[dm_env.TimeStep, Owed]:
  """Returns the timestep with what seats get, and what they are owed after it.

  Args:
    owed: after the last timestep.
    timestep: of a step of the game, leaves [...].
  """
  xp = _library(timestep)
  step_type = timestep.step_type
  is_absent = step_type == types.ABSENT
  is_out = xp.where(is_absent, owed.is_out, step_type == types.LAST)
  waits, is_paid = is_absent & ~owed.is_out, ~is_absent & ~owed.is_out
  total = timestep.reward + owed.reward
  discount = timestep.discount * owed.discount

  def of_rewards(mask: Any) -> Any:
    return xp.where(trees.align(mask, total), total, xp.zeros_like(total))

  paid = timestep._replace(
    reward=of_rewards(is_paid),
    discount=xp.where(waits | (step_type == types.FIRST), 1.0, discount).astype(
      timestep.discount.dtype
    ),
  )
  held = xp.where(waits, discount, xp.ones_like(discount))
  return paid, Owed(of_rewards(waits), held, is_out)


def is_over(step_type: Any) -> Any:
  """Returns whether games end, [G]; step types are [G, P]."""
  return (step_type == types.LAST).all(axis=1)


def has_moved(step_type: Any) -> Any:
  """Returns whether a step of a game took a decision, [G], of types [G, P].

  A step in which all who are there have just come took none.
  """
  moved = (step_type == types.MID) | (step_type == types.LAST)
  return moved.any(axis=1)


def _library(timestep: dm_env.TimeStep) -> Any:
  is_jax = isinstance(timestep.step_type, jax.Array)
  return jnp if is_jax else np
