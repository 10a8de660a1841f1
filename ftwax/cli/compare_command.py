"""Compares runs: a table, and learning curves with means over seeds.

Runs that differ only in their seeds form one row. The interval is a 95%
confidence interval over seeds (Student's t). `ftwax report` with several runs
writes a page that shows them side by side.
"""

import argparse
import pathlib

from ftwax.reporting import comparison, drawing


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: the runs and the file of the figure."""
  parser.add_argument(
    'runs', metavar='RUN', nargs='+', help='directory of a run'
  )
  parser.add_argument(
    '--out',
    default='comparison.png',
    help='path of the figure (comparison.png)',
  )


def run(arguments: argparse.Namespace) -> int:
  """Prints the table and draws the figure."""
  rows = comparison.group([comparison.read(name) for name in arguments.runs])
  print(comparison.format_table(comparison.make_table(rows)))
  figure = comparison.plot(rows, 'Training, and means over seeds')
  path = pathlib.Path(arguments.out)
  path.write_bytes(drawing.to_png(figure))
  print(f'\nCurves: {path}')
  return 0
