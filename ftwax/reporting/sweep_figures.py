"""Results of a sweep: a table with a row for each cell, curves, CSV.

Intervals are 95% confidence intervals over seeds (Student's t).
"""

import csv
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.figure
import numpy as np

from ftwax import types
from ftwax.records import config_files
from ftwax.reporting import comparison, drawing

# The return of a cell is that of the episodes in this share of its steps.
LAST_SHARE = 0.1

# Points on a curve; each is the mean over an interval of steps.
_NUM_POINTS = 40

# With more curves than this, nobody would tell them apart.
_MAX_CURVES = 10


class Cell(NamedTuple):
  """What was trained with the same values, for each of S seeds.

  Attributes:
    values: values of the fields that the sweep changes.
    seeds: the S seeds.
    steps: float64 [I], steps after each iteration.
    returns: float64 [S, I], mean return of the training episodes that ended in
      an iteration; NaN without any.
    num_episodes: int [S, I], number of these episodes.
  """

  values: Mapping[str, Any]
  seeds: Sequence[int]
  steps: types.Floats
  returns: types.Floats
  num_episodes: types.NumpyArray

  @property
  def last(self) -> types.Floats:
    """Mean return in the last tenth of the steps, [S]; NaN without any."""
    start = self.steps[-1] * (1 - LAST_SHARE)
    return _means(self, np.array([start, self.steps[-1]]))[:, 0]


def _means(cell: Cell, edges: types.Floats) -> types.Floats:
  """Returns mean returns [S, n] of the episodes between n + 1 edges."""
  index = np.searchsorted(edges, cell.steps) - 1  # [I], after each iteration.
  of_bin = index[:, None] == np.arange(len(edges) - 1)  # [I, n]
  total = (np.nan_to_num(cell.returns) * cell.num_episodes) @ of_bin
  count = cell.num_episodes @ of_bin
  return total / np.where(count > 0, count, np.nan)


def find_best(cells: Sequence[Cell]) -> int:
  """Returns the index of the cell with the highest mean return."""
  means = [cell.last.mean() for cell in cells]
  return int(np.argmax(np.nan_to_num(means, nan=-np.inf)))


def describe(values: Mapping[str, Any]) -> str:
  """Returns the values of a cell as text."""
  texts = [f'{name}={_readable(value)}' for name, value in values.items()]
  return ' '.join(texts) or 'the experiment as it is'


def _readable(value: Any) -> str:
  plain = config_files.to_json(value)
  return f'{plain:.4g}' if isinstance(plain, float) else str(plain)


def make_table(cells: Sequence[Cell]) -> list[list[str]]:
  """Returns a line of names, then one for each cell, in the order given."""
  names = list(cells[0].values)
  table = [[*names, 'return', 'each seed']]
  for cell in cells:
    values = [_readable(cell.values[name]) for name in names]
    each = ' '.join(f'{value:.3f}' for value in cell.last)
    table.append(
      [*values, comparison.format_interval(cell.last.tolist()), each]
    )
  return table


def plot(cells: Sequence[Cell], title: str) -> matplotlib.figure.Figure:
  """Plots returns over steps, with intervals, of the best cells."""
  figure, axes = comparison.make_axes('episode return')
  means = np.nan_to_num([cell.last.mean() for cell in cells], nan=-np.inf)
  order = np.argsort(-means, kind='stable')[:_MAX_CURVES]
  for rank, index in enumerate(order):
    cell, color = cells[index], drawing.member_color(rank)
    edges = np.linspace(0.0, cell.steps[-1], _NUM_POINTS + 1)
    returns = _means(cell, edges)
    known = np.isfinite(returns).all(axis=0)
    steps, returns = ((edges[:-1] + edges[1:]) / 2)[known], returns[:, known]
    mean = returns.mean(axis=0)
    axes.plot(steps, mean, color=color, label=describe(cell.values))
    if len(cell.seeds) > 1:
      half = comparison.half_width(returns)
      axes.fill_between(
        steps, mean - half, mean + half, color=color, alpha=0.15, linewidth=0
      )
  axes.set_title(title, loc='left', fontsize=10)
  if cells[0].values:
    axes.legend(fontsize=8, frameon=False)
  return figure


def write(
  cells: Sequence[Cell], directory: str | os.PathLike[str], title: str
) -> None:
  """Writes `sweep.csv`, a row for each cell, and its curves, `sweep.png`."""
  folder = pathlib.Path(directory)
  names = list(cells[0].values)
  with (folder / 'sweep.csv').open('w', newline='', encoding='utf-8') as file:
    writer = csv.writer(file)
    each = [f'seed_{seed}' for seed in cells[0].seeds]
    writer.writerow([*names, 'return', 'half_width', *each])
    for cell in cells:
      values = [config_files.to_json(cell.values[name]) for name in names]
      last = cell.last.tolist()
      half = comparison.half_width(cell.last) if len(last) > 1 else ''
      writer.writerow([*values, cell.last.mean(), half, *last])
  drawing.write_png(folder / 'sweep.png', plot(cells, title))
