"""Trains one agent with the schedule that a population found.

The values of the best member and its ancestors, from the lineage of the run,
change at the same updates as there. The agent has its own seed, and the steps
and environments of one member.
"""

import dataclasses

from ftwax.cli import flags, past_runs
from ftwax.runtime import devices, replaying, runs


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of `ftwax replay`."""

  run: str = flags.argument('Directory of the run of a population.')
  experiment: str | None = flags.flag(None, past_runs.EXPERIMENT_HELP)
  member: int | None = flags.flag(None, 'The member; by default the best.')
  seed: int = flags.flag(0, 'Random seed of the new run.')
  runtime: str = flags.flag('local', 'Where to run it.', runs.RUNTIMES)
  run_dir: str | None = flags.flag(
    None, 'Run directory; by default a new one in runs/.'
  )
  resume: bool = flags.flag(False, 'Resume --run_dir, or the newest run.')


def run(options: Options) -> int:
  """Trains the agent and prints where it is."""
  devices.prepare(options.runtime, 1)
  experiment = replaying.make(
    past_runs.rebuild(options.run, options.experiment),
    options.run,
    options.member,
  ).replace(seed=options.seed)
  result = runs.run_experiment(
    experiment,
    runtime=options.runtime,
    run_dir=options.run_dir,
    resume=options.resume,
  )
  print(f'mean return {result.mean_return:.3f}. See {result.run_dir}')
  return 0
