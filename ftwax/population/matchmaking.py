"""Who plays with and against whom.

Jaderberg et al., 2019 (arXiv:1807.01281), section "Matchmaking": one player is
drawn uniformly, the others in proportion to a normal density, with mean one
half, of the probability that it beats them. Games between equals teach most.
"""

import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.population import population_config as config_lib
from ftwax.population import ratings as ratings_lib


def log_density(
  ratings: types.Array, deviation: types.Array | float
) -> types.Array:
  """Returns how likely each player is to meet each other one.

  It is the density of a win probability, not of a difference of ratings, and
  so bounded below: no gap is so wide that a player finds no game.

  Args:
    ratings: float32 [N].
    deviation: standard deviation of the density.

  Returns:
    float32 [N, N], up to a constant; minus infinity on the diagonal.
  """
  surprise = ratings_lib.pairwise_win_probability(ratings) - 0.5
  density = -0.5 * jnp.square(surprise / deviation)
  return jnp.where(jnp.eye(ratings.shape[0], dtype=bool), -jnp.inf, density)


def sample_match(
  key: types.Key, ratings: types.Array, config: config_lib.PopulationConfig
) -> types.Array:
  """Seats players at one game.

  Nobody sits twice where there are enough players. In a smaller population
  only the first player, drawn uniformly, is sure to sit once, and others are
  drawn again and again; one alone plays itself.

  Args:
    key: key for the draws.
    ratings: float32 [N].
    config: tells the seats and the density.

  Returns:
    int32 [2, team_size], or [1, 1] in a single-agent task.
  """
  first_key, others_key, seats_key = jax.random.split(key, 3)
  num_players, num_seats = ratings.shape[0], config.num_players
  first = jax.random.randint(first_key, (1,), 0, num_players)
  num_others = num_seats - 1
  log_weights = log_density(ratings, config.matchmaking_deviation)[first[0]]
  if num_players == 1:
    others = jnp.zeros((num_others,), jnp.int32)
  elif num_players < num_seats:
    others = jax.random.categorical(
      others_key, log_weights, shape=(num_others,)
    )
  else:
    # The largest of log-weights with Gumbel noise are a draw without
    # replacement.
    noise = jax.random.gumbel(others_key, (num_players,))
    others = jax.lax.top_k(log_weights + noise, num_others)[1]
  seats = jnp.concatenate([first, others]).astype(jnp.int32)
  seats = jax.random.permutation(seats_key, seats)
  return seats.reshape(-1, config.team_size)
