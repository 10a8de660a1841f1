"""Shardings of the state of a run; see `runtime.sharding`.

A population is sharded by member, together with the members' games. A single
agent is sharded by environment and by row of its batches.
"""

from typing import Any

import jax

from ftwax import types
from ftwax.population import state as state_lib
from ftwax.runtime import sharding
from ftwax.runtime.device import compiled_arena, loop, rollout
from ftwax.runtime.device import sizes as sizes_lib


def check_sizes(
  mesh: jax.sharding.Mesh, sizes: sizes_lib.Sizes, num_games: int
) -> None:
  """Raises a ValueError unless the devices can share the work evenly."""
  counts = {'num_environments': num_games}
  if sizes.num_members > 1:
    counts['num_members'] = sizes.num_members
  else:
    counts['batch_size'] = sizes.batch_size
    counts['number of rows'] = sizes.num_rows
  sharding.check_divides(mesh, **counts)


def of_loop(mesh: jax.sharding.Mesh, num_members: int) -> loop.LoopState:
  """Returns the shardings of `LoopState` as a prefix tree.

  Ratings, opponents and other shared state are replicated. So is the replay of
  a single agent, since each device samples from all of it.
  """
  first: Any = sharding.spread(mesh)
  whole: Any = sharding.replicated(mesh)
  members, rows = first, first
  if num_members == 1:
    # Rows have leaves [1, M, ...].
    members, rows = whole, sharding.spread(mesh, axis=1)
  population: dict[str, Any] = dict.fromkeys(
    state_lib.PopulationState._fields, whole
  )
  return loop.LoopState(
    population=state_lib.PopulationState(**{**population, 'members': members}),
    rollout=rollout.RolloutState(
      environment=compiled_arena.ArenaState(games=first, match=whole),
      timestep=rows,
      actor=types.ActorState(
        key=members,
        recurrent_state=rows,
        action=rows,
        logits=rows,
        value=rows,
        seed=rows,
      ),
      episode_return=rows,
      episode_length=rows,
      anchor=rows,
    ),
    replay=members,
    totals=whole,
    key=whole,
  )
