"""The 'features' observation: a float32 vector for each player.

First come the `CHANNELS` of the player's view: for each channel, one entry per
cell, 1 where that thing is; pads count as walls. Then come the `SCALARS`:
positions of flags and stands relative to the player, as fractions of the longer
side of the map, and the states of flags, player and game. Without `compass`,
positions outside the view are 0. The view of a player that waits on its pad is
empty. With `cue_steps`, a last scalar is `rules.cue`.
"""

from typing import TypeAlias

import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments.capture_the_flag import game_config as config_lib
from ftwax.environments.capture_the_flag import maps, rules, views

_Config: TypeAlias = config_lib.CaptureTheFlagConfig

CHANNELS = (
  'wall',
  'teammates',
  'opponents',
  'own_flag',
  'enemy_flag',
  'own_stand',
  'enemy_stand',
)

SCALARS = (
  'own_flag_ahead',
  'enemy_flag_ahead',
  'own_stand_ahead',
  'enemy_stand_ahead',
  'own_flag_right',
  'enemy_flag_right',
  'own_stand_right',
  'enemy_stand_right',
  'own_flag_is_home',
  'enemy_flag_is_home',
  'own_flag_is_carried',
  'enemy_flag_is_carried',
  'i_carry_the_flag',
  'i_can_tag',
  'time_i_wait',
  'time_left',
  'lead',
)

# The lead, in captures, at which its feature is tanh(1), about 0.76.
LEAD_SCALE = 3.0


def scalar_names(config: _Config) -> tuple[str, ...]:
  """Returns the names of the scalars of a game."""
  return (*SCALARS, 'cue') if config.cue_steps else SCALARS


def num_features(config: _Config) -> int:
  """Returns the length of the vector."""
  return len(CHANNELS) * config.view_size**2 + len(scalar_names(config))


def observe(state: rules.State, config: _Config) -> types.Array:
  """Returns the observation of each player, float32 [P, num_features]."""
  things = views.locate(state, config)
  parts = _channels(state, things, config)
  parts += scalars(state, things, things.view_cell[:, -4:] >= 0, config)
  return jnp.concatenate([part.astype(jnp.float32) for part in parts], axis=1)


def _channels(
  state: rules.State, things: views.Things, config: _Config
) -> list[types.Array]:
  """Returns bool [P, V * V] for each channel of a view of V x V cells."""
  tiles = views.tiles_in_view(state, config)
  # Flags and stands are always there; players are not while they wait.
  players = (state.waiting == 0)[views.others(config)]
  present = jnp.pad(players, ((0, 0), (0, 4)), constant_values=True)
  is_active = (state.waiting == 0)[:, None]
  index = jnp.where(present & is_active, things.view_cell, -1)
  cells = np.arange(config.view_size**2)
  is_there = index[:, :, None] == cells[None, None]  # [P, K, V * V]
  num_mates = config.team_size - 1
  return [
    ((tiles == maps.WALL) | (tiles == maps.PAD)) & is_active,
    maps.any_along(is_there[:, :num_mates], 1),
    maps.any_along(is_there[:, num_mates:-4], 1),
    *jnp.unstack(is_there[:, -4:], axis=1),
  ]


def scalars(
  state: rules.State,
  things: views.Things,
  in_view: types.Array,
  config: _Config,
) -> list[types.Array]:
  """Returns the scalars of each player, [P, 1] or several at a time.

  Args:
    state: state of the game.
    things: from `views.locate`.
    in_view: bool [P, 4], whether each player sees the flags and stands, for
      games without a compass.
    config: config of the game.
  """
  teams = rules.team_of_players(config)
  both = np.stack([teams, 1 - teams], axis=1)  # Own, then opponents'.
  lead = (state.score[teams] - state.score[1 - teams]).astype(jnp.float32)
  time_left = 1 - state.num_steps.astype(jnp.float32) / config.num_steps
  # Flags and stands are the last four things.
  side = max(config.height, config.width)
  offset = things.offset[:, :, -4:] / side
  if not config.compass:
    # As in the view itself, nothing is visible to a waiting player.
    in_view &= (state.waiting == 0)[:, None]
    offset = jnp.where(in_view[:, None], offset, 0)
  flags = jnp.concatenate([rules.is_home(state), state.carrier != rules.NOBODY])
  flags = flags[np.concatenate([both, both + 2], axis=1)]
  singles = [
    rules.carries_flag(state, config),
    (state.cooldown == 0) & (state.waiting == 0),
    state.waiting / config.respawn_period,
    jnp.broadcast_to(time_left, lead.shape),
    jnp.tanh(lead / LEAD_SCALE),
  ]
  if config.cue_steps:
    singles.append(jnp.broadcast_to(rules.cue(state), lead.shape))
  parts = [offset.reshape(config.num_players, -1), flags]
  return parts + [single[:, None] for single in singles]
