"""Records numbers of open_spiel, for tests of rankings and of exact values.

    uv run --no-project --with open_spiel,cvxpy,matplotlib,networkx \
      tests/population/record_open_spiel.py
"""

import json
import pathlib

import numpy as np
import pyspiel
from open_spiel.python import policy
from open_spiel.python.algorithms import exploitability, nash_averaging


def _matrices():
  """Yields win rates by name."""
  cycle = np.array([[0.5, 1.0, 0.0], [0.0, 0.5, 1.0], [1.0, 0.0, 0.5]])
  yield 'rock_paper_scissors', cycle
  twice = np.array([0, 0, 1, 2])
  yield 'two_rocks', cycle[np.ix_(twice, twice)]
  yield 'ladder', np.array([[0.5, 0.6, 0.8], [0.4, 0.5, 0.7], [0.2, 0.3, 0.5]])
  rng = np.random.default_rng(0)
  for num_players in (5, 8):
    scores = np.round(rng.uniform(size=(num_players, num_players)), 2)
    yield f'drawn_{num_players}', 0.5 + 0.5 * (scores - scores.T)


def main():
  """Writes the rankings of each matrix, and the values of games."""
  records = {}
  for name, rates in _matrices():
    payoffs = 0.5 * (rates - rates.T)
    nash = nash_averaging._max_entropy_symmetric_nash(payoffs, eps=0.0)
    records[name] = {
      'win_rates': rates.tolist(),
      'nash': nash[:, 0].tolist(),
    }
  exact = {}
  for name in ('kuhn_poker', 'leduc_poker'):
    game = pyspiel.load_game(name)
    exact[name] = exploitability.exploitability(
      game, policy.UniformRandomPolicy(game)
    )
  path = pathlib.Path(__file__).with_name('open_spiel.json')
  plain = {'rankings': records, 'exploitability_of_uniform': exact}
  path.write_text(json.dumps(plain, indent=1) + '\n')


if __name__ == '__main__':
  main()
