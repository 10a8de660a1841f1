"""What every run of a population does between rounds: evolve, log, report.

A round is the time between two generations. However members play and learn in
it, what came of it ends in the same logs, the same lineage and the same report.
"""

import functools
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np

from ftwax import internal_rewards, types
from ftwax.population import evolution, lineage
from ftwax.population import state as state_lib
from ftwax.reporting import history
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import runs

# Logs that `log_rows` writes to.
LABELS = ('train', history.LABEL)


class Round(NamedTuple):
  """Games, or episodes of a single-agent task, that ended in a round.

  Attributes:
    num_episodes: int [N], seats on which a member's games ended.
    returns: float [N, num_events], sums over a game, mean over those seats.
    lengths: float [N], likewise.
  """

  num_episodes: np.ndarray
  returns: np.ndarray
  lengths: np.ndarray

  @property
  def total(self) -> int:
    """Episodes of all members."""
    return int(np.sum(self.num_episodes))

  @property
  def mean_return(self) -> float:
    """Mean over episodes of the sum of events."""
    sums = self.returns.sum(axis=1) @ self.num_episodes
    return float(sums / max(self.total, 1))


def check_no_evaluation(eval_every: int | None) -> None:
  """Raises a ValueError if a population is to be evaluated."""
  if eval_every is not None:
    raise ValueError(
      f'eval_every ({eval_every}) must be None for a population, whose games'
      ' rate its members; choose None.'
    )


def make_priors(
  builder: Any, environment_spec: types.EnvironmentSpec
) -> evolution.Traits:
  """Returns the priors of all that evolution may change."""
  num_events = internal_rewards.num_events(environment_spec.rewards)
  return evolution.Traits(
    builder.config.priors,
    builder.config.make_internal_rewards_prior(num_events),
  )


class Evolution:
  """Evolves a population, a generation a round, and writes its lineage."""

  def __init__(
    self,
    experiment: experiment_lib.PopulationExperimentConfig,
    environment_spec: types.EnvironmentSpec,
    directory: pathlib.Path,
  ):
    """Begins no lineage yet; see `begin` and `resume`.

    Args:
      experiment: tells the rules.
      environment_spec: tells the events.
      directory: of the run.
    """
    config: Any = experiment.population
    self._reason = getattr(experiment.select, '__name__', 'selection')
    self._path = directory / history.LINEAGE_FILE
    self._evolve = jax.jit(
      functools.partial(
        evolution.evolve,
        priors=make_priors(experiment.builder, environment_spec),
        config=config,
        select=experiment.select,
        explore=experiment.explore,
      )
    )

  def begin(self, population: state_lib.PopulationState) -> None:
    """Writes down what members were born with, in a file of its own."""
    self._path.unlink(missing_ok=True)
    lineage.append(self._path, [lineage.birth_row(population)])

  def resume(self, population: state_lib.PopulationState) -> None:
    """Drops what came after the checkpoint that is gone on from."""
    if self._path.exists():
      lineage.drop_after(self._path, int(population.generation))

  def evolve(
    self, population: state_lib.PopulationState
  ) -> state_lib.PopulationState:
    """Evolves the population and writes down who copied whom."""
    key, evolve_key = jax.random.split(population.key)
    population, generation = self._evolve(
      evolve_key, population._replace(key=key)
    )
    lineage.append(
      self._path, lineage.rows(jax.device_get(generation), self._reason)
    )
    return population


def log_rows(
  population: state_lib.PopulationState, played: Round, counts: runs.Counts
) -> list[tuple[str, dict[str, Any]]]:
  """Returns what a round leaves in the logs: labels and their rows.

  Args:
    population: before it evolves.
    played: what ended in the round.
    counts: how far the run is.
  """
  weights = np.asarray(population.members.internal_rewards)
  row = {
    **state_lib.log_values(population),
    'own_returns': (played.returns * weights).sum(axis=1),
    'event_rates': played.returns,
    **counts._asdict(),
  }
  rows = [(history.LABEL, row)]
  if played.total:
    episodes = {
      'episode_return': played.mean_return,
      'episode_length': np.mean(played.lengths),
      'num_episodes': played.total,
    }
    rows.append(('train', {**episodes, **counts._asdict()}))
  return rows


def write_report(
  experiment: experiment_lib.PopulationExperimentConfig,
  directory: pathlib.Path,
  event_names: tuple[str, ...],
) -> None:
  """Writes the report of a run that has ended."""
  from ftwax.reporting import report  # Matplotlib: not before --help.

  report.make_report(
    directory,
    report.ReportOptions(title=experiment.name, event_names=event_names),
  )
