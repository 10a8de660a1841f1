"""Evaluates the newest checkpoint of a run.

Members play episodes of the run's evaluation environment or, in a game of two
teams, play against its scripts and opponents.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from ftwax.cli import flags, sources


@dataclasses.dataclass(frozen=True)
class Options(sources.RunOptions):
  """Flags of `ftwax evaluate`."""

  episodes: int = flags.flag(20, 'Minimum number of episodes of each member.')
  seed: int | None = flags.flag(
    None, 'Random seed; by default that of the run.'
  )
  sampled: bool = flags.flag(
    False, 'Sample actions instead of taking the most probable one.'
  )
  held_out: tuple[str, ...] = flags.flag((), sources.HELD_OUT_HELP)
  json: bool = flags.flag(False, 'Print all numbers as JSON.')


def run(options: Options) -> int:
  """Prints the results."""
  flags.check_positive(options, 'episodes')
  run_dir = sources.find_run(options.run)
  # Slow imports: a wrong path or flag fails before them.
  from ftwax.cli import launch, past_runs
  from ftwax.environments import process_games
  from ftwax.inference import loading
  from ftwax.runtime import devices, evaluation, prepare
  from ftwax.runtime.local import evaluations

  devices.keep_compiled_functions()
  experiment = past_runs.rebuild(run_dir, options.experiment)
  if options.seed is not None:
    experiment = experiment.replace(seed=options.seed)
  if options.held_out:
    held_out = launch.find_held_out(options.held_out)
    experiment = experiment.replace(held_out=held_out)
  experiment = experiment.replace(
    evaluation=experiment.evaluation.replace(greedy=not options.sampled),
    stepping=process_games.Stepping(),
  )
  agents = loading.load_members(
    run_dir, experiment=experiment, step=options.checkpoint
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
  print(describe(row))
  return 0


def describe(row: Mapping[str, Any]) -> str:
  """Returns the numbers of an evaluation with their names, as text.

  Args:
    row: see `evaluation.make_row`.
  """
  from ftwax.environments import episode_metrics  # Slow imports.
  from ftwax.records import log_values
  from ftwax.reporting import comparison

  show = log_values.format_value
  prefix = 'scores/'
  opponents = [n.removeprefix(prefix) for n in row if n.startswith(prefix)]
  lines = [
    f'{row["num_episodes"]} episodes of {row["episode_length"]:.0f} steps: mean'
    f' return {show(row["episode_return"])}, standard deviation'
    f' {show(row["episode_return_std"])}'
  ]
  names = {
    'held_out_score': 'mean score against held-out opponents',
    'elo': f'mean Elo above {"".join(opponents[:1])}',
    'self_play': 'mean return of teams of one member',
    'cross_play': 'mean return of mixed teams',
  }
  lines += [f'{names[n]}: {show(row[n])}' for n in names if n in row]
  lines += [
    f'mean {name.removeprefix(episode_metrics.PREFIX)}: {show(row[name])}'
    for name in row
    if name.startswith(episode_metrics.PREFIX)
  ]
  for role, value in enumerate(row.get('role_returns', ())):
    lines.append(f'mean return in role {role}: {show(value)}')
  elo = [round(points) for points in row.get('member_elo', ())]
  cross = row.get('cross_returns', ())
  columns = {
    'return': row.get('member_returns'),
    'Elo': elo,
    **{
      f'score against {name}': [scores[i] for scores in row['member_scores']]
      for i, name in enumerate(opponents)
    },
    **{
      f'return beside member {other}': [returns[other] for returns in cross]
      for other in range(len(cross))
    },
  }
  columns = {name: column for name, column in columns.items() if column}
  if columns:
    cells = [
      [f'member {member}', *map(show, values)]
      for member, values in enumerate(zip(*columns.values(), strict=True))
    ]
    lines += ['', comparison.format_table([['', *columns], *cells])]
  return '\n'.join(lines)
