"""Runs an experiment of ftwax, or one from your own file.

ftwax train catch --seed=1            `ftwax train catch --help` lists the flags
ftwax train my_file.py:build --help   runs a function that returns an
                                      ExperimentConfig; has the common flags
"""

import dataclasses

from ftwax.cli import flags, launch


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of `ftwax train`."""

  experiment: str = flags.argument(
    'A name listed by `ftwax list`, or FILE.py:FUNCTION.'
  )
  flags: tuple[str, ...] = flags.argument(
    'Flags of the experiment.', default=(), rest=True
  )


def run(options: Options) -> int:
  """Runs the experiment, which exits the program."""
  launch.main(options.experiment, options.flags)
  return 0
