"""Shardings of the state of a run; see `runtime.sharding`.

A population is sharded by member, and its games as `spread_arena` says. A
single agent is sharded by environment and by row of its batches.
"""

import dataclasses
import functools
from typing import Any

import jax

from ftwax.environments import functional
from ftwax.population import seating as seating_lib
from ftwax.population import state as state_lib
from ftwax.runtime import sharding
from ftwax.runtime.device import compiled_arena, loop, spread_arena
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


def spread(
  mesh: jax.sharding.Mesh, made: loop.Loop, game: functional.FunctionalGame
) -> loop.Loop:
  """Returns a loop whose work several devices share.

  Args:
    mesh: the devices.
    made: the loop for one device.
    game: one of its games.
  """
  learner = made.learner
  if made.config.num_members == 1:
    learner = sharding.place_learner_core(mesh, learner)
  if mesh.size == 1:
    return dataclasses.replace(made, learner=learner)
  return dataclasses.replace(
    made,
    learner=learner,
    arena=spread_arena.make_arena(mesh, made.arena, game),
    mesh=mesh,
  )


def of_loop(
  mesh: jax.sharding.Mesh, seating: seating_lib.Seating
) -> loop.LoopState:
  """Returns the shardings of `LoopState` as a prefix tree.

  Ratings, opponents and other shared state are replicated. So is the replay of
  a single agent, since each device samples from all of it.
  """
  first: Any = sharding.spread(mesh)
  whole: Any = sharding.replicated(mesh)
  members = whole if seating.num_members == 1 else first
  axes = spread_arena.rollout_axes(seating)
  rows = jax.tree.map(functools.partial(sharding.spread, mesh), axes)
  population: dict[str, Any] = dict.fromkeys(
    state_lib.PopulationState._fields, whole
  )
  return loop.LoopState(
    population=state_lib.PopulationState(**{**population, 'members': members}),
    rollout=rows._replace(
      environment=compiled_arena.ArenaState(games=first, match=whole)
    ),
    replay=members,
    totals=whole,
    key=whole,
  )
