"""Seats members in games, rates them by the results, and evolves them.

The coordinator holds the whole population except the members themselves, which
a learner holds.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.population import evolution as evolution_lib
from ftwax.population import matchmaking, past_selves
from ftwax.population import state as state_lib
from ftwax.runtime import evaluation, generations, prepare, run_records


class Moment(NamedTuple):
  """State of a coordinator at one moment of a run.

  Attributes:
    population: population without members, before the pending results.
    pending: results that are not rated yet.
    sums: statistics of the current round so far.
    has_ended: whether any round has ended before.
  """

  population: state_lib.PopulationState
  pending: tuple[evaluation.GameResult, ...]
  sums: generations.RoundSums
  has_ended: bool


class Coordinator:
  """Holds the ratings and results of a population."""

  def __init__(
    self, population: state_lib.PopulationState, parts: prepare.Prepared
  ):
    """Continues with a population.

    Args:
      population: the population; its members are dropped.
      parts: provide the options and the games of an arena.
    """
    # Placed on the device where evolution leaves it; otherwise JAX would
    # compile everything twice.
    self._device = jax.local_devices()[0]
    self._population = jax.device_put(
      _without_members(population), self._device
    )
    self._spec = parts.spec
    self._config = parts.population
    self._pending: list[evaluation.GameResult] = []  # Not yet rated.
    self._no_sums = generations.start_round(
      self._config.num_members, parts.spec.num_events
    )
    self._sums = self._no_sums  # Of the current round.
    self._has_ended = False  # Whether a round has ended.
    self.seating = parts.seating

    def begin_round(
      key: types.Key, population: state_lib.PopulationState
    ) -> Any:
      return matchmaking.begin_round(
        key, population, self.seating, parts.matchmake, self._config
      )

    self._begin_round = jax.jit(begin_round)
    self._record_games = jax.jit(state_lib.record_games, static_argnums=(4, 5))
    self._record_returns = jax.jit(state_lib.record_returns)

  def population(
    self, members: types.TrainingState
  ) -> state_lib.PopulationState:
    """Returns the whole population with the given members [N, ...]."""
    self._rate(members.internal_rewards)
    return self._population._replace(members=members)

  def replace(self, population: state_lib.PopulationState) -> None:
    """Continues with a population changed by evolution."""
    self._population = _without_members(population)

  def capture(self) -> Moment:
    """Returns the current state, which later changes do not affect."""
    # Not copied, since updates replace these objects instead of changing them.
    return Moment(
      self._population, tuple(self._pending), self._sums, self._has_ended
    )

  def population_at(
    self, moment: Moment, members: types.TrainingState
  ) -> state_lib.PopulationState:
    """Returns the whole population at `moment`, with members [N, ...]."""
    population = self._rated(
      moment.population, moment.pending, members.internal_rewards
    )
    return population._replace(members=members)

  def resume_round(self, sums: generations.RoundSums, has_ended: bool) -> None:
    """Continues in the middle of a round."""
    self._sums = sums
    self._has_ended = has_ended

  def draw_seats(
    self, members: types.TrainingState
  ) -> tuple[types.NumpyArray, Any]:
    """Begins a round.

    Args:
      members: the members, leaves [N, ...]; without past selves their internal
        rewards suffice.

    Returns:
      int32 [G, P], the player on each seat of an arena; and variables of past
      selves, see `past_selves.seat`.
    """
    self._rate(members.internal_rewards)
    key, seats_key = jax.random.split(self._population.key)
    population = self._population._replace(key=key)
    if self._config.num_past:
      members = jax.device_put(members, self._device)
      population = population._replace(members=members)
    population, seats, past = self._begin_round(seats_key, population)
    self._population = _without_members(population)
    return np.asarray(seats), past

  def some_past(self) -> Any:
    """Returns variables like those of `draw_seats`, drawing nothing."""
    if not self._config.num_past:
      return ()
    first = jnp.zeros(self._config.num_past_at_once, jnp.int32)
    return past_selves.take(self._population.past.variables, first)

  def record(self, results: Sequence[evaluation.GameResult]) -> None:
    """Records results in the order in which the games ended."""
    if results:
      self._pending += results
      self._sums = generations.add_results(self._sums, results)

  def end_round(
    self,
    members: types.TrainingState,
    counts: run_records.Counts,
    evolution: generations.Evolution,
  ) -> tuple[
    dict[str, Any] | None,
    types.TrainingState,
    evolution_lib.Generation | None,
  ]:
    """Evolves members according to the results of a round.

    Args:
      members: before, leaves [N, ...].
      counts: progress of the run.
      evolution: runs one generation.

    Returns:
      The row for the population log; the members; and the record of the
      generation, None without one. If no game has ended, nothing evolves and
      the row is None, except after the first round, so that every run has
      something to report.
    """
    if not self._sums.num_episodes.any() and self._has_ended:
      return None, members, None
    self._has_ended = True
    # Members may be sharded over devices; the learner shards them again.
    population = self.population(jax.device_put(members, self._device))
    row = generations.population_row(population, self._sums, counts)
    self._sums = self._no_sums
    if not self._config.exploits:
      return row, members, None
    population, generation = evolution.evolve(population)
    self.replace(population)
    return row, population.members, generation

  def _rate(self, internal_rewards: types.InternalRewards) -> None:
    """Applies the pending results to the ratings."""
    self._population = self._rated(
      self._population, self._pending, internal_rewards
    )
    self._pending = []

  def _rated(
    self,
    population: state_lib.PopulationState,
    results: Sequence[evaluation.GameResult],
    internal_rewards: types.InternalRewards,
  ) -> state_lib.PopulationState:
    """Returns the population with the given results applied."""
    if not results:
      return population
    if not self.seating.is_rated:
      return self._rate_episodes(
        population, results, np.asarray(internal_rewards)
      )
    return self._rate_games(population, results)

  def _rate_games(
    self,
    population: state_lib.PopulationState,
    results: Sequence[evaluation.GameResult],
  ) -> state_lib.PopulationState:
    size = _padded(len(results))
    # Rows beyond the results are marked as not played below.
    seats = np.zeros((size, self._spec.num_players), np.int32)
    outcomes = np.zeros((size, max(self._spec.teams) + 1), np.float32)
    for index, result in enumerate(results):
      seats[index], outcomes[index] = result.seats, result.outcome
    rated: state_lib.PopulationState = self._record_games(
      population,
      seats,
      outcomes,
      np.arange(size) < len(results),
      self._spec.teams,
      self._config,
    )
    return rated

  def _rate_episodes(
    self,
    population: state_lib.PopulationState,
    results: Sequence[evaluation.GameResult],
    internal_rewards: types.NumpyArray,
  ) -> state_lib.PopulationState:
    """Records returns on all seats, weighted by members' internal rewards."""
    num_members = self._config.num_members
    size = _padded(len(results) * self._spec.num_players)
    returns = np.zeros((num_members, size), np.float32)
    num_episodes = np.zeros(num_members, np.int64)
    for result in results:
      for member, own in zip(result.seats, result.returns, strict=True):
        returns[member, num_episodes[member]] = own @ internal_rewards[member]
        num_episodes[member] += 1
    is_done = np.arange(returns.shape[1]) < num_episodes[:, None]
    rated: state_lib.PopulationState = self._record_returns(
      population, returns, is_done
    )
    return rated


def _without_members(
  population: state_lib.PopulationState,
) -> state_lib.PopulationState:
  nobody: Any = ()
  return population._replace(members=nobody)


def _padded(size: int) -> int:
  """Returns the next power of two, so that few shapes are compiled."""
  return 1 << (size - 1).bit_length()
