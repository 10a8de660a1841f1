"""Evaluates the newest checkpoint of a run.

Members play episodes of the run's evaluation environment or, in a game of two
teams, play against its scripts and opponents.
"""

import dataclasses
import json
from typing import Any

from ftwax.cli import flags, past_runs
from ftwax.runtime import devices, evaluation, loading, prepare
from ftwax.runtime.local import evaluations


@dataclasses.dataclass(frozen=True)
class Options(past_runs.Options):
  """Flags of `ftwax evaluate`."""

  episodes: int = flags.flag(20, 'Minimum number of episodes of each member.')
  seed: int | None = flags.flag(
    None, 'Random seed; by default that of the run.'
  )
  sampled: bool = flags.flag(
    False, 'Sample actions instead of taking the most probable one.'
  )
  json: bool = flags.flag(False, 'Print all numbers as JSON.')


def run(options: Options) -> int:
  """Prints the results."""
  if options.episodes < 1:
    raise ValueError(
      f'episodes ({options.episodes}) must be at least 1; choose 20.'
    )
  devices.keep_compiled_functions()
  experiment = past_runs.rebuild(options.run, options.experiment)
  if options.seed is not None:
    experiment = experiment.replace(seed=options.seed)
  experiment = experiment.replace(
    evaluation_greedy=not options.sampled, environment_processes=0
  )
  agents = loading.load_members(
    options.run, experiment=experiment, step=options.checkpoint
  )
  row = evaluation.make_row(
    evaluations.evaluate(
      prepare.prepare(experiment),
      [agent.variables for agent in agents],
      options.episodes,
    )
  )
  if options.json:
    print(json.dumps(row))
    return 0
  for name, value in row.items():
    print(f'{name:20} {_readable(value)}')
  return 0


def _readable(value: Any) -> str:
  if isinstance(value, list):
    return ' '.join(map(_readable, value))
  return f'{value:.4g}' if isinstance(value, float) else str(value)
