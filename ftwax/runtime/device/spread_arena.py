"""Games that lie on several devices, each of which plays its own."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import dm_env
import jax

from ftwax import types
from ftwax.environments import functional
from ftwax.population import routing
from ftwax.population import seating as seating_lib
from ftwax.runtime import sharding
from ftwax.runtime.device import compiled_arena, rollout


@dataclasses.dataclass(frozen=True, eq=False)
class SpreadArena(compiled_arena.Arena):
  """Plays games without communication between devices.

  Games of one seat stay with their members, or with the rows of a single
  agent. Others are in groups, one a device (see `seating.in_groups`), in which
  each member has the same number of seats. The rows of a member, in the order
  of its games, then begin with those of the first group.

  Attributes:
    mesh: the devices.
    share: the games of one device.
    row_axis: the axis of [N, M, ...] along which rows are split.
  """

  mesh: jax.sharding.Mesh
  share: compiled_arena.Arena
  row_axis: int

  def to_steps(
    self, state: compiled_arena.ArenaState
  ) -> compiled_arena.ArenaState:
    """Returns a state with the routes of each group within itself."""
    if state.match is None:
      return state
    # Between rollouts they are those of all games, on any number of devices.
    seats = state.match.routes.seats
    groups = seats.reshape(self.mesh.size, -1, seats.shape[-1])
    routes = jax.tree.map(
      lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
      jax.vmap(routing.make_routes)(groups),
    )
    return state._replace(match=state.match._replace(routes=routes))

  def from_steps(
    self,
    state: compiled_arena.ArenaState,
    before: compiled_arena.ArenaState,
  ) -> compiled_arena.ArenaState:
    """Returns the state with the routes of all games, which steps keep."""
    return state._replace(match=before.match)

  def over_devices(self, act: Callable[..., Any]) -> Callable[..., Any]:
    """Returns rollouts of all games, in which each device acts by itself.

    A member whose rows are on several devices draws with another key on each.
    XLA divides the rows of a single agent, with the numbers of one device.

    Args:
      act: `(arena, variables, state) -> (state, played)`; see `Loop.act`.
    """
    if self.seating.num_members == 1:
      return functools.partial(act, self)
    are_grouped = self.row_axis == 1
    members: Any = sharding.WHOLE if are_grouped else 0
    state_axes = rollout_axes(self.seating)
    # Leaves are [R, T, N, M, ...] and [R, T, G, ...].
    first: Any = 0
    rows: Any = 2 + self.row_axis
    played_axes = (
      types.Trajectory(rows, rows, rows, rows - 1, rows, rows),
      rollout.Episodes(rows, rows, rows, rows, results=2, faults=first),
    )

    def act_apart(variables: types.ActorVariables, state: Any) -> Any:
      key = state.actor.key
      if are_grouped:
        split = jax.vmap(jax.random.split)(key)
        key, own = split[:, 0], sharding.fold_in_device(split[:, 1])
        state = state._replace(actor=state.actor._replace(key=own))
      state, (trajectories, episodes) = act(self.share, variables, state)
      if are_grouped:
        state = state._replace(actor=state.actor._replace(key=key))
      faults = episodes.faults[None]
      return state, (trajectories, episodes._replace(faults=faults))

    def act_all(variables: types.ActorVariables, state: Any) -> Any:
      state, (trajectories, episodes) = sharding.apart(
        self.mesh, act_apart, (members, state_axes), (state_axes, played_axes)
      )(variables, state)
      faults = episodes.faults.any(axis=0)
      return state, (trajectories, episodes._replace(faults=faults))

    return act_all

  def step(
    self, state: compiled_arena.ArenaState, action: types.ArrayTree
  ) -> tuple[compiled_arena.ArenaState, dm_env.TimeStep, Any]:
    """Steps all games, from `to_steps` on; see `Arena.step`."""
    step = sharding.apart(
      self.mesh,
      self.share.step,
      in_axes=(0, self.row_axis),
      out_axes=(0, self.row_axis, 0),
    )
    stepped: tuple[compiled_arena.ArenaState, dm_env.TimeStep, Any]
    stepped = step(state, action)
    return stepped


def make_arena(
  mesh: jax.sharding.Mesh,
  arena: compiled_arena.Arena,
  game: functional.FunctionalGame,
) -> compiled_arena.Arena:
  """Returns an arena whose devices play by themselves, where they can.

  Args:
    mesh: the devices.
    arena: all games.
    game: one of them.
  """
  seating: seating_lib.Seating | None = arena.seating
  if not arena.seating.is_solo:
    seating = seating_lib.in_groups(arena.seating, mesh.size)
  if seating is None:
    return arena
  axis = row_axis(seating)
  share = seating.group
  if seating.is_solo:
    share = seating._replace(
      num_members=seating.num_members // (1 if axis else mesh.size),
      opponents=seating.opponents[: seating.num_games // mesh.size],
    )
  return SpreadArena(
    arena.games,
    routing.Router(seating),
    mesh,
    compiled_arena.make_arena(game, share),
    axis,
  )


def row_axis(seating: seating_lib.Seating) -> int:
  """Returns the axis of [N, M, ...] along which devices divide rows.

  Those of members go with them, but in groups of games and for a single member.
  """
  return int(seating.num_members == 1 or seating.num_groups > 1)


def rollout_axes(seating: seating_lib.Seating) -> rollout.RolloutState:
  """Returns the axes along which a state is divided, as a prefix tree."""
  rows: Any = row_axis(seating)
  keys: Any = sharding.WHOLE if rows else 0  # [N, 2]
  return rollout.RolloutState(
    environment=0,
    timestep=rows,
    actor=types.ActorState(keys, rows, rows, rows, rows, rows),
    episode_return=rows,
    episode_length=rows,
    anchor=rows,
  )
