"""Who sits where, so that each member has as many seats as any other.

Matchmaking draws players of a game by a density (see `population.matchmaking`).
Acting in batches needs the same shapes always: with `G` games of `P` players
each of `N` members gets exactly `G * P / N` seats, in a random order of games.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.population import population_config as config_lib

# Added to the logarithm of a density: taken only if nobody else is left.
_LAST_CHOICE = -1e6


def check_teams(
  teams: Sequence[int], config: config_lib.PopulationConfig
) -> None:
  """Raises a ValueError unless the players of a game are those of `config`.

  Args:
    teams: the team of each player.
    config: of the population.
  """
  num_players = len(teams)
  sizes = np.bincount(teams)
  if num_players != config.num_players or not (
    num_players == 1 or (len(sizes) == 2 and sizes[0] == sizes[1])
  ):
    raise ValueError(
      f'the game (teams {tuple(teams)}) must be of num_players'
      f' ({config.num_players}), alone or in two teams of the same size; choose'
      f' num_players={num_players} or another game.'
    )


def as_teams(seats: Any, teams: Sequence[int]) -> Any:
  """Returns seats [..., P] by team, [..., 2, P / 2].

  Args:
    seats: the member on each seat.
    teams: the team of each player.
  """
  order = np.argsort(teams, kind='stable')
  return seats[..., order].reshape(*seats.shape[:-1], 2, -1)


def seats_per_member(num_members: int, num_games: int, num_players: int) -> int:
  """Returns M, how many seats each member gets.

  Raises:
    ValueError: if seats cannot be shared out evenly.
  """
  num_seats = num_games * num_players
  if num_seats % num_members:
    step = num_members // math.gcd(num_members, num_players)
    raise ValueError(
      f'num_environments ({num_games} games of {num_players} players, so'
      f' {num_seats} seats) must give each of num_members ({num_members}) the'
      f' same number of seats; choose a multiple of {step} games.'
    )
  return num_seats // num_members


def draw_seats(
  key: types.Key,
  log_density: types.Array,
  num_games: int,
  num_players: int,
) -> types.Array:
  """Seats members at `G` games.

  The first player of a game is drawn from the seats that are left, the others
  in proportion to their density given the first; nobody sits twice in a game
  while there are others with seats left. So the last games are filled with who
  is left over.

  Args:
    key: key for the draws.
    log_density: [N, N], of member `j` to meet member `i`, up to a constant.
    num_games: G.
    num_players: P; `G * P` is a multiple of N.

  Returns:
    int32 [G, P], the member on each seat.
  """
  num_members = log_density.shape[0]
  share = seats_per_member(num_members, num_games, num_players)

  def draw_player(log_weights, carry, player_key):
    left, is_seated = carry
    log_weights = jnp.where(is_seated, _LAST_CHOICE, log_weights)
    member = jax.random.categorical(
      player_key, jnp.where(left > 0, log_weights, -jnp.inf)
    )
    chosen = jnp.arange(num_members) == member
    return (left - chosen, is_seated | chosen), member

  def draw_game(left, game_key):
    keys = jax.random.split(game_key, num_players + 1)
    nobody = jnp.zeros((num_members,), bool)
    carry, first = draw_player(
      jnp.log(left.astype(jnp.float32)), (left, nobody), keys[0]
    )
    log_weights = jnp.maximum(log_density[first], _LAST_CHOICE)
    (left, _), others = jax.lax.scan(
      lambda carry, key: draw_player(log_weights, carry, key),
      carry,
      keys[1:num_players],
    )
    members = jnp.concatenate([first[None], others])
    return left, jax.random.permutation(keys[-1], members)

  left = jnp.full((num_members,), share, jnp.int32)
  _, seats = jax.lax.scan(draw_game, left, jax.random.split(key, num_games))
  return seats.astype(jnp.int32)
