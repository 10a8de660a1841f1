"""The state of a population, and how games and episodes update it."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from ftwax import hyperparameters, shapes, types
from ftwax.population import payoff as payoff_lib
from ftwax.population import ratings as ratings_lib

INITIAL_RATING = 1000.0  # Elo points.


class Sizes(Protocol):
  """What the state needs of `population_config.PopulationConfig`."""

  @property
  def num_members(self) -> int:
    """N, number of members."""

  @property
  def num_returns(self) -> int:
    """Number of last returns that are kept of each member."""

  @property
  def k_factor(self) -> float:
    """Maximum change of a rating per game and seat, in Elo points."""


class PopulationState(NamedTuple):
  """State of a population of `N` members: everything that a checkpoint holds.

  Attributes:
    members: leaves [N, ...].
    ratings: float32 [N], Elo points.
    opponent_ratings: float32 [K], Elo points of players that do not learn.
    team_size: int32 [], players in the smallest team.
    payoff: results of members against each other.
    returns: float32 [N, num_returns], of the last episodes in a single-agent
      task, unordered.
    num_returns: int32 [N], number of returns recorded so far.
    games: int32 [N], games or episodes that each member has played.
    games_since_exploitation: int32 [N], those since its traits last changed.
    decided_games: int32 [N], those of the latter that had a winner; all
      episodes of a single-agent task.
    key: random key for the population's next draws.
    generation: int32 [], calls of `evolution.evolve` so far.
  """

  members: types.TrainingState
  ratings: types.Array
  opponent_ratings: types.Array
  team_size: types.Array
  payoff: payoff_lib.Payoff
  returns: types.Array
  num_returns: types.Array
  games: types.Array
  games_since_exploitation: types.Array
  decided_games: types.Array
  key: types.Key
  generation: types.Array

  @property
  def training(self) -> types.TrainingState:
    """The members, under the name that checkpoints use."""
    return self.members


def init(
  key: types.Key,
  learner_init: types.LearnerInit,
  config: Sizes,
  num_opponents: int = 0,
  team_size: int = 1,
) -> PopulationState:
  """Returns a population whose members are initialized independently."""
  key, members_key = jax.random.split(key)
  keys = jax.random.split(members_key, config.num_members)
  members = jax.vmap(learner_init)(keys)
  return from_members(members, key, config, num_opponents, team_size)


def from_members(
  members: types.TrainingState,
  key: types.Key,
  config: Sizes,
  num_opponents: int = 0,
  team_size: int = 1,
) -> PopulationState:
  """Returns a population of given members, leaves [N, ...], before any game."""
  num_members = config.num_members
  zeros = jnp.zeros((num_members,), jnp.int32)
  population = PopulationState(
    members=members,
    ratings=jnp.full((num_members,), INITIAL_RATING, jnp.float32),
    opponent_ratings=jnp.full((num_opponents,), INITIAL_RATING, jnp.float32),
    team_size=jnp.int32(team_size),
    payoff=payoff_lib.init(num_members),
    returns=jnp.zeros((num_members, config.num_returns)),
    num_returns=zeros,
    games=zeros,
    games_since_exploitation=zeros,
    decided_games=zeros,
    key=key,
    generation=jnp.int32(0),
  )
  check_size(population, config)
  return population


def check_size(population: PopulationState, config: Sizes) -> None:
  """Raises a ValueError unless `population` fits `config`, e.g. on a resume."""
  sizes = {leaf.shape[:1] for leaf in jax.tree.leaves(population.members)}
  sizes |= {population.ratings.shape}
  if sizes != {(config.num_members,)}:
    numbers = sorted(size[0] if size else 1 for size in sizes)
    raise ValueError(
      f'population (of {", ".join(map(str, numbers))} members) must have'
      f' num_members ({config.num_members}); resume with the num_members that'
      ' the run was started with, or start a new run.'
    )
  if population.returns.shape[1] != config.num_returns:
    raise ValueError(
      f'population (with {population.returns.shape[1]} returns a member) must'
      f' have num_returns ({config.num_returns}); resume with the num_returns'
      ' that the run was started with.'
    )


def record_games(
  population: PopulationState,
  seats: types.Array,
  outcomes: types.Array,
  is_played: types.Array,
  teams: Sequence[int],
  config: Sizes,
) -> PopulationState:
  """Records and rates `G` games, one after another.

  Args:
    population: the population before the games.
    seats: int32 [G, P], the player on each seat: members from zero, opponents
      from N on.
    outcomes: float32 [G, num_teams], the score of each team.
    is_played: bool [G], false where there was no game.
    teams: the team of each seat, at least two; static.
    config: options of the population; static.

  Returns:
    The population after the games.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  shapes.check(
    'record_games',
    seats=(seats, f'G {len(teams)}'),
    outcomes=(outcomes, f'G {max(teams) + 1}'),
    is_played=(is_played, 'G'),
  )
  num_members = config.num_members
  # Outcomes without a game are arbitrary. As draws they are not decided, and no
  # NaN reaches the ratings through a step size of zero.
  outcomes = jnp.where(is_played[:, None], outcomes, 0.0)
  scores = ratings_lib.pair_scores(outcomes)  # [G, C]
  # [N + K]
  ratings = jnp.concatenate([population.ratings, population.opponent_ratings])
  num_players = len(ratings)
  # Without opponents. A member with several seats counts a game once.
  counts = ratings_lib.count_seats(seats, teams, num_members)
  has_seat = jnp.any(counts > 0.0, axis=1)
  num_games = _count(has_seat & is_played[:, None])
  is_decided = jnp.any(scores != ratings_lib.DRAW, axis=1)
  ratings = ratings_lib.update_in_turn(
    ratings,
    ratings_lib.multiplicities(seats, teams, num_players),
    scores,
    # Each team takes part in so many pairs.
    jnp.where(is_played, config.k_factor / max(teams), 0.0),
  )
  return population._replace(
    ratings=ratings[:num_members],
    opponent_ratings=ratings[num_members:],
    payoff=payoff_lib.update(population.payoff, counts, scores, is_played),
    games=population.games + num_games,
    games_since_exploitation=population.games_since_exploitation + num_games,
    decided_games=(
      population.decided_games + _count(has_seat & is_decided[:, None])
    ),
  )


def record_returns(
  population: PopulationState, returns: types.Array, is_done: types.Array
) -> PopulationState:
  """Records episodes of a single-agent task and keeps their last returns.

  Args:
    population: the population before the episodes.
    returns: float32 [N, K], in the order in which episodes ended.
    is_done: bool [N, K], false where no episode ended.

  Returns:
    The population after the episodes.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  shapes.check(
    'record_returns',
    **{'population.returns': (population.returns, 'N _')},
    returns=(returns, 'N K'),
    is_done=(is_done, 'N K'),
  )
  window = population.returns.shape[1]
  num_done = jnp.sum(is_done, axis=1, dtype=jnp.int32)

  def write(
    slots: types.Array,
    count: types.Array,
    num_done: types.Array,
    returns: types.Array,
    is_done: types.Array,
  ) -> types.Array:
    index = count + jnp.cumsum(is_done) - 1  # [K]
    # If there are more episodes than slots, skips the first ones, so that no
    # two episodes write to the same slot.
    is_kept = is_done & (index >= count + num_done - window)
    # Writes to slot `window`, which does not exist, are dropped.
    slot = jnp.where(is_kept, index % window, window)
    return slots.at[slot].set(returns, mode='drop')

  return population._replace(
    returns=jax.vmap(write)(
      population.returns, population.num_returns, num_done, returns, is_done
    ),
    num_returns=population.num_returns + num_done,
    games=population.games + num_done,
    games_since_exploitation=population.games_since_exploitation + num_done,
    decided_games=population.decided_games + num_done,
  )


def _count(has_played: types.Array) -> types.Array:
  """Returns the number of games [N] of each member, from bool [G, N]."""
  return jnp.sum(has_played, axis=0, dtype=jnp.int32)


def mean_returns(population: PopulationState) -> types.Array:
  """Returns the mean [N] of the kept returns; minus infinity without any."""
  is_set = has_return(population)  # [N, num_returns]
  total = jnp.sum(jnp.where(is_set, population.returns, 0.0), axis=1)
  count = jnp.sum(is_set, axis=1)  # [N]
  return jnp.where(count > 0, total / jnp.maximum(count, 1), -jnp.inf)


_mean_returns = jax.jit(mean_returns)


def has_return(population: PopulationState) -> types.Array:
  """Returns which entries of `returns` are set, bool [N, num_returns]."""
  slots = jnp.arange(population.returns.shape[1])
  return jnp.expand_dims(slots, 0) < jnp.expand_dims(population.num_returns, 1)


def log_values(population: PopulationState) -> dict[str, Any]:
  """Returns the values of a row in the population's log: arrays [N, ...]."""
  members = population.members
  return {
    'generation': population.generation,
    'games': population.games,
    'ratings': population.ratings,
    'opponent_ratings': population.opponent_ratings,
    'mean_returns': _mean_returns(population),
    'internal_rewards': members.internal_rewards,
    'payoff_scores': population.payoff.scores,
    'payoff_games': population.payoff.games,
    **{
      f'hyperparameters/{hyperparameters.name(path)}': value
      for path, value in jax.tree.leaves_with_path(members.hyperparameters)
    },
  }
