"""Compares variants of an experiment over several seeds."""

import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ftwax.reporting import comparison_curves, curves, drawing
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import run_records, runs

CURVES_FILE = 'comparison.png'

# `(seed) -> experiment`, for each variant by name.
Variants = Mapping[str, Callable[[int], experiment_lib.ExperimentConfig]]


class Score(NamedTuple):
  """The score of a run.

  Attributes:
    last: mean return over the last episodes; see `runs.RunResult`.
    whole: mean return over all training episodes of the run, which reflects the
      speed of learning.
    seconds: duration of training.
  """

  last: float
  whole: float
  seconds: float


def compare(
  variants: Variants, seeds: Sequence[int], runtime: str, **options: Any
) -> dict[str, list[Score]]:
  """Runs each variant with each seed, in turn, and prints the scores.

  Learning curves of all runs are written to `comparison.png` in the directory
  of the first run.

  Args:
    variants: experiments by name; runs with the same experiment name get
      separate directories.
    seeds: seeds to run each variant with.
    runtime: see `runs.run_experiment`.
    **options: options of the runtime; see `runs.run_experiment`.

  Returns:
    Scores by variant, one for each seed.
  """
  scores: dict[str, list[Score]] = {name: [] for name in variants}
  run_dirs: dict[str, list[pathlib.Path]] = {name: [] for name in variants}
  for seed in seeds:
    for name, make_experiment in variants.items():
      result = runs.run_experiment(
        make_experiment(seed), runtime=runtime, **options
      )
      scores[name].append(_score(result))
      run_dirs[name].append(result.run_dir)
  for title, field in (
    (f'Mean return of the last {run_records.WINDOW} episodes', 'last'),
    ('Mean return of all episodes of the run', 'whole'),
    ('Seconds', 'seconds'),
  ):
    print(f'\n{title}\n{_table(scores, seeds, field)}')
  print(f'\nCurves: {_plot(run_dirs)}')
  return scores


def _plot(run_dirs: Mapping[str, Sequence[pathlib.Path]]) -> pathlib.Path:
  first = next(iter(run_dirs.values()))[0]
  title = f'{first.resolve().parent.name}: training, and means over seeds'
  figure = comparison_curves.plot_comparison(run_dirs, title)
  path = first / CURVES_FILE
  path.write_bytes(drawing.to_png(figure))
  return path


def _score(result: runs.RunResult) -> Score:
  episodes = curves.read_returns(result.run_dir, 'train')
  total = float(episodes.returns @ episodes.num_episodes)
  whole = total / max(1.0, float(episodes.num_episodes.sum()))
  return Score(result.mean_return, whole, result.counts.seconds)


def _table(
  scores: Mapping[str, Sequence[Score]], seeds: Sequence[int], field: str
) -> str:
  width = max(map(len, scores))
  lines = [
    ' '.join([' ' * width, *(f'{f"seed {s}":>9}' for s in seeds), '     mean'])
  ]
  for name, row in scores.items():
    values = [getattr(score, field) for score in row]
    cells = [*values, statistics.mean(values)]
    lines.append(' '.join([f'{name:{width}}', *(f'{x:9.3f}' for x in cells)]))
  return '\n'.join(lines)
