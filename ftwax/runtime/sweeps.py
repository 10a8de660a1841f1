"""Sweeps: values of fields, and seeds, trained as one compiled program.

Hyperparameters are data of the training state. Cells that differ in them alone,
with all seeds, are therefore one `vmap` of `make_train`. Other fields, such as
sizes and cores, are part of the program; each of their combinations is
compiled.
"""

import contextlib
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import compilation, hyperparameters, parts, types
from ftwax.environments import episode_metrics, functional, game_vectors
from ftwax.records import run_directory
from ftwax.reporting import comparison, sweep_figures
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.device import train as train_lib

# Begins the paths of what belongs to the agent.
_AGENT = 'agent.'

# Values by dotted field of the experiment, such as `agent.learning_rate`.
Values = Mapping[str, Any]


def grid(values: Mapping[str, Sequence[Any]]) -> list[Values]:
  """Returns a cell for each combination of values of fields."""
  rows = itertools.product(*values.values())
  return [dict(zip(values, row, strict=True)) for row in rows]


def draw(
  priors: Mapping[str, hyperparameters.Prior], num_cells: int, seed: int = 0
) -> list[Values]:
  """Returns cells whose values are drawn from priors, for a random search."""
  keys = jax.random.split(jax.random.PRNGKey(seed), num_cells)
  drawn: Any = jax.vmap(lambda key: hyperparameters.sample(key, dict(priors)))(
    keys
  )
  return [
    {name: drawn[name][index].item() for name in priors}
    for index in range(num_cells)
  ]


def run(
  experiment: experiment_lib.ExperimentConfig,
  cells: Sequence[Values],
  seeds: Sequence[int] = range(3),
  run_dir: str | os.PathLike[str] | None = None,
  objective: str = episode_metrics.RETURN,
) -> list[sweep_figures.Cell]:
  """Trains each cell with each seed; prints and writes a row for each cell.

  All cells that differ in hyperparameters alone train at once, and need the
  memory of that many trainings. Nothing is evaluated, and no agents are saved.

  Args:
    experiment: one agent, and an environment or game in JAX.
    cells: values of fields that are set, such as those of `grid` or `draw`; all
      of the same fields.
    seeds: seeds of each cell.
    run_dir: directory of `sweep.csv` and `sweep.html`; by default a new one in
      `runs/NAME_sweep`.
    objective: what cells are compared by: the return; or a metric that the
      environment measures, such as `metrics/success`, or `-metrics/distance` if
      less is better.

  Returns:
    The results, in the order of `cells`.

  Raises:
    TypeError: if the environment is not written in JAX, or a field is unknown.
    ValueError: if there are no cells or seeds, cells have different fields, a
      value is invalid, or the experiment has a population.
  """
  if not cells or not seeds:
    raise ValueError(
      f'cells ({len(cells)}) and seeds ({len(seeds)}) must be one or more;'
      ' choose [{}] to train the experiment as it is, and range(3).'
    )
  if experiment.population.num_members > 1:
    raise ValueError(
      f'num_members ({experiment.population.num_members}) must be 1 in a sweep,'
      ' whose cells are agents of their own; leave out the population.'
    )
  name, sign = episode_metrics.read_criterion('objective', objective)
  if name:
    _check_measured(experiment, name)
    experiment = experiment.replace(
      metrics=episode_metrics.with_name(experiment.metrics, name)
    )
  column = episode_metrics.PREFIX + name if name else episode_metrics.RETURN
  programs = _group(experiment, cells)
  title = f'{experiment.name}_sweep'
  directory = (
    run_directory.create('runs', title, seeds[0], experiment)
    if run_dir is None
    else run_directory.create_at(run_dir, experiment)
  )
  print(
    f'cells: {len(cells)}, seeds of each: {len(seeds)}, programs to compile:'
    f' {len(programs)}',
    flush=True,
  )
  trained: dict[int, sweep_figures.Cell] = {}
  for changed, indices in programs:
    metrics = _train(
      changed, [cells[index] for index in indices], seeds, column
    )
    for row, index in enumerate(indices):
      trained[index] = sweep_figures.Cell(
        cells[index],
        seeds,
        metrics['num_steps'][row].mean(axis=0).cumsum(),
        sign * metrics[column][row, ..., 0].astype(np.float64),
        metrics['num_episodes'][row, ..., 0],
        objective,
      )
  results = [trained[index] for index in range(len(cells))]
  print(comparison.format_table(sweep_figures.make_table(results)))
  print(f'\n{sweep_figures.name_best(results)} See {directory}')
  sweep_figures.write(results, directory, f'{title}: training')
  return results


def _check_measured(
  experiment: experiment_lib.ExperimentConfig, name: str
) -> None:
  """Raises a ValueError if the environment does not measure a metric."""
  games = game_vectors.make_games(
    experiment.environment_factory, [0], experiment.name
  )
  with contextlib.closing(games):
    if games.spec.num_players > 1:
      raise ValueError(
        f"objective ('{episode_metrics.PREFIX}{name}') must be"
        f' {episode_metrics.RETURN!r} in a game of {games.spec.num_players}'
        ' players; leave it out.'
      )
    if games.game is not None:  # Else the environment is refused later.
      functional.check_metric(games.game, 'objective', name)


def set_fields(config: Any, values: Values) -> Any:
  """Returns a config with fields changed, which are named by dotted paths."""
  for path, value in values.items():
    config = parts.change(config, path, value)
  return config


def _hyperparameters(
  experiment: experiment_lib.ExperimentConfig, cell: Values
) -> dict[str, Any]:
  """Returns the values of a cell that are data, by name."""
  known = _paths(experiment)
  return {
    path.removeprefix(_AGENT): cell[path] for path in cell if path in known
  }


def _paths(experiment: experiment_lib.ExperimentConfig) -> set[str]:
  """Returns the paths of all hyperparameters in an experiment."""
  return {f'{_AGENT}{name}' for name in parts.collect(experiment.agent)}


def _group(
  experiment: experiment_lib.ExperimentConfig, cells: Sequence[Values]
) -> list[tuple[experiment_lib.ExperimentConfig, list[int]]]:
  """Returns what to compile, and the indices of the cells that share it.

  Raises:
    ValueError: if fields of cells differ, or a value is invalid.
  """
  groups: list[tuple[Values, experiment_lib.ExperimentConfig, list[int]]] = []
  for index, cell in enumerate(cells):
    if set(cell) != set(cells[0]):
      raise ValueError(
        f'cell {index} ({sorted(cell)}) must have the fields of the first one,'
        f' {sorted(cells[0])}; choose those of `sweeps.grid`.'
      )
    changed = set_fields(experiment, cell)  # Also checks the values.
    data = _hyperparameters(changed, cell)
    for name, value in data.items():
      if not isinstance(value, int | float):
        raise ValueError(
          f'{name} ({value}) must be a number in a cell; draw cells by'
          ' `sweeps.draw`.'
        )
    paths = _paths(changed)
    fixed = {path: cell[path] for path in cell if path not in paths}
    for values, _, indices in groups:
      if values == fixed:
        indices.append(index)
        break
    else:
      groups.append((fixed, changed, [index]))
  return [(changed, indices) for _, changed, indices in groups]


def _train(
  experiment: experiment_lib.ExperimentConfig,
  cells: Sequence[Values],
  seeds: Sequence[int],
  objective: str,
) -> dict[str, types.NumpyArray]:
  """Trains C cells with S seeds at once; returns metrics [C, S, I, ...].

  Raises:
    ValueError: if timesteps do not fit the specs of the environment.
  """
  init, train = train_lib.make_train(experiment)

  def run(state: Any) -> Any:
    _, metrics = train(state)
    names = ('num_steps', objective, 'num_episodes', 'is_valid')
    return {name: metrics[name] for name in names}

  rows = [_hyperparameters(experiment, cell) for cell in cells]
  values = {name: jnp.array([row[name] for row in rows]) for name in rows[0]}
  keys = jnp.stack([jax.random.PRNGKey(seed) for seed in seeds])
  over_seeds = jax.vmap(lambda key, row: init(key, **row), in_axes=(0, None))
  over_cells = jax.vmap(over_seeds, in_axes=(None, 0), axis_size=len(cells))
  # Apart, since only training is worth optimizing.
  states = compilation.jit_unoptimized(over_cells)(keys, values)
  train_all = compilation.jit(jax.vmap(jax.vmap(run)))
  metrics: Any = jax.device_get(train_all(states))
  if not metrics['is_valid'].all():
    raise ValueError(
      'environment must give timesteps that fit its specs, and some do not;'
      ' `ftwax check` names the first fault.'
    )
  return dict(metrics)
