"""Rankings of players whose strength is not transitive.

Elo gives each player one number, so that it cannot tell rock, paper and
scissors apart, and rises with copies of a player that one beats. The Nash
average reads the whole matrix of win rates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import optimize, special

from ftwax import shapes

if TYPE_CHECKING:
  from ftwax import types

# A player whose weight is below this in all equilibria is in none of them.
_NO_WEIGHT = 1e-7


class NashAverage(NamedTuple):
  """Players measured against the equilibrium of their own tournament.

  Attributes:
    weights: float64 [N], the equilibrium of maximum entropy: zero for a player
      that a mixture of others beats, equal for equal players.
    scores: float64 [N], mean score against a player drawn by `weights`: 0.5
      within the equilibrium, and at most that.
  """

  weights: types.Floats
  scores: types.Floats


def nash_average(win_rates: types.NumpyArray) -> NashAverage:
  """Returns the Nash average (Balduzzi et al., 2018, arXiv:1806.02643).

  The payoffs are win rates as they are, not their log odds as in the paper,
  which are infinite for a player that always wins.

  Args:
    win_rates: [N, N], mean score of `i` against `j`; the diagonal is ignored.

  Raises:
    ValueError: if a pair has no win rate, or the matrix is not square.
  """
  shapes.check('nash_average', win_rates=(win_rates, 'N N'))
  payoffs = _payoffs(win_rates)
  num_players = len(payoffs)
  largest = [_largest_weight(payoffs, player) for player in range(num_players)]
  support = np.flatnonzero(np.array(largest) > _NO_WEIGHT)
  # No player beats the equilibrium, and those in it draw: these rows may take
  # multipliers of either sign in the dual of the entropy's maximum.
  reduced = payoffs[:, support]
  is_in = np.isin(np.arange(num_players), support)
  found = optimize.minimize(
    lambda multipliers: _dual(reduced, multipliers),
    np.zeros(num_players),
    jac=True,
    bounds=[(None if inside else 0.0, None) for inside in is_in],
    method='L-BFGS-B',
    options={'ftol': 0.0, 'gtol': 1e-10, 'maxiter': 10_000},
  )
  weights = np.zeros(num_players)
  weights[support] = special.softmax(-found.x @ reduced)
  return NashAverage(weights, 0.5 + payoffs @ weights)


def _payoffs(win_rates: types.NumpyArray) -> types.Floats:
  """Returns win rates less those of a draw, antisymmetric [N, N]."""
  rates = np.array(win_rates, np.float64)
  np.fill_diagonal(rates, 0.5)
  missing = np.argwhere(np.isnan(rates))
  if len(missing):
    raise ValueError(
      f'win_rates (NaN of players {missing[0].tolist()}) must be known for each'
      ' pair; play a round robin.'
    )
  return 0.5 * (rates - rates.T)


def _largest_weight(payoffs: types.Floats, player: int) -> float:
  """Returns the largest weight of a player in any equilibrium."""
  num_players = len(payoffs)
  found = optimize.linprog(
    -np.eye(num_players)[player],
    A_ub=payoffs,
    b_ub=np.zeros(num_players),
    A_eq=np.ones((1, num_players)),
    b_eq=[1.0],
  )
  return -float(found.fun)


def _dual(
  payoffs: types.Floats, multipliers: types.Floats
) -> tuple[float, types.Floats]:
  """Returns the dual of the largest entropy, and its gradient."""
  logits = -multipliers @ payoffs
  gradient: types.Floats = -payoffs @ special.softmax(logits)
  return float(special.logsumexp(logits)), gradient
