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


def count(deeds: rules.Deeds, teams: Sequence[int]) -> types.Array:
  """Counts the events of a step for each player.

  If two opponents tag a player at once, the player counts one event, and so
  does each of the opponents. A capture for which the opponents score counts as
  captured by a teammate for these, and by an opponent for the team that made
  it.

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
  flags = jnp.stack(
    [deeds.captured > 0, deeds.picked_up, deeds.returned], axis=1
  )
  by_teammates = jnp.sum(is_teammate[:, :, None] & flags[None], axis=1)
  by_opponents = jnp.sum(is_opponent[:, :, None] & flags[None], axis=1)
  gifts = (deeds.captured < 0)[None]
  by_teammates = by_teammates.at[:, 0].add(jnp.sum(is_opponent & gifts, axis=1))
  by_opponents = by_opponents.at[:, 0].add(
    jnp.sum(~is_opponent & gifts, axis=1)
  )
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
