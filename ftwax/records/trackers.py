"""Loggers for experiment trackers: Weights & Biases and MLflow.

A tracker shows runs side by side. The main run has the numbers of all logs. In
a population, each member is also a run of its own, with its rating, return,
hyperparameters and internal rewards, so that the tracker's tools for comparing
runs, such as parallel coordinates, compare members.

Trackers are configured as their own documentation describes, e.g. by
`WANDB_MODE=offline` or `MLFLOW_TRACKING_URI`.
"""

import importlib
import math
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ftwax import extras
from ftwax.records import (
  config_files,
  files,
  log_values,
  run_directory,
)

# MLflow's limits on the number of parameters in a batch, and on their length.
_MAX_PARAMS, _MAX_PARAM_LENGTH = 100, 500


class Tracker(Protocol):
  """One run in an experiment tracker."""

  def log(self, label: str, values: Mapping[str, float], step: int) -> None:
    """Writes numbers.

    Args:
      label: name of the log.
      values: finite numbers, by name.
      step: step on the axis of this log.
    """

  def close(self) -> None:
    """Ends the run; no other write may follow."""


class WandbTracker:
  """A run of Weights & Biases."""

  def __init__(
    self, run_dir: pathlib.Path, name: str, config: Mapping[str, Any]
  ):
    wandb = _import('wandb')
    self._run = wandb.init(
      project=run_dir.resolve().parent.name,
      group=run_dir.resolve().name,
      name=name,
      # A fixed ID, by which a resumed run continues its own.
      id=name.replace(' ', '-'),
      resume='allow',
      dir=run_dir,
      config=dict(config),
      # Members have runs of their own, open at the same time.
      reinit='create_new',
    )
    self._labels: set[str] = set()

  def log(self, label: str, values: Mapping[str, float], step: int) -> None:
    """Writes numbers; each log has its own axis."""
    axis = f'{label}/step'
    if label not in self._labels:
      self._labels.add(label)
      self._run.define_metric(f'{label}/*', step_metric=axis)
    numbers = {f'{label}/{key}': value for key, value in values.items()}
    self._run.log({**numbers, axis: step})

  def close(self) -> None:
    """Ends the run."""
    self._run.finish()


class MLflowTracker:
  """A run of MLflow."""

  def __init__(
    self, run_dir: pathlib.Path, name: str, config: Mapping[str, Any]
  ):
    mlflow = _import('mlflow')
    self._entities = mlflow.entities
    # Not `mlflow.log_metrics`, which writes to the one active run.
    self._client = mlflow.MlflowClient()
    resolved = run_dir.resolve()
    experiment = self._client.get_experiment_by_name(resolved.parent.name)
    experiment_id = (
      self._client.create_experiment(resolved.parent.name)
      if experiment is None
      else experiment.experiment_id
    )
    # A resumed run continues its MLflow run.
    tags = {'group': str(resolved), 'member': name}
    # Compared here, since a query cannot escape the quotes in a path.
    found = [
      run
      for run in self._client.search_runs([experiment_id], max_results=10_000)
      if tags.items() <= run.data.tags.items()
    ]
    made = found or [
      self._client.create_run(experiment_id, tags=tags, run_name=name)
    ]
    self._run_id = made[0].info.run_id
    if not found:
      self._log_params(config)

  def log(self, label: str, values: Mapping[str, float], step: int) -> None:
    """Writes numbers."""
    now = self._now()
    self._client.log_batch(
      self._run_id,
      metrics=[
        self._entities.Metric(f'{label}/{key}', value, now, step)
        for key, value in values.items()
      ],
    )

  def close(self) -> None:
    """Ends the run."""
    self._client.set_terminated(self._run_id)

  def _log_params(self, config: Mapping[str, Any]) -> None:
    params = [
      self._entities.Param(key, str(value)[:_MAX_PARAM_LENGTH])
      for key, value in config.items()
    ]
    for start in range(0, len(params), _MAX_PARAMS):
      self._client.log_batch(
        self._run_id, params=params[start : start + _MAX_PARAMS]
      )

  def _now(self) -> int:
    return round(1_000 * time.time())


_MAKERS: Mapping[
  str, Callable[[pathlib.Path, str, Mapping[str, Any]], Tracker]
] = {'wandb': WandbTracker, 'mlflow': MLflowTracker}

TRACKERS = tuple(_MAKERS)


class Tracking:
  """The runs of a population in one tracker, shared by all of its logs."""

  def __init__(self, run_dir: pathlib.Path, tracker: str):
    """Opens the run.

    Args:
      run_dir: directory of the run, whose configuration is recorded.
      tracker: one of `TRACKERS`.

    Raises:
      ImportError: if the tracker is not installed.
      ValueError: if there is no such tracker.
    """
    if tracker not in _MAKERS:
      raise ValueError(
        f'tracker ({tracker!r}) must be one of {TRACKERS}; choose one of these.'
      )
    self._make = _MAKERS[tracker]
    self._run_dir = run_dir
    self._config = _read_config(run_dir)
    self._run = self._make(run_dir, run_dir.resolve().name, self._config)
    self._members: list[Tracker] = []
    self._event_names: Sequence[str] | None = None
    self._num_open = 0

  def open(self, label: str, steps_key: str | None) -> 'TrackingLogger':
    """Returns the logger of a label."""
    self._num_open += 1
    return TrackingLogger(self, label, steps_key)

  def log(self, label: str, values: Mapping[str, Any], step: int) -> None:
    """Writes numbers to the main run, and those of members to their runs."""
    self._run.log(label, _finite(values), step)
    if label == 'population':
      self._log_members(values, step)

  def release(self) -> None:
    """Closes all runs once every logger is closed."""
    self._num_open -= 1
    if self._num_open == 0:
      for tracker in (*self._members, self._run):
        tracker.close()

  def _log_members(self, values: Mapping[str, Any], step: int) -> None:
    num_members = len(values['ratings'])
    if num_members < 2:
      return
    while len(self._members) < num_members:
      name = f'{self._run_dir.resolve().name} member {len(self._members)}'
      self._members.append(self._make(self._run_dir, name, self._config))
    for member, tracker in enumerate(self._members):
      row = {
        key: value[member]
        for key, value in values.items()
        if isinstance(value, list)
        and len(value) == num_members
        and not key.startswith('payoff')
      }
      tracker.log('population', _finite(self._name_events(row)), step)

  def _name_events(self, row: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces vectors in a row by one number per event."""
    named = {}
    for key, value in row.items():
      if not isinstance(value, list):
        named[key] = value
        continue
      if self._event_names is None:
        self._event_names = run_directory.read_event_names(self._run_dir) or [
          str(event) for event in range(len(value))
        ]
      if len(value) == len(self._event_names):
        for event, entry in zip(self._event_names, value, strict=True):
          named[f'{key}/{event}'] = entry
    return named


class TrackingLogger:
  """Writes one log of a run to a tracker."""

  def __init__(self, tracking: Tracking, label: str, steps_key: str | None):
    """Makes a logger; see `Tracking.open`."""
    self._tracking = tracking
    self._label, self._steps_key = label, steps_key
    self._num_writes = 0

  def write(self, values: log_values.LoggingData) -> None:
    """Writes the numbers of a row."""
    plain = log_values.to_plain(log_values.without_images(values))
    steps = plain.get(self._steps_key) if self._steps_key else None
    step = self._num_writes if steps is None else int(steps)
    self._num_writes += 1
    self._tracking.log(self._label, plain, step)

  def close(self) -> None:
    """Closes the log; the last log also closes the run."""
    self._tracking.release()


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
  return {
    key: float(value)
    for key, value in values.items()
    if isinstance(value, int | float) and math.isfinite(value)
  }


def _read_config(run_dir: pathlib.Path) -> dict[str, Any]:
  """Returns the configuration of a run by dotted key."""
  path = run_dir / run_directory.CONFIG_FILE
  return config_files.flatten(files.read_object(path))


def _import(package: str) -> Any:
  with extras.required(package):
    return importlib.import_module(package)
