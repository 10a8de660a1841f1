"""Assigns seats in games such that each member has equally many.

Matchmaking samples the players of a game from a density (see
`population.matchmaking`). Batched acting needs the same shapes in every round:
each of `N` members gets exactly the same number of seats, in a random order of
games. Seats of opponents, which do not learn, are fixed.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import shapes, types

# Log density of players that are only chosen if no other is left.
_LAST_CHOICE = -1e6

# Marks the seats of members in `Seating.opponents`.
MEMBER = -1


class Seating(NamedTuple):
  """The seats of `G` games of `P` players; static.

  Attributes:
    num_members: N.
    teams: the team of each player, length P; any number of any size.
    opponents: int32 [G, P], the opponent on each seat, or `MEMBER`.
    num_own_team_games: the last so many games of a group have teams of copies
      of one member; in the others teams are mixed.
    num_groups: number of groups, `G / num_groups` games each, in which seats
      are drawn separately; see `in_groups`.
  """

  num_members: int
  teams: tuple[int, ...]
  opponents: types.NumpyArray
  num_own_team_games: int = 0
  num_groups: int = 1

  @property
  def num_games(self) -> int:
    """G, the number of games."""
    return self.opponents.shape[0]

  @property
  def num_players(self) -> int:
    """P, the number of players in a game."""
    return self.opponents.shape[1]

  @property
  def is_solo(self) -> bool:
    """Whether games have a single seat, so that members keep their games."""
    return self.num_players == 1

  @property
  def is_rated(self) -> bool:
    """Whether teams compete; members of a single team are judged by return."""
    return max(self.teams) > 0

  @property
  def team_size(self) -> int:
    """Number of seats of the smallest team."""
    return int(np.bincount(self.teams).min())

  @property
  def is_member(self) -> types.NumpyArray:
    """Whether a seat is a member's, bool [G, P]."""
    return self.opponents == MEMBER

  @property
  def seats_per_member(self) -> int:
    """M, the number of seats of each member."""
    return int(self.is_member.sum()) // self.num_members

  @property
  def group(self) -> 'Seating':
    """The seating of a group of games, all of which are alike."""
    num_games = self.num_games // self.num_groups
    return self._replace(opponents=self.opponents[:num_games], num_groups=1)


def make_seating(
  teams: Sequence[int],
  num_members: int,
  num_games: int,
  opponent_teams: Sequence[Sequence[int]] = (),
  opponent_share: float = 0.5,
  own_team_fraction: float = 0.0,
) -> Seating:
  """Divides the seats of games among members and opponents.

  In a fraction of the games, one team consists of copies of an opponent.
  Opponents take turns, and each takes its teams in turn. In another fraction,
  each team of members consists of copies of one member.

  Args:
    teams: the team of each player.
    num_members: N.
    num_games: G.
    opponent_teams: the teams that each player that does not learn can take.
    opponent_share: fraction of the games in which one of them plays.
    own_team_fraction: fraction of the games with teams of copies of a member.

  Raises:
    ValueError: if there are opponents but no second team, or seats cannot be
      divided evenly.
  """
  opponents = np.full((num_games, len(teams)), MEMBER, np.int32)
  if opponent_teams:
    if max(teams) == 0:
      raise ValueError(
        f'opponents ({len(opponent_teams)}) must be 0 in a game of one team;'
        ' leave them out, or choose a game of two teams.'
      )
    for game in range(round(opponent_share * num_games)):
      turn, opponent = divmod(game, len(opponent_teams))
      sides = opponent_teams[opponent]
      side = sides[-1 - turn % len(sides)]
      opponents[game, np.equal(teams, side)] = opponent
  num_own_team_games = 0
  if len(teams) > 1:
    num_own_team_games = round(own_team_fraction * num_games)
  seating = Seating(num_members, tuple(teams), opponents, num_own_team_games)
  for unit, shared in _shared_seats(seating):
    _check_shares(shared, num_members, unit)
  return seating


def in_groups(seating: Seating, num_groups: int) -> Seating | None:
  """Divides games into groups, in each of which members have equal shares.

  A device can play a group without the others, since all rows of its games are
  in it.

  Args:
    seating: the seats of all games.
    num_groups: D.

  Returns:
    The seating with groups; None if they cannot be alike, or if opponents play,
    which act on all of their seats at once.
  """
  counts = seating.num_games, seating.num_own_team_games
  if not seating.is_member.all() or any(count % num_groups for count in counts):
    return None
  made = seating._replace(
    num_own_team_games=seating.num_own_team_games // num_groups,
    num_groups=num_groups,
  )
  shares = [shared.size for _, shared in _shared_seats(made.group)]
  is_even = all(share % seating.num_members == 0 for share in shares)
  return made if is_even else None


def is_grouped(seats: types.NumpyArray, seating: Seating) -> bool:
  """Returns whether each member has its share of the seats in each group.

  Args:
    seats: int [G, P], the player on each seat.
    seating: with groups.
  """
  share = seating.group.seats_per_member
  groups = seats.reshape(seating.num_groups, -1)
  members = np.arange(seating.num_members)
  return bool(np.all((groups[..., None] == members).sum(axis=1) == share))


def make_evaluation_seating(
  teams: Sequence[int],
  num_members: int,
  num_games: int,
  opponent_teams: Sequence[Sequence[int]] = (),
) -> tuple[Seating, types.NumpyArray]:
  """Assigns seats for an evaluation.

  In a game of one seat each member plays alone. With opponents, a team of
  copies of it plays against each of them, in each team in turn that leaves the
  opponent teams that it can take. In a game of one team, each member takes each
  seat in turn beside copies of each member. Otherwise it plays with copies of
  itself on all seats.

  Args:
    teams: the team of each player.
    num_members: N.
    num_games: minimum number of games of each member, or of each pair.
    opponent_teams: the teams that each of `K` opponents can take.

  Returns:
    The seating, and the players on its seats, int32 [G, P]: members from zero,
    opponents from N on.

  Raises:
    ValueError: if an opponent cannot take the place of all other teams.
  """
  everybody = np.full(len(teams), True)
  rows = []
  for member in range(num_members):
    # For each pair, whose seats the member has in turn, and who the others.
    pairs = [
      (_opposing_seats(teams, own), num_members + opponent)
      for opponent, own in enumerate(opponent_teams)
    ]
    if len(teams) > max(teams) + 1 == 1:
      each = np.eye(len(teams), dtype=bool)
      pairs = [(each, other) for other in range(num_members)]
    pairs = pairs or [(everybody[None], member)]
    num_cycles = -(-num_games // min(len(masks) for masks, _ in pairs))
    rows += num_cycles * [
      np.where(is_member, member, other)
      for masks, other in pairs
      for is_member in masks
    ]
  seats = np.stack(rows).astype(np.int32)
  return from_seats(seats, num_members, teams), seats


def _opposing_seats(
  teams: Sequence[int], opponent_teams: Sequence[int]
) -> types.NumpyArray:
  """Returns the seats, bool [K, P], of teams that leave an opponent its own."""
  every = range(max(teams) + 1)
  masks = [
    np.equal(teams, team)
    for team in every
    if {*every} - {*opponent_teams} <= {team}
  ]
  if not masks:
    raise ValueError(
      f'opponent_teams ({tuple(opponent_teams)}) must leave a member one team'
      f' of the {len(every)} of the game; choose an opponent of more roles.'
    )
  return np.stack(masks)


def from_seats(
  seats: types.NumpyArray, num_members: int, teams: Sequence[int]
) -> Seating:
  """Returns the seating of games with the given seats.

  Args:
    seats: int32 [G, P], the player on each seat: members from zero, opponents
      from N on.
    num_members: N.
    teams: the team of each player.

  Raises:
    ValueError: if members do not have the same number of seats.
  """
  counts = np.bincount(seats[seats < num_members], minlength=num_members)
  if len(set(counts)) != 1:
    raise ValueError(
      f'seats must give each of the {num_members} members the same number, not'
      f' {counts.tolist()}; choose e.g. population.tournament.round_robin.'
    )
  opponents = np.where(seats < num_members, MEMBER, seats - num_members)
  return Seating(num_members, tuple(teams), opponents.astype(np.int32))


def fill(
  games: types.NumpyArray, places: types.NumpyArray
) -> Iterator[tuple[types.NumpyArray, types.NumpyArray]]:
  """Deals games out in batches that can be played by what `places` compiled.

  Args:
    games: int32 [K, P], the player on each seat.
    places: int32 [G, P], of which each batch has the same seats in any order.

  Yields:
    The indices of some games, int [B]; and the seats of a batch, int32 [G, P],
    of which these games are the first. Whoever has seats left has the others.

  Raises:
    ValueError: if a game has more seats of a player than `places`.
  """
  size = max(games.max(), places.max()) + 1
  counts = np.stack([np.bincount(game, minlength=size) for game in games])
  waiting: types.NumpyArray = np.arange(len(games))
  while waiting.size:
    left = np.bincount(places.reshape(-1), minlength=size)
    chosen: list[int] = []
    for game in waiting.tolist():
      if np.all(counts[game] <= left):
        chosen.append(game)
        left -= counts[game]
    if not chosen:
      raise ValueError(
        f'seats {games[waiting[0]].tolist()} of a game must be at most those of'
        f' each player in a batch, {left.tolist()}; choose a larger batch.'
      )
    others = np.repeat(np.arange(size), left).reshape(-1, games.shape[1])
    yield np.array(chosen), np.concatenate([games[chosen], others])
    waiting = np.setdiff1d(waiting, chosen)


def draw_seats(
  key: types.Key, log_density: types.Array, seating: Seating
) -> types.Array:
  """Samples the members on the seats of `G` games.

  The first member of a game is sampled in proportion to its remaining seats,
  the others in proportion to their density given the first. A member has two
  seats in a game only if no other has seats left, so the last games take the
  remaining members. In games of one seat, each member takes the next `M` games.
  Games with teams of copies of one member are drawn likewise, with a seat for
  each team; members have equally many teams of each size. Seats are drawn in
  random order, so that members play all roles equally often on average. Groups
  of games are drawn independently.

  Args:
    key: random key.
    log_density: float32 [N, N], of member `j` meeting member `i`, up to a
      constant.
    seating: the seats of members.

  Returns:
    int32 [G, P], the player on each seat: members from zero, opponents from N.

  Raises:
    ValueError: if the density is not that of this number of members.
  """
  num_members = str(seating.num_members)
  shapes.check(
    'draw_seats', log_density=(log_density, f'{num_members} {num_members}')
  )
  if seating.is_solo:
    members = jnp.arange(seating.num_members, dtype=jnp.int32)
    return jnp.repeat(members, seating.seats_per_member)[:, None]
  if seating.num_groups > 1:
    draw = functools.partial(
      draw_seats, log_density=log_density, seating=seating.group
    )
    groups = jax.vmap(draw)(jax.random.split(key, seating.num_groups))
    return groups.reshape(seating.num_games, seating.num_players)
  if not seating.num_own_team_games:
    return _draw_seats(key, log_density, seating)
  mixed, own = _split(seating)
  mixed_key, own_key = jax.random.split(key)
  kinds = np.unique(np.bincount(seating.teams), return_inverse=True)[1]
  teams = _draw_seats(own_key, log_density, own, kinds)
  seats = teams[:, jnp.asarray(seating.teams)]
  if not mixed.num_games:
    return seats
  mixed_seats = _draw_seats(mixed_key, log_density, mixed)
  return jnp.concatenate([mixed_seats, seats])


def _shared_seats(
  seating: Seating,
) -> list[tuple[str, types.NumpyArray]]:
  """Returns the opponents on seats of which members have equal shares.

  Those of mixed games, and of own teams by their size; each with what a seat
  stands for.
  """
  mixed, own = _split(seating)
  sizes = np.bincount(seating.teams)
  kinds = sorted(set(sizes.tolist()))
  return [
    ('players', mixed.opponents),
    *(
      (
        'own teams' if len(kinds) == 1 else f'own teams of {size}',
        own.opponents[:, sizes == size],
      )
      for size in kinds
    ),
  ]


def _split(seating: Seating) -> tuple[Seating, Seating]:
  """Returns the seatings of mixed games, and of those with own teams.

  The latter have a seat for each team.
  """
  num_mixed = seating.num_games - seating.num_own_team_games
  num_teams = max(seating.teams) + 1
  first_seats = [seating.teams.index(team) for team in range(num_teams)]
  return (
    Seating(seating.num_members, seating.teams, seating.opponents[:num_mixed]),
    Seating(
      seating.num_members,
      tuple(range(num_teams)),
      seating.opponents[num_mixed:, first_seats],
    ),
  )


def _draw_seats(
  key: types.Key,
  log_density: types.Array,
  seating: Seating,
  kinds: types.NumpyArray | None = None,
) -> types.Array:
  """Samples the members on the seats of games that are all mixed.

  Args:
    key: random key.
    log_density: see `draw_seats`.
    seating: the seats of members.
    kinds: int [P], the kind of each seat, of which each member has the same
      number; None for seats of one kind.
  """
  num_members, num_players = seating.num_members, seating.num_players
  kinds = np.zeros(num_players, int) if kinds is None else kinds
  shares = [
    seating.is_member[:, kinds == kind].sum() // num_members
    for kind in range(max(kinds) + 1)
  ]

  def draw_player(log_weights: Any, carry: Any, inputs: Any) -> Any:
    player_key, is_open, kind = inputs
    left, is_seated = carry  # [num_kinds, N], [N]
    log_weights = jnp.where(is_seated, _LAST_CHOICE, log_weights)
    member = jax.random.categorical(
      player_key, jnp.where(left[kind] > 0, log_weights, -jnp.inf)
    )
    # A seat of an opponent is drawn, too, since shapes are static, but takes
    # none of the member's seats and is overwritten in the end.
    chosen = (jnp.arange(num_members) == member) & is_open
    return (
      left.at[kind].add(-chosen.astype(jnp.int32)),
      is_seated | chosen,
    ), member

  def draw_game(left: Any, inputs: Any) -> Any:
    game_key, is_open = inputs
    keys = jax.random.split(game_key, num_players + 1)
    # Seats in random order, those of members first.
    order = jnp.argsort(jax.random.uniform(keys[-1], (num_players,)))
    order = order[jnp.argsort(~is_open[order], stable=True)]
    kind = jnp.asarray(kinds)[order]
    nobody = jnp.zeros((num_members,), bool)
    carry, first = draw_player(
      jnp.log(left[kind[0]].astype(jnp.float32)),
      (left, nobody),
      (keys[0], True, kind[0]),
    )
    # With a tiny deviation, the density of a member that is not seated yet
    # could fall below that of a last choice.
    log_weights = jnp.maximum(log_density[first], _LAST_CHOICE)
    (left, _), others = jax.lax.scan(
      lambda carry, inputs: draw_player(log_weights, carry, inputs),
      carry,
      (keys[1:num_players], is_open[order[1:]], kind[1:]),
    )
    members = jnp.concatenate([first[None], others]).astype(jnp.int32)
    return left, jnp.zeros_like(members).at[order].set(members)

  left = jnp.tile(jnp.array(shares, jnp.int32)[:, None], (1, num_members))
  _, seats = jax.lax.scan(
    draw_game,
    left,
    (jax.random.split(key, seating.num_games), jnp.asarray(seating.is_member)),
  )
  return jnp.where(
    jnp.asarray(seating.is_member), seats, num_members + seating.opponents
  ).astype(jnp.int32)


def _check_shares(
  opponents: types.NumpyArray, num_members: int, unit: str
) -> None:
  """Raises a ValueError unless each member gets the same number of seats."""
  num_games, num_players = opponents.shape
  num_seats = int((opponents == MEMBER).sum())
  if num_seats % num_members:
    step = num_members // math.gcd(num_members, num_players)
    raise ValueError(
      f'num_environments ({num_games} games of {num_players} {unit}, so'
      f' {num_seats} seats) must give each of num_members ({num_members}) the'
      f' same number of seats; choose a multiple of {step} such games.'
    )
