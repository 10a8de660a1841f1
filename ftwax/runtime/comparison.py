"""Runs variants of an experiment with several seeds, and compares the runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import runs

if TYPE_CHECKING:
  from ftwax.reporting import comparison

CURVES_FILE = 'comparison.png'

# `(seed) -> experiment`, for each variant by name.
Variants = Mapping[str, Callable[[int], experiment_lib.ExperimentConfig]]


def compare(
  variants: Variants, seeds: Sequence[int], runtime: str, **options: Any
) -> dict[str, list[comparison.Run]]:
  """Runs each variant with each seed, in turn, and prints a table.

  Learning curves of all runs are written to `comparison.png` in the directory
  of the first run.

  Args:
    variants: experiments by name; runs with the same experiment name get
      separate directories.
    seeds: seeds to run each variant with.
    runtime: see `runs.run_experiment`.
    **options: options of the runtime; see `runs.run_experiment`.

  Returns:
    Results by variant, one for each seed.
  """
  from ftwax.reporting import comparison, drawing  # Slow: Matplotlib.

  rows: dict[str, list[comparison.Run]] = {name: [] for name in variants}
  for seed in seeds:
    for name, make_experiment in variants.items():
      result = runs.run_experiment(
        make_experiment(seed), runtime=runtime, **options
      )
      rows[name].append(comparison.read(result.run_dir))
  print(f'\n{comparison.format_table(comparison.make_table(rows))}')
  first = next(iter(rows.values()))[0].directory
  title = f'{first.resolve().parent.name}: training, and means over seeds'
  path = first / CURVES_FILE
  drawing.write_png(path, comparison.plot(rows, title))
  print(f'\nCurves: {path}')
  return rows
