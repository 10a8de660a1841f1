"""Loggers for experiment trackers: Weights & Biases.

A tracker shows runs side by side. The main run has the numbers of all logs. In
a population, each member is also a run of its own, with its rating, return,
hyperparameters and internal rewards, so that the tracker's tools for comparing
runs, such as parallel coordinates, compare members.

It is configured as its own documentation describes, e.g. by
`WANDB_MODE=offline`.
"""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ftwax import extras
from ftwax.records import config_files, files, log_values, run_directory


class WandbTracker:
  """A run of Weights & Biases."""

  def __init__(
    self, run_dir: pathlib.Path, name: str, config: Mapping[str, Any]
  ):
    with extras.required('wandb', 'loggers'):
      import wandb
    files.make_folder(run_dir, 'wandb')
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
    """Writes finite numbers at a step of the log, which has its own axis."""
    axis = f'{label}/step'
    if label not in self._labels:
      self._labels.add(label)
      self._run.define_metric(f'{label}/*', step_metric=axis)
    numbers = {f'{label}/{key}': value for key, value in values.items()}
    self._run.log({**numbers, axis: step})

  def close(self) -> None:
    """Ends the run; no other write may follow."""
    self._run.finish()


_MAKERS: dict[str, Any] = {'wandb': WandbTracker}

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
    config = files.read_object(run_dir / run_directory.CONFIG_FILE)
    self._config = config_files.flatten(config)  # By dotted key.
    self._run = self._make(run_dir, run_dir.resolve().name, self._config)
    self._members: list[Any] = []
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
        names = run_directory.read_game(self._run_dir, 'event_names')
        self._event_names = names or [str(i) for i in range(len(value))]
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
