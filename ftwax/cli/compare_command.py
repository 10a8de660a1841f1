"""Compares runs: a table, and learning curves with means over seeds.

Runs that differ only in their seeds form one row. The interval is a 95%
confidence interval over seeds (Student's t). `ftwax report` with several runs
writes a page that shows them side by side.
"""

import dataclasses
import pathlib

from ftwax.cli import flags
from ftwax.reporting import comparison, drawing


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of `ftwax compare`."""

  runs: tuple[str, ...] = flags.argument('Directories of runs.')
  out: str = flags.flag('comparison.png', 'Path of the figure.')


def run(options: Options) -> int:
  """Prints the table and draws the figure."""
  rows = comparison.group([comparison.read(name) for name in options.runs])
  print(comparison.format_table(comparison.make_table(rows)))
  figure = comparison.plot(rows, 'Training, and means over seeds')
  path = pathlib.Path(options.out)
  drawing.write_png(path, figure)
  print(f'\nCurves: {path}')
  return 0
