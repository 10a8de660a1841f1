"""Runs an experiment of ftwax, or one from your own file.

ftwax train catch --seed=1            `ftwax train catch --help` lists the flags
ftwax train Acrobot-v1 --core=gru --steps=100_000
                                      any Gymnasium id, FILE.py:NAME or
                                      MODULE:NAME that makes an environment
ftwax train my_file.py:build --help   runs a function that returns an
                                      ExperimentConfig; has the common flags
"""

import dataclasses

from ftwax.cli import flags, known_flags, sources, tasks


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of `ftwax train`."""

  experiment: str = flags.argument(
    'A name listed by `ftwax list`, an environment, or FILE.py:FUNCTION.'
  )
  flags: tuple[str, ...] = flags.argument(
    'Flags of the experiment.', default=(), rest=True
  )


def run(options: Options) -> int:
  """Runs the experiment, which exits the program."""
  sources.check_experiment(options.experiment, tasks.TASKS)
  known_flags.check(options.experiment, options.flags)
  from ftwax.cli import launch  # A slow import: wrong names fail before it.

  launch.main(options.experiment, options.flags)
  return 0
