"""Statistics over seeds and tasks by rliable, as one figure of two tables.

    uv run --extra benchmarks benchmarks/seeds.py defaults
    uv run --extra benchmarks benchmarks/seeds.py cores

draw `docs/figures/seeds_NAME.png` from the numbers of each seed that the tables
of the manual have. The figure shows interquartile means, performance profiles
and probabilities of improvement with 95% intervals of a bootstrap stratified by
task (Agarwal et al., 2021, arXiv:2108.13264). `memory.py profile` draws it of
the runs in a folder.

The table that compares all cores has means of seeds alone, so that `cores` has
those that two other tables compare, seed by seed.
"""

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import figure as figures

from ftwax import types

_DOCS = pathlib.Path(__file__).parents[1] / 'docs'

_NUM_SAMPLES = 2000

# Tasks of `defaults.TASKS` that all agents of the figure were run on.
_TASKS = {'CartPole-v1': 150, 'catch': 200, 'Acrobot-v1': 300}

# Mean scores of guessing in the tasks of the cores, whose best is 1.
_CHANCE = {'ten symbols in order': 0.25, 'six pairs': 0.25, 'cue': 0.5}

# Scores [runs, tasks] by name.
Scores = Mapping[str, types.NumpyArray]


def read_table(page: str, first: str) -> list[list[str]]:
  """Returns the rows of the table of a page whose head begins so."""
  lines = (_DOCS / page).read_text('utf-8').splitlines()
  start = next(i for i, x in enumerate(lines) if x.startswith(f'| {first} |'))
  rows = []
  for line in lines[start + 2 :]:
    if not line.startswith('|'):
      break
    rows.append([cell.strip() for cell in line.strip('|').split('|')])
  return rows


def read_defaults() -> Scores:
  """Returns the share of steps that were left when a task was solved.

  It is 0 if it never was.
  """
  scores: dict[str, list[list[float]]] = {}
  task = ''
  for cell, agent, ours, peer in read_table('results.md', 'task, score'):
    task = cell.partition(',')[0] or task
    for name, steps in ((agent, ours), (f"SB3's {agent}", peer)):
      if task in _TASKS and steps:
        scores.setdefault(name, []).append(
          [
            0.0 if x == 'never' else 1 - float(x.rstrip('k')) / _TASKS[task]
            for x in steps.split(', ')
          ]
        )
  return {
    name: np.array(rows).T
    for name, rows in scores.items()
    if len(rows) == len(_TASKS)
  }


def read_cores() -> Scores:
  """Returns the scores of cores above guessing, of which the best is 1."""
  rows = {
    cells[0].partition(',')[0]: [_numbers(cell) for cell in cells[1:3]]
    for cells in read_table('which_core.md', 'task | LSTM')
  }
  cue = {c[0]: _numbers(c[1]) for c in read_table('results.md', 'core')}
  tasks = [*rows.values(), [cue['LSTM'], cue['RPTH']]]
  chance = np.array(list(_CHANCE.values()))
  return {
    name: (np.array([task[i] for task in tasks]).T - chance) / (1 - chance)
    for i, name in enumerate(('LSTM', 'RPTH'))
  }


def _numbers(cell: str) -> list[float]:
  return [float(number) for number in cell.split(', ')]


def draw(
  scores: Scores,
  pairs: Sequence[tuple[str, str]],
  score: str,
  path: pathlib.Path,
) -> None:
  """Draws the figure, and prints its numbers.

  Args:
    scores: [runs, tasks] of each name, higher is better.
    pairs: names, of which the first may improve on the second.
    score: what a score is.
    path: path of the figure.
  """
  # An extra, which takes seconds to import.
  from rliable import library, metrics

  np.random.seed(0)  # noqa: NPY002 It draws from the global generator.

  def estimate(of: Mapping[str, Any], function: Any) -> dict[str, Any]:
    values, ends = library.get_interval_estimates(
      of, function, reps=_NUM_SAMPLES
    )
    return {name: (*values[name], *ends[name][:, 0]) for name in of}

  iqm = estimate(scores, lambda x: np.array([metrics.aggregate_iqm(x)]))
  better = estimate(
    {f'{a}\nover {b}': (scores[a], scores[b]) for a, b in pairs},
    lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
  )
  low = min(0.0, *(values.min() for values in scores.values()))
  taus = np.linspace(low, 1.0, 101)
  profiles, bands = library.create_performance_profile(
    dict(scores), taus, reps=_NUM_SAMPLES
  )
  canvas = figures.Figure((9, 3), layout='constrained')
  left, middle, right = canvas.subplots(1, 3)
  for axes, rows in ((left, iqm), (right, better)):
    for place, (name, (value, first, last)) in enumerate(rows.items()):
      print(f'{name!r}: {value:.2f} ({first:.2f} to {last:.2f})')
      axes.hlines(place, first, last, f'C{place}', alpha=0.4, linewidth=9)
      axes.plot(value, place, f'C{place}|', markersize=14, markeredgewidth=2)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
  for place, name in enumerate(scores):
    middle.plot(taus, profiles[name], label=name)
    middle.fill_between(taus, *bands[name], color=f'C{place}', alpha=0.15)
  left.set(xlabel=score, title='Interquartile mean')
  middle.set(xlabel=score, ylabel='share of runs above', title='Profile')
  middle.legend(fontsize='x-small')
  right.axvline(0.5, color='gray', linewidth=0.8)
  right.set(xlabel='probability', title='Improvement', xlim=(-0.05, 1.05))
  canvas.savefig(path, dpi=110)
  print(path)


def main(name: str) -> None:
  """Draws the figure of a name."""
  path = _DOCS / 'figures' / f'seeds_{name}.png'
  if name == 'cores':
    draw(read_cores(), [('RPTH', 'LSTM')], 'score above guessing', path)
    return
  pairs = [('PPO', "SB3's PPO"), ('A2C', "SB3's A2C"), ('PPO', 'A2C')]
  draw(read_defaults(), pairs, 'share of steps left', path)


if __name__ == '__main__':
  main(*sys.argv[1:])
