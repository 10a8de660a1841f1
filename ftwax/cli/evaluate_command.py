"""Evaluates the newest checkpoint of a run.

Members play episodes of the run's evaluation environment or, in a game of two
teams, play against its scripts and opponents.
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any

from ftwax import types
from ftwax.cli import past_runs
from ftwax.runtime import evaluation, loading, prepare
from ftwax.runtime.local import evaluations


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: the run and what to play."""
  past_runs.add_arguments(parser)
  parser.add_argument(
    '--episodes',
    type=int,
    default=20,
    help='minimum number of episodes of each member (20)',
  )
  parser.add_argument(
    '--seed', type=int, help='random seed; by default that of the run'
  )
  parser.add_argument(
    '--sampled',
    action='store_true',
    help='sample actions instead of taking the most probable one',
  )
  parser.add_argument(
    '--json', action='store_true', help='print all numbers as JSON'
  )


def run(arguments: argparse.Namespace) -> int:
  """Prints the results."""
  if arguments.episodes < 1:
    raise ValueError(
      f'episodes ({arguments.episodes}) must be at least 1; choose 20.'
    )
  with past_runs.rebuilt(arguments.run, arguments.experiment) as experiment:
    if arguments.seed is not None:
      experiment = experiment.replace(seed=arguments.seed)
    experiment = experiment.replace(
      evaluation_greedy=not arguments.sampled, environment_processes=0
    )
    agents = loading.load_members(
      arguments.run, experiment=experiment, step=arguments.step
    )
    sources = [_Member(agent.variables) for agent in agents]
    evaluator = evaluations.Evaluator(
      prepare.prepare(experiment), sources, arguments.episodes, ()
    )
    try:
      row = evaluation.make_row(evaluator.run())
    finally:
      evaluator.close()
  if arguments.json:
    print(json.dumps(row))
    return 0
  for name, value in row.items():
    print(f'{name:20} {_readable(value)}')
  return 0


class _Member:
  """Variable source of a member, for evaluations."""

  def __init__(self, variables: types.ActorVariables):
    """Stores the variables."""
    self._variables = variables

  def get_variables(self, names: Sequence[str]) -> list[Any]:
    """Returns the variables, once for each name."""
    return [self._variables for _ in names]


def _readable(value: Any) -> str:
  if isinstance(value, list):
    return ' '.join(map(_readable, value))
  return f'{value:.4g}' if isinstance(value, float) else str(value)
