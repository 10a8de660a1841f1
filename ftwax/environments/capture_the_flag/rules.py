"""State and rules of capture the flag.

All players act simultaneously, so no team and no seat has an advantage. A step
has three phases:

1. Players turn, then move. A cell holds one player. A player stays where it is
   if its target is a wall or a pad, was occupied before the step, or is the
   target of another player too.
2. Players that tag and are not cooling down hit the nearest opponent straight
   ahead, if it is in range and no wall is in between. A player that is hit
   drops the flag it carries, goes to its pad and waits there for
   `respawn_period` steps.
3. A player on the opponents' flag picks it up. A player on its own flag, where
   that was dropped, returns it to its stand. A player that carries the
   opponents' flag onto its own stand, while its own flag is there, captures it:
   its team scores one point and the flag returns to its stand. A dropped flag
   returns by itself after `flag_return_period` steps.

With `cue_steps`, half of the games are reversed. There a player must tag in the
step in which it captures a flag, and in the others it must not; otherwise the
opponents score the point. Only the start of a game tells.
"""

import functools
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy import typing as npt

from ftwax import types
from ftwax.environments.capture_the_flag import game_config as config_lib
from ftwax.environments.capture_the_flag import maps

_Config: TypeAlias = config_lib.CaptureTheFlagConfig

NOBODY = -1

# Choices of the parts of an action, `tag` aside.
MOVES = ('stay', 'forward', 'back', 'left', 'right')
TURNS = ('none', 'left', 'right')

# Quarter turns to the right for each choice; 0 for 'stay' and 'none'.
_MOVE_QUARTERS = np.array([0, 0, 2, 3, 1], np.int32)
TURN_QUARTERS = np.array([0, 3, 1], np.int32)


class Action(NamedTuple):
  """The actions of all players.

  Attributes:
    move: int32 [P], index into `MOVES`, relative to the direction after the
      turn.
    turn: int32 [P], index into `TURNS`.
    tag: int32 [P], 1 to tag, 0 otherwise.
  """

  move: types.Array
  turn: types.Array
  tag: types.Array


class State(NamedTuple):
  """State of a game of `P` players.

  Attributes:
    map: walls, stands and pads.
    cell: int32 [P], the cell of each player; its pad while it waits.
    direction: int32 [P], the direction that each player faces; see
      `maps.STEPS`.
    waiting: int32 [P], remaining steps that each player waits; 0 while it
      plays.
    cooldown: int32 [P], steps until each player can tag again.
    carrier: int32 [2], the player that carries each team's flag, or `NOBODY`.
    flag_cell: int32 [2], the cell of each team's flag.
    flag_timer: int32 [2], steps until each team's flag, if dropped, returns.
    score: int32 [2], number of captures by each team.
    num_steps: int32 [], number of steps played.
    is_reversed: bool [], whether players must tag as they capture a flag.
    cue_steps: int32 [], number of steps that tell it.
  """

  map: maps.Map
  cell: types.Array
  direction: types.Array
  waiting: types.Array
  cooldown: types.Array
  carrier: types.Array
  flag_cell: types.Array
  flag_timer: types.Array
  score: types.Array
  num_steps: types.Array
  is_reversed: types.Array
  cue_steps: types.Array


class Deeds(NamedTuple):
  """The deeds of a step, from which `events` counts the reward.

  Attributes:
    tagged: bool [P, P], whether the first player tagged the second.
    had_flag: bool [P], whether each player carried the flag before the step.
    picked_up: bool [P], whether each player picked up the opponents' flag.
    returned: bool [P], whether each player returned its own flag.
    captured: int32 [P], 1 for each player that captured the opponents' flag, -1
      if the opponents scored for that, and 0 for all others.
  """

  tagged: types.Array
  had_flag: types.Array
  picked_up: types.Array
  returned: types.Array
  captured: types.Array


def team_of_players(config: _Config) -> npt.NDArray[np.int32]:
  """Returns the team of each player, int32 [P]."""
  return np.asarray(config.teams, np.int32)


def start(key: types.Key, config: _Config) -> State:
  """Draws a map and places players on their pads and flags on their stands."""
  game_map = maps.make_map(key, config)
  num_players = config.num_players
  is_reversed, cue_steps = jnp.bool_(False), jnp.int32(config.cue_steps)
  if config.cue_steps:
    is_reversed = jax.random.bernoulli(jax.random.fold_in(key, 1))
  if config.max_cue_steps is not None:
    cue_steps = jax.random.randint(
      jax.random.fold_in(key, 2),
      (),
      config.cue_steps,
      config.max_cue_steps + 1,
    )
  return State(
    map=game_map,
    cell=game_map.pads,
    direction=jnp.asarray(start_direction(config)),
    waiting=jnp.zeros(num_players, jnp.int32),
    cooldown=jnp.zeros(num_players, jnp.int32),
    carrier=jnp.full(2, NOBODY, jnp.int32),
    flag_cell=game_map.stands,
    flag_timer=jnp.zeros(2, jnp.int32),
    score=jnp.zeros(2, jnp.int32),
    num_steps=jnp.int32(0),
    is_reversed=is_reversed,
    cue_steps=cue_steps,
  )


def start_direction(config: _Config) -> npt.NDArray[np.int32]:
  """Returns the inward direction of each player on its pad, int32 [P]."""
  return np.where(team_of_players(config) == 0, maps.EAST, maps.WEST).astype(
    np.int32
  )


def step(state: State, action: Action, config: _Config) -> tuple[State, Deeds]:
  """Plays one step.

  Args:
    state: state of a game that is not over.
    action: actions of all players; those of waiting players are ignored.
    config: sizes and rules.

  Returns:
    The next state, and the deeds of the step.
  """
  is_active = state.waiting == 0
  had_flag = carries_flag(state, config)
  state = _move(state, action, is_active, config)
  state, tagged = _tag(state, action, is_active, config)
  is_hit = maps.any_along(tagged, 0)
  # Flags fall where their carriers were hit, before these go to their pads.
  state = _drop_flags(state, is_hit, config)
  state = _send_to_pads(state, is_hit, config)
  state, picked_up, returned, captured = _touch_flags(
    state, is_active & ~is_hit, action.tag, config
  )
  state = state._replace(num_steps=state.num_steps + 1)
  return state, Deeds(tagged, had_flag, picked_up, returned, captured)


def is_over(state: State, config: _Config) -> types.Array:
  """Returns whether all steps of the game were played, bool []."""
  return state.num_steps >= config.num_steps


def cue(state: State) -> types.Array:
  """Returns -1 if the game is reversed, 1 if not, 0 if not told, int32 []."""
  is_told = state.num_steps < state.cue_steps
  return jnp.where(is_told, jnp.where(state.is_reversed, -1, 1), 0)


def outcome(state: State) -> types.Array:
  """Returns float32 [2]: 1 for the team ahead, -1 for the other, 0 if tied."""
  lead = jnp.sign(state.score[0] - state.score[1])
  return jnp.stack([lead, -lead]).astype(jnp.float32)


def carries_flag(state: State, config: _Config) -> types.Array:
  """Returns bool [P], whether each player carries the opponents' flag."""
  opponents = 1 - team_of_players(config)
  return state.carrier[opponents] == np.arange(config.num_players)


def is_home(state: State) -> types.Array:
  """Returns bool [2], whether each flag is on its stand."""
  return (state.carrier == NOBODY) & (state.flag_cell == state.map.stands)


def steps_in_cells(config: _Config) -> npt.NDArray[np.int32]:
  """Returns int32 [4], the change of the cell number in each direction."""
  return maps.STEPS @ np.array([config.width, 1], np.int32)


def _move(
  state: State, action: Action, is_active: types.Array, config: _Config
) -> State:
  """Turns and moves the players that are not waiting."""
  steps = jnp.asarray(steps_in_cells(config))
  turn = jnp.asarray(TURN_QUARTERS)[action.turn]
  direction = (state.direction + jnp.where(is_active, turn, 0)) % 4
  heading = (direction + jnp.asarray(_MOVE_QUARTERS)[action.move]) % 4
  wants = is_active & (action.move > 0)
  target = jnp.where(wants, state.cell + steps[heading], state.cell)
  # `target` is inside the grid, since players are never on its border.
  wants &= maps.is_walkable(state.map.tiles.reshape(-1)[target])
  same_target = target[:, None] == target[None, :]
  others = ~np.eye(config.num_players, dtype=bool)
  both_want = wants[:, None] & wants[None, :]
  contested = maps.any_along(same_target & both_want & others, 1)
  # Positions before the step, so players can neither swap nor follow closely.
  on_target = target[:, None] == state.cell[None, :]
  taken = maps.any_along(on_target & is_active[None, :] & others, 1)
  moves = wants & ~contested & ~taken
  return state._replace(
    cell=jnp.where(moves, target, state.cell), direction=direction
  )


def aim(state: State, direction: types.Array, config: _Config) -> types.Array:
  """Returns the opponent that a tag of each player would hit.

  Args:
    state: positions and walls.
    direction: int32 [P], the assumed direction of each player.
    config: sizes and rules.

  Returns:
    bool [P, P], whether the first player would tag the second.
  """
  teams = team_of_players(config)
  reach = np.arange(1, config.tag_range + 1)
  steps = jnp.asarray(steps_in_cells(config))[direction]
  ahead = state.cell[:, None] + steps[:, None] * reach[None]  # [P, range]
  tiles = state.map.tiles.reshape(-1)
  # Beyond the border, cell numbers continue in another row. The walls of the
  # border have blocked the way by then.
  is_clear = jnp.cumprod(
    (jnp.take(tiles, ahead, mode='clip') != maps.WALL).astype(jnp.int32), axis=1
  )
  can_be_hit = (state.waiting == 0)[None, :] & (teams[:, None] != teams[None])
  stands_there = (
    (ahead[:, :, None] == state.cell[None, None, :])
    & can_be_hit[:, None, :]
    & (is_clear > 0)[:, :, None]
  )  # [P, range, P]
  # The nearest player shields those behind it: only the first distance counts.
  num_until = jnp.cumsum(maps.any_along(stands_there, 2), axis=1)
  return maps.any_along(stands_there & (num_until == 1)[:, :, None], 1)


def _tag(
  state: State, action: Action, is_active: types.Array, config: _Config
) -> tuple[State, types.Array]:
  """Returns the state with new cooldowns, and the tags, bool [P, P]."""
  fires = is_active & (action.tag > 0) & (state.cooldown == 0)
  tagged = aim(state, state.direction, config) & fires[:, None]
  cooldown = jnp.where(
    fires, config.tag_cooldown, jnp.maximum(state.cooldown - 1, 0)
  )
  return state._replace(cooldown=cooldown), tagged


def _drop_flags(state: State, is_hit: types.Array, config: _Config) -> State:
  """Moves flags along with their carriers; carriers that were hit drop them."""
  is_carried = state.carrier != NOBODY
  # NOBODY becomes player 0, whose values are masked below.
  carrier = jnp.maximum(state.carrier, 0)
  is_dropped = is_carried & is_hit[carrier]
  return state._replace(
    carrier=jnp.where(is_dropped, NOBODY, state.carrier),
    flag_cell=jnp.where(is_carried, state.cell[carrier], state.flag_cell),
    flag_timer=jnp.where(
      is_dropped,
      config.flag_return_period,
      jnp.maximum(state.flag_timer - 1, 0),
    ),
  )


def _send_to_pads(state: State, is_hit: types.Array, config: _Config) -> State:
  """Puts players that were hit on their pads; decrements others' waiting."""
  return state._replace(
    cell=jnp.where(is_hit, state.map.pads, state.cell),
    direction=jnp.where(is_hit, start_direction(config), state.direction),
    cooldown=jnp.where(is_hit, 0, state.cooldown),
    waiting=jnp.where(
      is_hit, config.respawn_period, jnp.maximum(state.waiting - 1, 0)
    ),
  )


def _touch_flags(
  state: State, can_touch: types.Array, tags: types.Array, config: _Config
) -> tuple[State, types.Array, types.Array, types.Array]:
  """Lets players that were not hit pick up, return and capture flags.

  Returns the state, and what `Deeds` tells of flags that each player picked up,
  returned and captured.
  """
  players = np.arange(config.num_players)
  teams = team_of_players(config)
  stands = state.map.stands
  is_free = state.carrier == NOBODY
  on_enemy_flag = state.cell == state.flag_cell[1 - teams]
  picked_up = can_touch & on_enemy_flag & is_free[1 - teams]
  on_own_flag = state.cell == state.flag_cell[teams]
  returned = can_touch & on_own_flag & is_free[teams] & ~is_home(state)[teams]
  # `NOBODY` is less than any player.
  carrier = jnp.maximum(state.carrier, _who(picked_up, players, 1 - teams))
  # The timer of a flag on its stand may be 0 as well; that flag stays.
  goes_home = _any_by_team(returned, teams) | (
    is_free & (carrier == NOBODY) & (state.flag_timer == 0)
  )
  flag_cell = jnp.where(goes_home, stands, state.flag_cell)
  # After pick-ups and returns, so that a teammate's return in this step counts.
  # A flag that was just picked up is not at home.
  own_is_home = (carrier == NOBODY) & (flag_cell == stands)
  captured = (
    (carrier[1 - teams] == players)
    & (state.cell == stands[teams])
    & own_is_home[teams]
  )
  is_lost = _any_by_team(captured, 1 - teams)
  is_right: types.Array = jnp.bool_(True)
  if config.cue_steps:
    is_right = (tags > 0) == state.is_reversed
  points = _any_by_team(captured & is_right, teams).astype(jnp.int32)
  points += _any_by_team(captured & ~is_right, 1 - teams)
  state = state._replace(
    carrier=jnp.where(is_lost, NOBODY, carrier),
    flag_cell=jnp.where(is_lost, stands, flag_cell),
    score=state.score + points,
  )
  captured = captured * jnp.where(is_right, 1, -1)
  return state, picked_up, returned, captured


def _any_by_team(
  is_true: types.Array, teams: npt.NDArray[np.int32]
) -> types.Array:
  """Returns bool [2], whether `is_true` [P] holds for a player of each team."""
  by_team = teams[None, :] == np.arange(2)[:, None]
  return maps.any_along(is_true[None, :] & by_team, 1)


def _who(
  is_true: types.Array, players: npt.NDArray[Any], teams: npt.NDArray[np.int32]
) -> types.Array:
  """Returns a player per team with `is_true` [P], int32 [2], or `NOBODY`."""
  by_team = teams[None, :] == np.arange(2)[:, None]
  ids = jnp.where(is_true[None, :] & by_team, players[None, :], NOBODY)
  by_player = jnp.unstack(ids.astype(jnp.int32), axis=1)
  return functools.reduce(jnp.maximum, by_player)
