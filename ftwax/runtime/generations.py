"""Generations of a population: evolution, logs and reports, for all runtimes.

A round is the time between two generations.
"""

import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ftwax import compilation, types
from ftwax.environments import games
from ftwax.population import evolution, lineage
from ftwax.population import state as state_lib
from ftwax.records import files
from ftwax.reporting import history
from ftwax.runtime import initial_state, prepare, run_records


class Evolution:
  """Evolves a population by one generation per round and logs its lineage."""

  def __init__(self, parts: prepare.Prepared, directory: pathlib.Path):
    """Prepares evolution; call `begin` or `resume` next."""
    self._experiment = parts.experiment
    self._reason = getattr(
      parts.experiment.population.select, 'name', 'selection'
    )
    self._path = directory / history.LINEAGE_FILE
    self._evolve: Callable[..., Any] = compilation.jit_unoptimized(parts.evolve)

  def begin(
    self, population: state_lib.PopulationState
  ) -> state_lib.PopulationState:
    """Starts a new lineage with the members' initial values.

    Returns:
      The population, initialized from `init_from` if that is set.
    """
    population = initial_state.start_from(
      self._experiment.init_from,
      self._experiment.agent.optimizer,
      population,
    )
    self._path.unlink(missing_ok=True)
    files.append_rows(self._path, [lineage.birth_row(population)])
    return population

  def compile(self, population: state_lib.PopulationState) -> None:
    """Compiles `evolve` for a population ahead of time, if it exploits."""
    if self._experiment.population.exploits:
      evolve: Any = self._evolve
      self._evolve = evolve.lower(population).compile()

  def resume(self, population: state_lib.PopulationState) -> None:
    """Drops lineage rows that are newer than the checkpoint."""
    if self._path.exists():
      last = int(population.generation)
      files.cut_rows(self._path, lambda row: row['generation'] > last)

  def evolve(
    self, population: state_lib.PopulationState
  ) -> tuple[state_lib.PopulationState, evolution.Generation | None]:
    """Evolves the population if it exploits, and logs all copies.

    Returns:
      The population and, if it exploits, the record of its generation.
    """
    generation: evolution.Generation | None = None
    if self._experiment.population.exploits:
      population, made = self._evolve(population)
      generation = jax.device_get(made)
      # Before the next checkpoint: `resume` drops rows that none contains.
      files.append_rows(self._path, lineage.rows(generation, self._reason))
    for observer in self._experiment.observers:
      observer.observe_generation(population)
    return population, generation


def start(
  parts: prepare.Prepared,
  records: run_records.RunRecords,
  members: types.TrainingState,
  key: types.Key,
  resume: bool,
) -> tuple[Evolution, state_lib.PopulationState]:
  """Begins or resumes the population of a run whose actors run in Python.

  `members` are the initial training states, leaves [N, ...].
  """
  evolution = Evolution(parts, records.directory)
  population = make_population(parts, members, key)
  if resume:
    population = records.restore(population, run_records.POPULATION)
    evolution.resume(population)
  else:
    population = evolution.begin(population)
  return evolution, population


def make_population(
  parts: prepare.Prepared, members: types.TrainingState, key: types.Key
) -> state_lib.PopulationState:
  """Returns the population of members [N, ...] before any game."""
  return state_lib.from_members(
    members,
    key,
    parts.experiment.population,
    num_opponents=len(parts.opponents),
    team_size=parts.seating.team_size,
  )


def population_row(
  population: state_lib.PopulationState,
  totals: Any,
  counts: run_records.Counts,
) -> dict[str, Any]:
  """Returns the row of a round for the population log.

  Args:
    population: before it evolves.
    totals: of the round; see `device.loop.Totals`.
    counts: progress of the run.
  """
  weights = np.asarray(population.members.internal_rewards)
  returns = totals.returns / np.maximum(totals.num_episodes, 1)[:, None]
  return {
    **state_lib.log_values(population),
    'own_returns': (returns * weights).sum(axis=1),
    'event_rates': returns,
    **counts._asdict(),
  }


def train_row(
  spec: games.GameSpec, returns: types.NumpyArray, lengths: types.NumpyArray
) -> dict[str, Any]:
  """Returns a row for the training log.

  Args:
    spec: spec of the game.
    returns: float [K, num_events], returns of the ended episodes.
    lengths: int [K], their numbers of actions.

  Returns:
    Means over the episodes; the caller adds the counts of the run.
  """
  row: dict[str, Any] = {
    'episode_return': float(np.mean(spec.headlines(returns))),
    'episode_length': float(np.mean(lengths)),
    'num_episodes': len(returns),
  }
  if returns.shape[1] > 1:
    row['event_returns'] = np.mean(returns, axis=0).tolist()
  return row


def write_report(directory: pathlib.Path) -> None:
  """Writes the report of a run."""
  from ftwax.reporting import report  # Slow: Matplotlib.

  # A user's own loggers may write elsewhere.
  if history.find(directory) is not None:
    report.make_report(directory)
