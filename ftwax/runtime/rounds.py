"""Rounds of a run, in all runtimes: seats, ratings, logs and generations."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.environments import episode_metrics
from ftwax.population import evolution as evolution_lib
from ftwax.population import seating as seating_lib
from ftwax.population import state as state_lib
from ftwax.reporting import history
from ftwax.runtime import generations, prepare, run_records
from ftwax.runtime.device import loop, rollout


class Rounds:
  """Seats and rates members, and counts and logs what they do."""

  def __init__(
    self,
    parts: prepare.Prepared,
    records: run_records.RunRecords,
    evolution: generations.Evolution,
  ):
    """Opens the logs."""
    self._parts = parts
    self._experiment = parts.experiment
    self._records = records
    self._evolution = evolution
    self._train_logger = records.open_logger('train')
    self._population_logger = records.open_logger(history.LABEL)
    seating, config = parts.seating, parts.experiment.population
    self._rate = jax.jit(functools.partial(loop.rate, seating, config))
    self._draw_seats = jax.jit(
      lambda key, population: seating_lib.draw_seats(
        key, config.matchmake(population), seating
      )
    )

  def start_totals(self) -> loop.Totals:
    """Returns the totals at the start of a round."""
    spec = self._parts.spec
    return loop.start_totals(
      self._experiment.population.num_members, spec.num_events
    )

  def draw_seats(
    self, population: state_lib.PopulationState
  ) -> tuple[state_lib.PopulationState, types.NumpyArray]:
    """Begins a round; of members their traits suffice.

    Returns:
      The population; and int32 [G, P], the player on each seat.
    """
    key, seats_key = jax.random.split(population.key)
    seats = self._draw_seats(seats_key, only_traits(population))
    return population._replace(key=key), np.asarray(seats)

  def rate(
    self,
    population: state_lib.PopulationState,
    totals: loop.Totals,
    seats: types.NumpyArray,
    episodes: rollout.Episodes,
  ) -> tuple[state_lib.PopulationState, loop.Totals]:
    """Rates members by what was played; see `loop.rate`."""
    rated, totals = self._rate(only_traits(population), totals, seats, episodes)
    return rated._replace(members=population.members), totals

  def record(
    self,
    episodes: rollout.Episodes,
    learner_steps: int,
    measured: Sequence[Mapping[str, float]] = (),
    **more: Any,
  ) -> None:
    """Counts what was played, and logs the episodes that ended.

    Args:
      episodes: leaves [..., N, M].
      learner_steps: number of updates of the whole run.
      measured: metrics of the games that ended.
      **more: values to add to the row of the training log.
    """
    spec = self._parts.spec
    metrics: dict[str, Any] = {}
    for observer in self._experiment.observers:
      metrics.update(observer.get_metrics())
    self._records.measure(measured)
    ended = np.asarray(episodes.ended)
    returns = np.asarray(episodes.returns)[ended]
    returns = returns.reshape(len(returns), spec.num_events)
    headlines = spec.headlines(returns)
    found = headlines[np.isfinite(headlines)].tolist()
    self._records.advance(int(np.sum(episodes.moved)), found, learner_steps)
    # Of the episodes that have ended; the next ones may have others.
    parameters = self._records.course.row
    self._records.course.advance(
      self._records.counts.actor_steps, found, measured
    )
    if len(returns):
      row = generations.train_row(
        spec, returns, np.asarray(episodes.lengths)[ended]
      )
      self._train_logger.write(
        {
          **row,
          **episode_metrics.average(measured),
          **parameters,
          **metrics,
          **more,
          **self._records.counts._asdict(),
        }
      )

  def end(
    self, population: state_lib.PopulationState, totals: loop.Totals
  ) -> tuple[state_lib.PopulationState, evolution_lib.Generation | None]:
    """Logs a round and evolves the population; see `Evolution.evolve`."""
    self.log(population, totals)
    return self._evolution.evolve(population)

  def log(
    self, population: state_lib.PopulationState, totals: loop.Totals
  ) -> None:
    """Logs a round, with the members before they evolve."""
    self._population_logger.write(
      generations.population_row(
        population, jax.device_get(totals), self._records.counts
      )
    )


def only_traits(
  population: state_lib.PopulationState,
) -> state_lib.PopulationState:
  """Returns a population whose members have nothing but their traits."""
  traits = evolution_lib.traits(population.members)
  return population._replace(members=evolution_lib.members_of_traits(traits))
