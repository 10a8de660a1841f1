"""The thirteen events of capture the flag, counted for each player.

They are the game points of Jaderberg et al. (2019, "Human-level performance in
3D multiplayer games with population-based reinforcement learning"): captures,
pick-ups and returns of flags by a player, its teammates and its opponents, and
the tags that the player gave and received.
"""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments.capture_the_flag import maps, rules

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
  had_flag = deeds.had_flag
  done = [deeds.captured > 0, deeds.picked_up, deeds.returned]
  done_by_others = jnp.einsum(
    'qk,pqkc->pc', jnp.stack([*done, deeds.captured < 0], 1, dtype=jnp.float32),
    _others(tuple(teams)),
  )  # fmt: skip
  was_tagged = maps.any_along(deeds.tagged, 0)
  # A tag hits one player.
  tags = [
    maps.any_along(deeds.tagged & had_flag[None], 1),
    maps.any_along(deeds.tagged & ~had_flag[None], 1),
    was_tagged & had_flag,
    was_tagged & ~had_flag,
  ]
  columns = [*done, *jnp.unstack(done_by_others, axis=1), *tags]
  return jnp.stack(columns, axis=1, dtype=jnp.float32)


@functools.cache
def _others(teams: tuple[int, ...]) -> types.NumpyArray:
  """Returns for whom the deeds of others count, float32 [P, P, 4, 6].

  From a deed of the second player, the last one a capture for its opponents, to
  a column of the first player: of teammates', then of opponents' deeds.
  """
  team = np.asarray(teams)
  is_opponent = team[:, None] != team[None]
  is_teammate = ~is_opponent & ~np.eye(len(team), dtype=bool)
  counts = np.zeros((len(team), len(team), 4, 6), np.float32)
  for deed in range(3):
    counts[..., deed, deed] = is_teammate
    counts[..., deed, 3 + deed] = is_opponent
  counts[..., 3, 0], counts[..., 3, 3] = is_opponent, ~is_opponent
  return counts
