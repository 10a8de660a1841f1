"""Which part of a run's state lies on which device; see `runtime.sharding`.

One agent has its environments spread over the devices, a population has its
members spread, and their games.
"""

from typing import Any

import jax

from ftwax import types
from ftwax.population import state as state_lib
from ftwax.runtime import sharding
from ftwax.runtime.device import arena, loop, population, rollout


def of_loop(mesh: jax.sharding.Mesh) -> loop.LoopState:
  """Returns shardings of the state of one agent, a prefix of it.

  What it keeps for auxiliary tasks lies on each device, since each draws from
  all of it.
  """
  rows, everywhere = _shardings(mesh)
  return loop.LoopState(
    training=everywhere,
    rollout=_of_rollout(environment=rows, rows=rows, actor_key=everywhere),
    replay=everywhere,
  )


def of_population(
  mesh: jax.sharding.Mesh,
) -> population.PopulationLoopState:
  """Returns shardings of the state of a population, a prefix of it.

  Ratings and the like, which are few numbers, lie on each device.
  """
  rows, everywhere = _shardings(mesh)
  fields = dict.fromkeys(state_lib.PopulationState._fields, everywhere)
  places = arena.ArenaState(
    games=rows, order=everywhere, outcome=everywhere, is_played=everywhere
  )
  return population.PopulationLoopState(
    population=state_lib.PopulationState(**{**fields, 'members': rows}),
    rollout=_of_rollout(environment=places, rows=rows, actor_key=rows),
    replay=rows,
    key=everywhere,
  )


def _shardings(mesh: jax.sharding.Mesh) -> tuple[Any, Any]:
  """Returns those of what is spread by its first axis, and of all else."""
  return sharding.spread(mesh), sharding.everywhere(mesh)


def _of_rollout(
  environment: Any, rows: Any, actor_key: Any
) -> rollout.RolloutState:
  """Returns shardings of acting; an actor has one key for all of its rows."""
  return rollout.RolloutState(
    environment=environment,
    timestep=rows,
    actor=types.ActorState(
      key=actor_key, recurrent_state=rows, action=rows, logits=rows
    ),
    episode_return=rows,
    episode_length=rows,
  )
