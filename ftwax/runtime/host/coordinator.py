"""Seats members at games, rates them by the results, and has them evolve.

It holds all of a population but the members, which a learner has.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.environments import game_vectors
from ftwax.population import matchmaking, seating
from ftwax.population import state as state_lib
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.host import arena as arena_lib
from ftwax.runtime.host import generations as records_lib


class Coordinator:
  """Keeps ratings and results of a population."""

  def __init__(
    self,
    population: state_lib.PopulationState,
    experiment: experiment_lib.PopulationExperimentConfig,
    game: game_vectors.GameSpec,
  ):
    """Goes on from a population.

    Args:
      population: its members are dropped.
      experiment: tells its options and the places of an arena.
      game: what is played.
    """
    # Put where evolution leaves it, or JAX would compile everything twice.
    self._population = jax.device_put(
      _without_members(population), jax.local_devices()[0]
    )
    self._num_members = population.ratings.shape[0]
    self._game = game
    self._results: list[arena_lib.Result] = []
    self._has_ended = False  # A round, in this session.
    config: Any = experiment.population
    self._config = config

    def draw(key, ratings):
      return seating.draw_seats(
        key,
        matchmaking.log_density(ratings, config.matchmaking_deviation),
        experiment.num_environments,
        len(game.teams),
      )

    self._draw = jax.jit(draw)
    self._record_games = jax.jit(state_lib.record_games, static_argnums=4)
    self._record_returns = jax.jit(state_lib.record_returns)

  def population(self, members: types.TrainingState) -> Any:
    """Returns the whole population, with these members [N, ...]."""
    return self._population._replace(members=members)

  def draw_seats(self) -> np.ndarray:
    """Returns the member on each seat of an arena, int32 [G, P]."""
    key, seats_key = jax.random.split(self._population.key)
    self._population = self._population._replace(key=key)
    return np.asarray(self._draw(seats_key, self._population.ratings))

  def record(
    self,
    results: Sequence[arena_lib.Result],
    internal_rewards: types.InternalRewards,
  ) -> None:
    """Records results, in the order in which games ended.

    Args:
      results: of games that ended.
      internal_rewards: [N, num_events], which weigh a single agent's returns.
    """
    self._results += results
    for result in results:
      if len(self._game.teams) == 1:
        self._record_episode(result, np.asarray(internal_rewards))
      else:
        self._record_game(result)

  def end_round(
    self,
    evolution: records_lib.Evolution,
    learner: Any,
    counts: run_records.Counts,
  ) -> list[tuple[str, dict[str, Any]]]:
    """Has the members of a learner evolve by what was recorded in a round.

    Args:
      evolution: of the run.
      learner: has the members.
      counts: how far the run is.

    Returns:
      What the round leaves in the logs: labels and their rows. None, and nobody
      evolves, if no game has ended, but for the first time: so that every run
      has something to report.
    """
    if not self._results and self._has_ended:
      return []
    self._has_ended = True
    population = self.population(learner.state)
    rows = records_lib.log_rows(population, self.take_round(), counts)
    population = evolution.evolve(population)
    self._population = _without_members(population)
    learner.restore(population.members)
    return rows

  def take_round(self) -> records_lib.Round:
    """Returns what was recorded since the last call."""
    results, self._results = self._results, []
    num_episodes = np.zeros(self._num_members, np.int64)
    lengths = np.zeros(self._num_members)
    returns = np.zeros((self._num_members, self._game.num_events))
    for result in results:
      np.add.at(num_episodes, result.seats, 1)
      np.add.at(lengths, result.seats, result.length)
      np.add.at(returns, result.seats, result.returns)
    counts = np.maximum(num_episodes, 1)
    return records_lib.Round(
      num_episodes, returns / counts[:, None], lengths / counts
    )

  def _record_game(self, result: arena_lib.Result) -> None:
    # Outcomes are from -1 to 1 for each team, ratings count the first's wins.
    self._population = self._record_games(
      self._population,
      seating.as_teams(result.seats[None], self._game.teams),
      0.5 * (1.0 + result.outcome[:1]),
      np.ones(1, bool),
      self._config,
    )

  def _record_episode(self, result, internal_rewards) -> None:
    """Records the return of a single agent, events weighed as by itself."""
    member = result.seats[0]
    is_done = np.arange(self._num_members)[:, None] == member
    own = np.float32(result.returns[0] @ internal_rewards[member])
    self._population = self._record_returns(
      self._population, np.where(is_done, own, np.float32(0.0)), is_done
    )


def _without_members(population: Any) -> Any:
  return population._replace(members=())
