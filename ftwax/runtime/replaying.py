"""Replays of schedules: a population's find, without the population."""

import os
import pathlib

import numpy as np

from ftwax.population import schedules
from ftwax.records import loggers
from ftwax.reporting import history
from ftwax.runtime import experiment as experiment_lib


def make(
  experiment: experiment_lib.ExperimentConfig,
  run_dir: str | os.PathLike[str],
  member: int | None = None,
) -> experiment_lib.ExperimentConfig:
  """Returns the experiment of one agent that goes through a schedule.

  It has the steps and environments of one member, and its own seed. In games it
  plays against itself.

  Args:
    experiment: the experiment of the population.
    run_dir: directory of its run.
    member: whose ancestors' values the agent goes through; by default the
      member with the best rating or mean return at the end.

  Raises:
    ValueError: if the run has no population or no such member, or its records
      are incomplete.
  """
  run_dir = pathlib.Path(run_dir)
  population = experiment.population
  last = population.num_members - 1
  if not last:
    raise ValueError(
      f'run ({run_dir}) must be of a population, and has one member; choose'
      ' another run.'
    )
  rows = loggers.read_jsonl(loggers.log_path(run_dir, history.LABEL))
  if member is None:
    end = history.from_rows(rows[-1:])
    # In games no member has returns, and elsewhere ratings are equal.
    returns = np.nan_to_num(end.mean_returns[-1], nan=-np.inf)
    member = int(np.lexsort((end.ratings[-1], returns))[-1])
  if not 0 <= member <= last:
    raise ValueError(f'member ({member}) must be from 0 to {last}; choose 0.')
  # A row is written before the generation that follows it.
  updates = {row['generation'] + 1: row['learner_steps'] for row in rows}
  records = history.read_lineage(run_dir)
  missing = {row['generation'] for row in records[1:]} - updates.keys()
  if missing:
    raise ValueError(
      f'population log of {run_dir} must have a row before generation'
      f' {min(missing)} of the lineage, and has none; restore it from a copy of'
      ' the run.'
    )
  return experiment.replace(
    name=f'{experiment.name}_replay',
    population=population.replace(
      num_members=1, exploits=False, min_lineages=1
    ),
    num_environments=max(
      experiment.num_environments // population.num_members, 1
    ),
    max_num_actor_steps=max(
      experiment.max_num_actor_steps // population.num_members, 1
    ),
    schedule=schedules.of_member(records, updates, member),
  )
