"""Loggers that write values of a run to files, TensorBoard and the terminal.

The interface is acme's: `write` a mapping of names to numbers, then `close`.
In a run's directory each label has its own files:

    logs/<label>.jsonl  tensorboard/<label>/

The name is `<label>-<instance>` if there are several of a kind, e.g. actors.
Every line is flushed. A line cut short by a kill is removed when the file is
opened again.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ftwax.records import files, log_values, tensorboard_logger

# Seconds between two rows of a label in an experiment tracker.
_TRACKER_PERIOD_S = 1.0

# Values that count from the start of a run, or identify a part of it. Merged
# rows keep the last of these, while other numbers are averaged.
_LAST = ('actor_steps', 'episodes', 'learner_steps', 'seconds', 'actor')

_NUM_EPISODES = 'num_episodes'


# Rows of a log beyond which some are left out.
_MAX_ROWS = 100_000


class Logger(Protocol):
  """Writes values to a file, a terminal, a server or another logger."""

  def write(self, values: log_values.LoggingData) -> None:
    """Writes `values` to the destination."""

  def close(self) -> None:
    """Closes the destination; no other write may follow."""


class LoggerFactory(Protocol):
  """Makes loggers, one for each label and instance."""

  def __call__(
    self,
    label: str,
    steps_key: str | None = None,
    instance: int | None = None,
  ) -> Logger:
    """Makes a logger.

    Args:
      label: name of the log, e.g. 'train', 'learner' or 'evaluation'.
      steps_key: name of the value that counts steps.
      instance: index among several loggers with this label.
    """


class JSONLLogger:
  """Appends rows to a JSONL file, one object per line.

  NaN and infinities, which JSON does not support, are written as null.
  """

  def __init__(self, path: str | os.PathLike[str]):
    self._file = files.open_to_append(pathlib.Path(path))

  def write(self, values: log_values.LoggingData) -> None:
    """Appends one line, without images."""
    numbers = log_values.without_images(values)
    plain = {
      key: log_values.null_non_finite(value)
      for key, value in log_values.to_plain(numbers).items()
    }
    self._file.write(json.dumps(plain, allow_nan=False) + '\n')
    self._file.flush()

  def close(self) -> None:
    """Closes the file."""
    self._file.close()


def read_jsonl(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
  """Reads the rows of a `JSONLLogger`, which may still be writing.

  A log with more than 100,000 rows, or with rows that take hundreds of
  megabytes, is thinned: every second row is left out, or three of four, and so
  on. The last row is always there.

  Args:
    path: path of the file.

  Returns:
    The rows, without an incomplete last line.

  Raises:
    ValueError: if the file cannot be read, or a complete line is not a JSON
      object.
  """
  with files.reading(path, 'rows of a log'):
    lines = _thin(files.read_lines(pathlib.Path(path)))
  rows = []
  for number, line in lines:
    try:
      rows.append(_checked(files.to_object(files.parse_text(line))))
    except (ValueError, RecursionError) as error:
      raise ValueError(
        f'line {number} of {path} ({line[:40]!r}) must be a JSON object:'
        f' {error}; remove the line.'
      ) from error
  return rows


def _checked(row: dict[str, Any]) -> dict[str, Any]:
  for name in ('actor_steps', 'learner_steps'):
    value = row.get(name)
    if isinstance(value, int | float) and not 0 <= value < 2**63:
      raise ValueError(f'{name} ({value}) is no number of steps')
  return row


def _thin(lines: Iterable[str]) -> list[tuple[int, str]]:
  """Returns lines and their numbers, from 1; leaves out some of too many."""
  kept: list[tuple[int, str]] = []
  stride, memory, last = 1, 0, None
  for number, line in enumerate(lines, start=1):
    last = number, line
    if (number - 1) % stride:
      continue
    kept.append(last)
    memory += files.memory_of(line)
    while len(kept) > _MAX_ROWS or (
      memory > files.MAX_MEMORY and len(kept) > 1
    ):
      stride, kept = 2 * stride, kept[::2]
      memory = sum(files.memory_of(line) for _, line in kept)
  if last is not None and kept[-1] is not last:
    kept.append(last)
  return kept


def drop_replaced(
  rows: Iterable[Mapping[str, Any]],
  count: Callable[[Mapping[str, Any]], float],
  repeats: bool = False,
) -> list[Mapping[str, Any]]:
  """Drops rows that a run has written again after it was resumed.

  Args:
    rows: rows of a log.
    count: returns a row's steps or games, which fall where the run resumed.
    repeats: whether several rows may have the same count.
  """
  kept: list[Mapping[str, Any]] = []
  for row in rows:
    while kept and count(kept[-1]) > count(row) - (not repeats):
      kept.pop()
    kept.append(row)
  return kept


class TerminalLogger:
  """Prints a line for each write; to print less often, use a `TimeFilter`."""

  def __init__(self, label: str):
    """Stores the prefix of every line."""
    self._label = label

  def write(self, values: log_values.LoggingData) -> None:
    """Prints one line."""
    print(f'[{self._label}] {log_values.format_values(values)}')

  def close(self) -> None:
    """Does nothing."""


class Dispatcher:
  """Writes to several loggers."""

  def __init__(self, to: Sequence[Logger]):
    self._to = tuple(to)

  def write(self, values: log_values.LoggingData) -> None:
    """Writes to each logger; transfers values from the device only once."""
    plain = log_values.to_plain(values)
    for logger in self._to:
      logger.write(plain)

  def close(self) -> None:
    """Closes each logger, even if closing another one fails."""
    with contextlib.ExitStack() as stack:
      # A stack calls the last callback first.
      for logger in reversed(self._to):
        stack.callback(logger.close)


class TimeFilter:
  """Drops writes that follow the last one too quickly.

  The last dropped values are written when the filter is closed, so that the end
  of a run is always logged.
  """

  def __init__(
    self,
    to: Logger,
    min_seconds: float,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Wraps `to`.

    Args:
      to: the logger to write to.
      min_seconds: minimum number of seconds between two writes.
      clock: returns seconds.
    """
    if min_seconds < 0:
      raise ValueError(
        f'min_seconds ({min_seconds}) must not be negative; choose 0 to keep'
        ' every write.'
      )
    self._to = to
    self._min_seconds = min_seconds
    self._clock = clock
    self._next_time = -math.inf
    self._dropped: log_values.LoggingData | None = None

  def write(self, values: log_values.LoggingData) -> None:
    """Writes `values`, or keeps them for `close`."""
    now = self._clock()
    if now < self._next_time:
      self._dropped = values
      return
    self._next_time = now + self._min_seconds
    self._dropped = None
    self._to.write(values)

  def close(self) -> None:
    """Writes the last dropped values and closes the logger."""
    if self._dropped is not None:
      self._to.write(self._dropped)
    self._to.close()


class EpisodeFilter:
  """Merges rows of training episodes that follow each other too quickly.

  A fast environment ends hundreds of episodes per second, which would fill the
  disk. Merging loses no episode: `num_episodes` is summed, and other numbers
  are averaged over episodes, so that means over many rows do not change. Counts
  of the run and strings are those of the last row. A mean over a non-finite
  value is non-finite.
  """

  def __init__(
    self,
    to: Logger,
    min_seconds: float,
    num_unmerged: int = 1000,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Wraps `to`.

    Args:
      to: the logger to write to.
      min_seconds: minimum number of seconds between two writes.
      num_unmerged: number of first rows that are never merged, so that the log
        of a short run has a row per episode.
      clock: returns seconds.
    """
    self._to = to
    self._min_seconds = min_seconds
    self._num_unmerged = num_unmerged
    self._clock = clock
    self._next_time = -math.inf
    self._pending: list[dict[str, Any]] = []

  def write(self, values: log_values.LoggingData) -> None:
    """Writes a row, or merges it with the next ones."""
    self._pending.append(log_values.to_plain(values))
    if self._num_unmerged:
      self._num_unmerged -= 1
    else:
      now = self._clock()
      if now < self._next_time:
        return
      self._next_time = now + self._min_seconds
    self._flush()

  def close(self) -> None:
    """Writes the pending rows and closes the logger."""
    if self._pending:
      self._flush()
    self._to.close()

  def _flush(self) -> None:
    rows, self._pending = self._pending, []
    self._to.write(_merge(rows) if len(rows) > 1 else rows[0])


def _merge(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
  """Returns one row for several; lists are averaged elementwise."""
  merged: dict[str, Any] = {}
  # Sums over episodes and numbers of episodes, by name.
  sums: dict[str, tuple[Any, int]] = {}
  for row in rows:
    merged.update(row)
    count = row.get(_NUM_EPISODES, 1)
    for name, value in row.items():
      if name not in _LAST and isinstance(value, int | float | list):
        if isinstance(value, list):
          value = np.asarray(value, np.float64)
        total, before = sums.get(name, (0.0, 0))
        sums[name] = total + count * value, before + count
  means = {name: total / max(count, 1) for name, (total, count) in sums.items()}
  num_episodes = sum(row.get(_NUM_EPISODES, 1) for row in rows)
  return merged | means | {_NUM_EPISODES: num_episodes}


def log_path(
  run_dir: str | os.PathLike[str], label: str, instance: int | None = None
) -> pathlib.Path:
  """Returns the path of a label's log in the directory of a run."""
  return pathlib.Path(run_dir) / 'logs' / f'{_stem(label, instance)}.jsonl'


def _stem(label: str, instance: int | None) -> str:
  return label if instance is None else f'{label}-{instance}'


def make_logger_factory(
  run_dir: str | os.PathLike[str],
  *,
  terminal: bool = True,
  terminal_period: float = 10.0,
  tensorboard: bool = True,
  tensorboard_period: float = 1.0,
  train_period: float = 1.0,
  trackers: Sequence[str] = (),
) -> LoggerFactory:
  """Makes the `loggers` of an experiment; they always write JSONL files.

  Args:
    run_dir: directory of the run.
    terminal: whether to print the first instance of each label.
    terminal_period: seconds between two lines of a label.
    tensorboard: whether to write TensorBoard events.
    tensorboard_period: seconds between two events of a label; with an event for
      each of many short episodes, a run would spend a tenth of its time on
      them.
    train_period: seconds between two rows with label 'train', after the first
      ones; see `EpisodeFilter`. 0 writes every episode.
    trackers: names of experiment trackers to write to as well; see
      `ftwax.records.trackers`.

  Returns:
    A function `(label, steps_key, instance) -> Logger`. It raises a ValueError
    if `label` cannot be a file name.

  Raises:
    ImportError: if a tracker is not installed.
    ValueError: if there is no such tracker.
  """
  from ftwax.records import trackers as trackers_lib  # Slow import.

  tracking = [
    trackers_lib.Tracking(pathlib.Path(run_dir), name) for name in trackers
  ]

  def make_logger(
    label: str, steps_key: str | None = None, instance: int | None = None
  ) -> Logger:
    if not re.fullmatch(r'[A-Za-z0-9_]+', label):
      raise ValueError(
        f'label ({label!r}) must consist of letters, digits and "_", to name a'
        ' file; choose another.'
      )
    if tensorboard:  # Before a file is opened, as it may be refused.
      directory = files.make_folder(
        pathlib.Path(run_dir), 'tensorboard', _stem(label, instance)
      )
    rows: Logger = JSONLLogger(log_path(run_dir, label, instance))
    if label == 'train' and train_period:
      rows = EpisodeFilter(rows, train_period)
    to: list[Logger] = [rows]
    if tensorboard:
      events = tensorboard_logger.TensorBoardLogger(directory, label, steps_key)
      to.append(TimeFilter(events, tensorboard_period))
    to += [
      TimeFilter(one.open(_stem(label, instance), steps_key), _TRACKER_PERIOD_S)
      for one in tracking
    ]
    if terminal and not instance:
      to.append(TimeFilter(TerminalLogger(label), terminal_period))
    return Dispatcher(to)

  return make_logger
