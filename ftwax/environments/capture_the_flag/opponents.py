"""Scripted players of three strengths, used to rate agents.

A script is a pure function of a random key, the state of the game and the index
of a player. Unlike agents, it sees the whole map. It does not plan ahead, and
plays a reversed game as any other.

- 'wanderer' walks around, turns at random and where it is blocked, tags at
  random, and captures flags only by luck.
- 'attacker' takes a shortest path to the opponents' flag and back to its base,
  and never tags.
- 'tactician' tags any opponent that one turn brings into its line of fire.
  Players with an odd index in their team guard their flag and chase its
  carrier; the others attack.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments import functional
from ftwax.environments.capture_the_flag import actions, maps, rules
from ftwax.environments.capture_the_flag import game_config as config_lib

_Config: TypeAlias = config_lib.CaptureTheFlagConfig

STRENGTHS = ('wanderer', 'attacker', 'tactician')

# Probability of a random heading. Without it, two players that block each
# other's shortest path would never move again.
_NOISE = 0.1

# Probabilities that a wanderer turns and that it tags in a step.
_WANDERER_TURN = 0.2
_WANDERER_TAG = 0.2

# Distance from the flag, in cells, up to which a guard chases an opponent, and
# distance from its stand up to which an idle guard stays where it is.
_ALARM = 6
_STRAY = 2

# Indices of `rules.MOVES` that go ahead, right, back and left.
_MOVE_OF_TURN = np.array([1, 4, 2, 3], np.int32)


def make_script(strength: str, config: _Config) -> functional.Script:
  """Makes the script of the given strength.

  Args:
    strength: one of `STRENGTHS`.
    config: config of the game.

  Raises:
    ValueError: if there is no such strength.
  """
  scripts = {
    'wanderer': _wander,
    'attacker': _attack,
    'tactician': _play_tactics,
  }
  if strength not in scripts:
    raise ValueError(
      f'strength ({strength!r}) of a scripted player must be one of'
      f' {STRENGTHS}; choose e.g. {STRENGTHS[0]!r}.'
    )

  def script(
    key: types.Key, state: rules.State, player: types.Array
  ) -> types.ArrayTree:
    action = scripts[strength](key, state, player, config)
    # Same dtypes as the agents' actions; some parts are bool.
    action = jax.tree.map(lambda part: jnp.asarray(part, jnp.int32), action)
    return actions.encode_action(action, config)

  return script


def _wander(
  key: types.Key, state: rules.State, player: types.Array, config: _Config
) -> rules.Action:
  """Goes forward, and turns at random and where it is blocked."""
  # One draw for all; see `maps.make_map`.
  turn_draw, side_draw, tag_draw = jax.random.uniform(key, (3,))
  step = jnp.asarray(rules.steps_in_cells(config))[state.direction[player]]
  tiles = state.map.tiles.reshape(-1)
  is_blocked = ~maps.is_walkable(tiles[state.cell[player] + step])
  turns = is_blocked | (turn_draw < _WANDERER_TURN)
  side = 1 + maps.draw_below(len(rules.TURNS) - 1, side_draw)
  return rules.Action(
    move=jnp.asarray(rules.MOVES.index('forward')),
    turn=jnp.where(turns, side, 0),
    tag=tag_draw < _WANDERER_TAG,
  )


def _attack(
  key: types.Key, state: rules.State, player: types.Array, config: _Config
) -> rules.Action:
  """Only fetches the opponents' flag."""
  return _go(key, state, player, _attack_target(state, player, config), config)


def _play_tactics(
  key: types.Key, state: rules.State, player: types.Array, config: _Config
) -> rules.Action:
  """Tags an opponent if possible, else goes to the target of its role."""
  # A team of one has no guard.
  is_guard = (player % config.team_size) % 2 == 1
  target = jnp.where(
    is_guard & ~rules.carries_flag(state, config)[player],
    _guard_target(state, player, config),
    _attack_target(state, player, config),
  )
  action = _go(key, state, player, target, config)
  turn, can_tag = _find_opponent(state, player, config)
  return rules.Action(
    move=jnp.where(can_tag, 0, action.move),
    turn=jnp.where(can_tag, turn, action.turn),
    tag=can_tag,
  )


def _attack_target(
  state: rules.State, player: types.Array, config: _Config
) -> types.Array:
  """Returns the own stand if carrying the flag, else the enemy flag's cell."""
  team = player // config.team_size
  return jnp.where(
    rules.carries_flag(state, config)[player],
    state.map.stands[team],
    state.flag_cell[1 - team],
  )


def _guard_target(
  state: rules.State, player: types.Array, config: _Config
) -> types.Array:
  """Returns the cell to which a guard goes.

  Its own flag if that is not on its stand, else the opponent nearest to the
  flag if within `_ALARM`, else a cell near the stand.
  """
  team = player // config.team_size
  here, home = state.cell[player], state.map.stands[team]
  flag = state.flag_cell[team]
  distance = _distance(state.cell, flag, config)
  is_opponent = jnp.asarray(rules.team_of_players(config)) != team
  distance = jnp.where(
    is_opponent & (state.waiting == 0), distance, state.map.tiles.size
  )
  nearest = jnp.argmin(distance)
  is_near = _distance(here, home, config) <= _STRAY
  # Guards that idle where they are do not crowd on one cell.
  idle = jnp.where(is_near, here, home)
  hunted = jnp.where(distance[nearest] <= _ALARM, state.cell[nearest], idle)
  return jnp.where(rules.is_home(state)[team], hunted, flag)


def _distance(
  cell: types.Array, other: types.Array, config: _Config
) -> types.Array:
  """Returns the number of steps between cells, ignoring walls."""
  rows = jnp.abs(cell // config.width - other // config.width)
  return rows + jnp.abs(cell % config.width - other % config.width)


def _find_opponent(
  state: rules.State, player: types.Array, config: _Config
) -> tuple[types.Array, types.Array]:
  """Finds a turn that brings an opponent into the line of fire.

  Returns:
    The turn, an index into `rules.TURNS`, and whether the player can tag after
    it, both [].
  """
  can_fire = (state.waiting[player] == 0) & (state.cooldown[player] == 0)
  turns = jnp.asarray(rules.TURN_QUARTERS)

  def is_aimed(quarters: types.Array) -> types.Array:
    direction = (state.direction + quarters) % 4
    return jnp.any(rules.aim(state, direction, config)[player])

  are_aimed = jax.vmap(is_aimed)(turns)  # [3], 'none' first.
  return jnp.argmax(are_aimed), can_fire & jnp.any(are_aimed)


def _go(
  key: types.Key,
  state: rules.State,
  player: types.Array,
  target: types.Array,
  config: _Config,
) -> rules.Action:
  """Takes a step of a shortest path to the cell `target` and turns that way."""
  draws = jax.random.uniform(key, (6,))
  heading = _first_heading(draws[2:], state, player, target, config)
  arrived = state.cell[player] == target
  is_random = draws[0] < _NOISE
  heading = jnp.where(is_random, maps.draw_below(4, draws[1]), heading)
  quarters = (heading - state.direction[player]) % 4
  # A turn is at most a quarter; until it faces its heading, the player walks
  # sideways or backwards.
  turn = jnp.where(quarters == 3, 1, jnp.where(quarters == 0, 0, 2))
  left_over = (quarters - jnp.asarray(rules.TURN_QUARTERS)[turn]) % 4
  move = jnp.asarray(_MOVE_OF_TURN)[left_over]
  return rules.Action(
    move=jnp.where(arrived & ~is_random, 0, move),
    turn=turn,
    tag=jnp.zeros_like(turn),
  )


def _first_heading(
  ties: types.Array,
  state: rules.State,
  player: types.Array,
  target: types.Array,
  config: _Config,
) -> types.Array:
  """Returns the first direction of a short path that avoids other players."""
  tiles, cell = state.map.tiles, state.cell[player]
  neighbours = cell + jnp.asarray(rules.steps_in_cells(config))
  _, distance = maps.flood(maps.is_walkable(tiles), target, neighbours)
  is_taken = jnp.any(neighbours[:, None] == state.cell[None], axis=1)
  # Ties, [4], are less than a step. A detour costs two steps, so a penalty of
  # three for occupied cells makes it worthwhile.
  return jnp.argmin(distance + ties + jnp.where(is_taken, 3, 0))
