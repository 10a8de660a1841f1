"""Results of a sweep: a table with a row for each cell, a page, CSV.

Intervals are those of `comparison`.
"""

import csv
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftwax import parts, types
from ftwax.records import config_files, files
from ftwax.reporting import comparison, page

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
      an iteration; NaN without any. With another objective, means of that.
    num_episodes: int [S, I], number of these episodes.
    objective: name of what is compared, of which more is better; see
      `sweeps.run`.
  """

  values: Mapping[str, Any]
  seeds: Sequence[int]
  steps: types.Floats
  returns: types.Floats
  num_episodes: types.NumpyArray
  objective: str = 'episode_return'

  @property
  def label(self) -> str:
    """What the objective is called in tables and figures."""
    return self.objective.removeprefix('episode_')

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


def _rank(cells: Sequence[Cell]) -> list[Cell]:
  """Returns the cells by their mean return, the highest first."""
  means = np.nan_to_num([cell.last.mean() for cell in cells], nan=-np.inf)
  return [cells[index] for index in np.argsort(-means, kind='stable')]


def name_best(cells: Sequence[Cell]) -> str:
  """Returns a sentence on the best cell, if seeds set it apart from the next.

  Its interval must lie above those of all others, each of three seeds or more.
  """
  best, *others = _rank(cells)
  if len(best.seeds) < 3:
    return 'No best cell is named with fewer than 3 seeds.'
  low, _ = comparison.interval(best.last)
  if any(not comparison.interval(cell.last)[1] < low for cell in others):
    return 'No cell is best: intervals of the highest means overlap.'
  return f'Best: {describe(best.values)}.'


def describe(values: Mapping[str, Any]) -> str:
  """Returns the values of a cell as text."""
  texts = [f'{name}={_readable(value)}' for name, value in values.items()]
  return ' '.join(texts) or 'the experiment as it is'


def _readable(value: Any) -> str:
  plain = config_files.to_json(value)
  if isinstance(value, parts.Part):
    changed = {
      name: given
      for name, given in vars(value).items()
      if given != getattr(type(value), name, None)  # Its default.
    }
    kind = plain[config_files.TYPE].rpartition('.')[-1]
    return f'{kind}({describe(changed)})' if changed else kind
  return f'{plain:.4g}' if isinstance(plain, float) else str(plain)


def make_table(cells: Sequence[Cell]) -> list[list[str]]:
  """Returns a line of names, then one for each cell, in the order given."""
  names = list(cells[0].values)
  table = [[*names, cells[0].label, 'each seed']]
  for cell in cells:
    values = [_readable(cell.values[name]) for name in names]
    each = ' '.join(f'{value:.4g}' for value in cell.last)
    table.append(
      [*values, comparison.format_interval(cell.last.tolist()), each]
    )
  return table


def figure(cells: Sequence[Cell]) -> dict[str, Any]:
  """Returns returns over steps, with intervals, of the best cells."""
  lines = {}
  for cell in _rank(cells)[:_MAX_CURVES]:
    edges = np.linspace(0.0, cell.steps[-1], _NUM_POINTS + 1)
    steps = (edges[:-1] + edges[1:]) / 2
    lines[describe(cell.values)] = steps, _means(cell, edges)
  return comparison.figure(cells[0].label, lines)


def _title(cells: Sequence[Cell]) -> str:
  label = cells[0].label
  return 'Returns' if label == 'return' else label


def write(
  cells: Sequence[Cell], directory: str | os.PathLike[str], title: str
) -> None:
  """Writes `sweep.csv`, a row for each cell, and `sweep.html` with curves."""
  folder = pathlib.Path(directory)
  names = list(cells[0].values)
  with (folder / 'sweep.csv').open('w', newline='', encoding='utf-8') as file:
    writer = csv.writer(file)
    each = [f'seed_{seed}' for seed in cells[0].seeds]
    writer.writerow([*names, cells[0].label, 'low', 'high', *each])
    for cell in cells:
      values = [config_files.to_json(cell.values[name]) for name in names]
      ends = comparison.interval(cell.last).tolist()
      last = cell.last.tolist()
      writer.writerow([*values, cell.last.mean(), *ends, *last])
  head, *rows = (line[len(names) :] for line in make_table(cells))
  returns = {describe(cell.values): cell.last for cell in _rank(cells)}
  body = [
    page.paragraph(f'{name_best(cells)} {comparison.EXPLANATION}'),
    page.columns(
      ['', *head],
      [[describe(c.values), *row] for c, row in zip(cells, rows, strict=True)],
    ),
    *page.charts(
      _title(cells), comparison.POINTS, [comparison.points(returns)]
    ),
    *page.charts(
      f'{_title(cells)} in training', 'The highest cells.', [figure(cells)]
    ),
  ]
  files.write_atomically(folder / 'sweep.html', page.render(title, body))
