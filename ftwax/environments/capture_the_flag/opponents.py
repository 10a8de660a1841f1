"""Scripted players of three strengths, which anchor ratings.

A script is a pure function of a key, the state of the game and the number of a
player. It sees the whole map, which learners do not, and never looks ahead.

- 'wanderer' walks about, turning where it cannot go on, tags at random and
  carries a flag home only by luck.
- 'attacker' takes the shortest way to the opponents' flag and back home, and
  never tags.
- 'tactician' tags whoever it can reach with a turn; every second player of a
  team guards the own flag and hunts whoever carries it, the others attack.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments.capture_the_flag import actions, maps, rules
from ftwax.environments.capture_the_flag import game_config as config_lib

STRENGTHS = ('wanderer', 'attacker', 'tactician')

# (key, state, player) -> the player's action in the form that the game takes.
Script = Callable[[types.Key, rules.State, types.Array], types.ArrayTree]

# Chance of a random step, without which two players who block each other on
# their shortest ways would stand there for ever.
_NOISE = 0.1

# Chance that a wanderer turns, or tags, in a step.
_WANDERER_TURN = 0.2
_WANDERER_TAG = 0.2

# How far from its flag an opponent calls a guard out, and how far from it a
# guard without work strays, in cells.
_ALARM = 6
_STRAY = 2

# The move that goes in a direction, by quarter turns to the right of ahead.
_MOVE_OF_TURN = np.array([1, 4, 2, 3], np.int32)


def make_script(
  strength: str, config: config_lib.CaptureTheFlagConfig
) -> Script:
  """Returns the script of that strength.

  Args:
    strength: one of `STRENGTHS`.
    config: of the game that is played.

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

  def script(key, state, player):
    action = scripts[strength](key, state, player, config)
    action = jax.tree.map(lambda part: jnp.asarray(part, jnp.int32), action)
    return actions.encode_action(action, config)

  return script


def play_all(
  script: Script, config: config_lib.CaptureTheFlagConfig
) -> Callable[[types.Key, rules.State], types.ArrayTree]:
  """Returns a function of (key, state) that plays every seat, actions [P]."""

  def play(key, state):
    keys = jax.random.split(key, config.num_players)
    players = jnp.arange(config.num_players)
    return jax.vmap(script, in_axes=(0, None, 0))(keys, state, players)

  return play


def _wander(key, state, player, config):
  """Goes ahead, or turns at random and where the way is blocked."""
  choice_key, side_key, tag_key = jax.random.split(key, 3)
  step = jnp.asarray(rules.steps_in_cells(config))[state.direction[player]]
  tiles = state.map.tiles.reshape(-1)
  is_blocked = ~maps.is_walkable(tiles[state.cell[player] + step])
  turns = is_blocked | jax.random.bernoulli(choice_key, _WANDERER_TURN)
  side = jax.random.randint(side_key, (), 1, len(rules.TURNS))
  return rules.Action(
    move=jnp.asarray(rules.MOVES.index('forward')),
    turn=jnp.where(turns, side, 0),
    tag=jax.random.bernoulli(tag_key, _WANDERER_TAG),
  )


def _attack(key, state, player, config):
  """Fetches the opponents' flag."""
  return _go(key, state, player, _attack_target(state, player, config), config)


def _play_tactics(key, state, player, config):
  """Tags if it can, else goes where its role sends it."""
  target = jnp.where(
    _is_guard(player, config) & ~rules.carries_flag(state, config)[player],
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


def _is_guard(player, config):
  """Of each team every second player is a guard, none in a team of one."""
  return (player % config.team_size) % 2 == 1


def _attack_target(state, player, config):
  """Returns the cell an attacker heads for."""
  team = player // config.team_size
  return jnp.where(
    rules.carries_flag(state, config)[player],
    state.map.stands[team],
    state.flag_cell[1 - team],
  )


def _guard_target(state, player, config):
  """Returns the cell a guard heads for, its own if it has nothing to do."""
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
  idle = jnp.where(is_near, here, home)
  hunted = jnp.where(distance[nearest] <= _ALARM, state.cell[nearest], idle)
  return jnp.where(rules.is_home(state)[team], hunted, flag)


def _distance(cell, other, config):
  """Returns the distance without walls."""
  rows = jnp.abs(cell // config.width - other // config.width)
  return rows + jnp.abs(cell % config.width - other % config.width)


def _find_opponent(state, player, config):
  """Returns the turn that brings an opponent ahead and in range, if one does.

  Returns:
    The turn, and whether the player can then tag, both [].
  """
  can_fire = (state.waiting[player] == 0) & (state.cooldown[player] == 0)
  turns = jnp.asarray(rules.TURN_QUARTERS)

  def is_aimed(quarters):
    direction = (state.direction + quarters) % 4
    return jnp.any(rules.aim(state, direction, config)[player])

  are_aimed = jax.vmap(is_aimed)(turns)  # Not turning comes first.
  return jnp.argmax(are_aimed), can_fire & jnp.any(are_aimed)


def _go(key, state, player, target, config):
  """Takes one step of a shortest way to the cell `target`, looking ahead."""
  noise_key, heading_key, tie_key = jax.random.split(key, 3)
  heading = _first_heading(tie_key, state, player, target, config)
  arrived = state.cell[player] == target
  is_random = jax.random.bernoulli(noise_key, _NOISE)
  heading = jnp.where(
    is_random, jax.random.randint(heading_key, (), 0, 4), heading
  )
  quarters = (heading - state.direction[player]) % 4
  # A player turns by a quarter at most, and walks aside until it looks ahead.
  turn = jnp.where(quarters == 3, 1, jnp.where(quarters == 0, 0, 2))
  left_over = (quarters - jnp.asarray(rules.TURN_QUARTERS)[turn]) % 4
  move = jnp.asarray(_MOVE_OF_TURN)[left_over]
  return rules.Action(
    move=jnp.where(arrived & ~is_random, 0, move),
    turn=turn,
    tag=jnp.zeros_like(turn),
  )


def _first_heading(key, state, player, target, config):
  """Returns the direction of a shortest way, around whoever stands there."""
  tiles, cell = state.map.tiles, state.cell[player]
  neighbours = cell + jnp.asarray(rules.steps_in_cells(config))
  distance = maps.flood(maps.is_walkable(tiles), target)
  distance = distance.reshape(-1)[neighbours]
  is_taken = jnp.any(neighbours[:, None] == state.cell[None], axis=1)
  # Ties are broken by less than a step; a way around costs two steps more,
  # so that three make it worth while.
  ties = jax.random.uniform(key, (4,))
  return jnp.argmin(distance + ties + jnp.where(is_taken, 3, 0))
