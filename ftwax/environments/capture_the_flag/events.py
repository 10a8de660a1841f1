"""The thirteen events of capture the flag, counted for each player.

They are the game points of Jaderberg et al. (2019, "Human-level performance in
3D multiplayer games with population-based reinforcement learning"): captures,
pick-ups and returns of flags by a player, its teammates and its opponents, and
the tags that the player gave and received.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments.capture_the_flag import rules

EVENT_NAMES = (
  'i_captured_the_flag',
  'i_picked_up_the_flag',
  'i_returned_the_flag',
  'teammate_captured_the_flag',
  'teammate_picked_up_the_flag',
  'teammate_returned_the_flag',
  'opponent_captured_the_flag',
  'opponent_picked_up_the_flag',
  'opponent_returned_the_flag',
  'i_tagged_opponent_with_flag',
  'i_tagged_opponent_without_flag',
  'i_was_tagged_with_flag',
  'i_was_tagged_without_flag',
)


_CAPTURES = tuple(
  EVENT_NAMES.index(f'{who}_captured_the_flag')
  for who in ('i', 'teammate', 'opponent')
)


def count(deeds: rules.Deeds, teams: Sequence[int]) -> types.Array:
  """Counts the events of a step for each player.

  If two opponents tag a player at once, the player counts one event, and so
  does each of the opponents.

  Args:
    deeds: deeds of all players in the step.
    teams: the team of each player, length P.

  Returns:
    float32 [P, 13], in the order of `EVENT_NAMES`.
  """
  team = np.asarray(teams)
  is_teammate = team[:, None] == team[None]
  np.fill_diagonal(is_teammate, False)
  is_opponent = team[:, None] != team[None]
  # [P, 3], summed over the teammates and over the opponents of each player.
  flags = jnp.stack([deeds.captured, deeds.picked_up, deeds.returned], axis=1)
  by_teammates = jnp.sum(is_teammate[:, :, None] & flags[None], axis=1)
  by_opponents = jnp.sum(is_opponent[:, :, None] & flags[None], axis=1)
  had_flag = deeds.had_flag
  was_tagged = jnp.any(deeds.tagged, axis=0)
  tags = [
    jnp.sum(deeds.tagged & had_flag[None], axis=1),
    jnp.sum(deeds.tagged & ~had_flag[None], axis=1),
    was_tagged & had_flag,
    was_tagged & ~had_flag,
  ]
  return jnp.concatenate(
    [flags, by_teammates, by_opponents, jnp.stack(tags, axis=1)], axis=1
  ).astype(jnp.float32)


def reverse(counts: types.Array) -> types.Array:
  """Returns counts [P, 13] of a reversed game, with captures by who scores.

  What a player's own team captures counts as captured by an opponent, and what
  an opponent captures as captured by a teammate.
  """
  by_me, by_teammate, by_opponent = counts[:, np.array(_CAPTURES)].T
  captures = [jnp.zeros_like(by_me), by_opponent, by_me + by_teammate]
  return counts.at[:, np.array(_CAPTURES)].set(jnp.stack(captures, axis=1))
