"""Trains values and seeds as one compiled program; prints a table.

Writes the table as CSV, and curves with intervals.

ftwax sweep catch --grid agent.learning_rate=1e-4,1e-3 agent.core=lstm,gru
ftwax sweep catch --grid 'agent.learning_rate=LogUniform(1e-5, 1e-1)' --draws=16

The environment must be written in JAX. Takes the flags of the experiment, too.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ftwax.cli import flags, sources, tasks

if TYPE_CHECKING:
  from ftwax.runtime import experiment as experiment_lib

_OF_SINGLE_RUNS = (
  'eval_every',
  'init_from',
  'num_devices',
  'print_config',
  'resume',
  'watch',
)


# Most seeds, and most cells that are drawn.
_MOST = 4096


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of `ftwax sweep`."""

  experiment: str = flags.argument(
    'A name listed by `ftwax list`, or FILE.py:FUNCTION.'
  )
  flags: tuple[str, ...] = flags.argument(
    'Its flags; `ftwax sweep EXPERIMENT --help` lists all.',
    default=(),
    rest=True,
  )


@dataclasses.dataclass(frozen=True)
class SweepFlags:
  """Flags of the sweep."""

  grid: tuple[str, ...] = flags.flag(
    (), 'FIELD=VALUE,VALUE,... or FIELD=PRIOR, for each field.'
  )
  draws: int = flags.flag(8, 'Cells that are drawn, if a field has a prior.')
  seeds: int = flags.flag(3, 'Seeds of each cell, from --seed on.')
  objective: str = flags.flag(
    'episode_return',
    'What cells are compared by, such as metrics/success; a minus in front if'
    ' less is better.',
  )
  runtime: str = 'device'


def run(options: Options) -> int:
  """Trains all cells."""
  sources.check_experiment(options.experiment, tasks.TASKS)
  # Slow imports: a wrong name fails before them.
  from ftwax.cli import launch
  from ftwax.records import config_files
  from ftwax.runtime import devices, sweeps

  found = launch.find(options.experiment, options.flags, 'sweep', SweepFlags)
  chosen: Any = found.options
  flags.check_positive(chosen, 'draws', 'seeds')
  for name in ('draws', 'seeds'):  # All are trained at once.
    if getattr(chosen, name) > _MOST:
      raise ValueError(
        f'--{name} ({getattr(chosen, name)}) must be at most {_MOST}; choose'
        ' fewer.'
      )
  flags.check_seed(chosen, count=chosen.seeds)
  for name in _OF_SINGLE_RUNS:
    if name in found.given and getattr(chosen, name):
      raise ValueError(
        f'--{name} ({getattr(chosen, name)}) is for a single run, and a sweep'
        ' has several; leave it out.'
      )
  if chosen.runtime != 'device':
    raise ValueError(
      f'--runtime ({chosen.runtime}) must be device, as a sweep is compiled;'
      ' leave it out.'
    )
  devices.prepare(chosen.runtime, 1)
  experiment = found.build()
  columns = dict(_parse(text, experiment) for text in chosen.grid)
  priors = {
    name: values[0]
    for name, values in columns.items()
    if len(values) == 1 and type(values[0]) in config_files.PRIORS.values()
  }
  cells = sweeps.grid(
    {name: values for name, values in columns.items() if name not in priors}
  )
  if priors:
    drawn = sweeps.draw(priors, chosen.draws, chosen.seed)
    cells = [{**cell, **values} for cell in cells for values in drawn]
  seeds = range(chosen.seed, chosen.seed + chosen.seeds)
  sweeps.run(experiment, cells, seeds, chosen.run_dir, chosen.objective)
  return 0


def _parse(
  text: str, experiment: experiment_lib.ExperimentConfig
) -> tuple[str, list[Any]]:
  """Returns a field and its values, of the field's type."""
  from ftwax import parts  # Slow imports.
  from ftwax.cli import launch
  from ftwax.records import config_files

  path, _, words = text.partition('=')
  is_prior = words.strip().partition('(')[0] in config_files.PRIORS
  values = []
  for word in [words] if is_prior else words.split(','):
    changed = launch.change(experiment, config_files.parse(f'{path}={word}'))
    value = parts.read(changed, path.strip())
    # A number may have become the prior of this value alone.
    low, high = getattr(value, 'limits', (0, 1))
    values.append(low if low == high else value)
  return path.strip(), values
