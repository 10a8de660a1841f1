"""Loggers: where the numbers of a run go.

The interface is acme's: `write` a mapping of names to numbers, then `close`.
In a run's directory each label has a file of its own, so that no two writers
share one:

    logs/<label>.jsonl  logs/<label>.csv  tensorboard/<label>/

with `<label>-<instance>` where there are several of a kind, e.g. actors. Lines
are flushed as they are written; what a kill leaves of a half-written line is
cut off when the file is opened again.
"""

import contextlib
import csv
import io
import json
import math
import os
import pathlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ftwax.records import files, log_values


class Logger(Protocol):
  """Takes numbers to a file, a terminal, a server or another logger."""

  def write(self, values: log_values.LoggingData) -> None:
    """Writes `values` to the destination."""

  def close(self) -> None:
    """Closes the destination; no write follows."""


class LoggerFactory(Protocol):
  """Makes the logger of one part of a run."""

  def __call__(
    self,
    label: str,
    steps_key: str | None = None,
    instance: int | None = None,
  ) -> Logger:
    """Makes a logger.

    Args:
      label: what is logged, e.g. 'train', 'learner' or 'evaluation'.
      steps_key: name of the value that counts steps.
      instance: number of this task among those of its kind.
    """


class JSONLLogger:
  """Appends an object a line to a JSONL file.

  JSON has no NaN and no infinities; they are written as null.
  """

  def __init__(self, path: str | os.PathLike):
    self._file = files.open_to_append(pathlib.Path(path))

  def write(self, values: log_values.LoggingData) -> None:
    """Appends one line, without pictures."""
    numbers = log_values.without_pictures(values)
    plain = {
      key: log_values.null_non_finite(value)
      for key, value in log_values.to_plain(numbers).items()
    }
    self._file.write(json.dumps(plain, allow_nan=False) + '\n')
    self._file.flush()

  def close(self) -> None:
    """Closes the file."""
    self._file.close()


def read_jsonl(path: str | os.PathLike) -> list[dict[str, Any]]:
  """Reads what a `JSONLLogger` wrote, also while it goes on writing.

  Args:
    path: of the file.

  Returns:
    The rows; a last line that is not yet complete is left out.

  Raises:
    ValueError: names the line that is no JSON.
  """
  text = pathlib.Path(path).read_text('utf-8')
  rows = []
  for number, line in enumerate(text.split('\n')[:-1], start=1):
    try:
      rows.append(json.loads(line))
    except ValueError as error:
      raise ValueError(
        f'line {number} of {path} ({line[:40]!r}) must be JSON: {error};'
        ' remove the line.'
      ) from error
  return rows


class CSVLogger:
  """Appends rows to a CSV file whose columns grow as new names come.

  A new name rewrites the file with a longer header; rows without a value have
  an empty cell there. Lists are written as JSON.
  """

  def __init__(self, path: str | os.PathLike):
    self._path = pathlib.Path(path)
    self._file = files.open_to_append(self._path)
    header = _read_csv(self._path)[:1]
    self._columns = header[0] if header else []

  def write(self, values: log_values.LoggingData) -> None:
    """Appends one row, without pictures."""
    plain = log_values.to_plain(log_values.without_pictures(values))
    new = [key for key in plain if key not in self._columns]
    if new:
      self._add_columns(new)
    row = [_cell(plain.get(column)) for column in self._columns]
    csv.writer(self._file, lineterminator='\n').writerow(row)
    self._file.flush()

  def close(self) -> None:
    """Closes the file."""
    self._file.close()

  def _add_columns(self, new: Sequence[str]) -> None:
    self._file.close()
    padding = [''] * len(new)
    rows = [row + padding for row in _read_csv(self._path)[1:]]
    self._columns = self._columns + list(new)
    text = io.StringIO()
    csv.writer(text, lineterminator='\n').writerows([self._columns, *rows])
    files.write_atomically(self._path, text.getvalue())
    self._file = files.open_to_append(self._path)


def _read_csv(path: pathlib.Path) -> list[list[str]]:
  with open(path, encoding='utf-8', newline='') as file:
    return list(csv.reader(file))


def _cell(value: Any) -> Any:
  return json.dumps(value) if isinstance(value, list) else value


class TensorBoardLogger:
  """Writes scalars, vectors entry by entry, and pictures to TensorBoard.

  Names are `label/key`, or `label/key/i` for the entries of a vector; strings
  and arrays of more axes are left out. Events are on disk when `write` returns.
  """

  def __init__(
    self,
    directory: str | os.PathLike,
    label: str,
    steps_key: str | None = None,
  ):
    """Opens a new event file.

    Args:
      directory: of this logger alone.
      label: put before every name.
      steps_key: name of the value on the time axis; without it, and where it
        is missing, writes are counted.
    """
    # Slow to import, and unknown to who logs elsewhere.
    from tensorboardX import event_file_writer
    from tensorboardX.proto import event_pb2, summary_pb2

    self._make_event = event_pb2.Event
    self._make_summary = summary_pb2.Summary
    self._label = label
    self._steps_key = steps_key
    self._num_writes = 0
    pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
    # This writer has no thread, and the suffix keeps two that open within a
    # second from sharing a file.
    self._writer = event_file_writer.EventsWriter(
      os.path.join(directory, 'events'), f'.{time.time_ns()}'
    )

  def write(self, values: log_values.LoggingData) -> None:
    """Writes one event."""
    plain = log_values.to_plain(values)
    steps = plain.get(self._steps_key) if self._steps_key else None
    step = self._num_writes if steps is None else int(steps)
    self._num_writes += 1
    summary = self._make_summary(
      value=[
        self._make_summary.Value(tag=f'{self._label}/{tag}', **content)
        for key in plain
        for tag, content in self._contents(key, plain[key])
      ]
    )
    event = self._make_event(wall_time=time.time(), step=step, summary=summary)
    self._writer.write_event(event)
    self._writer.flush()

  def close(self) -> None:
    """Closes the event file."""
    self._writer.close()

  def _contents(self, key: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    """Returns what stands for a value, by tag."""
    if log_values.is_picture(value):
      height, width, _ = value.shape
      picture = self._make_summary.Image(
        height=height,
        width=width,
        colorspace=3,
        encoded_image_string=_encode_png(value),
      )
      return [(key, {'image': picture})]
    return [(tag, {'simple_value': x}) for tag, x in _scalars(key, value)]


def _encode_png(picture: Any) -> bytes:
  from PIL import Image  # Slow to import, and seldom needed.

  buffer = io.BytesIO()
  Image.fromarray(picture).save(buffer, 'png')
  return buffer.getvalue()


def _scalars(key: str, value: Any) -> list[tuple[str, float]]:
  if isinstance(value, list):
    return [
      (f'{key}/{index}', entry)
      for index, entry in enumerate(value)
      if not isinstance(entry, list)
    ]
  return [] if value is None or isinstance(value, str) else [(key, value)]


class TerminalLogger:
  """Prints a line for each write; behind a `TimeFilter` where these are many.

  Args:
    label: put before every line.
    print_fn: prints a line.
  """

  def __init__(self, label: str, print_fn: Callable[[str], None] = print):
    self._label = label
    self._print_fn = print_fn

  def write(self, values: log_values.LoggingData) -> None:
    """Prints one line."""
    self._print_fn(f'[{self._label}] {log_values.format_values(values)}')

  def close(self) -> None:
    """Does nothing."""


class Dispatcher:
  """Writes to several loggers."""

  def __init__(self, to: Sequence[Logger]):
    self._to = tuple(to)

  def write(self, values: log_values.LoggingData) -> None:
    """Writes to each; the values leave the device once."""
    plain = log_values.to_plain(values)
    for logger in self._to:
      logger.write(plain)

  def close(self) -> None:
    """Closes each, also when closing one of them fails."""
    with contextlib.ExitStack() as stack:
      for logger in reversed(self._to):
        stack.callback(logger.close)


class TimeFilter:
  """Drops writes that follow the last one too soon.

  The last values dropped are written when the filter is closed, so that the
  end of a run is always seen.
  """

  def __init__(
    self,
    to: Logger,
    min_seconds: float,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Wraps `to`.

    Args:
      to: the logger written to.
      min_seconds: between two writes.
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
    """Writes `values`, or keeps them for the end."""
    now = self._clock()
    if now < self._next_time:
      self._dropped = values
      return
    self._next_time = now + self._min_seconds
    self._dropped = None
    self._to.write(values)

  def close(self) -> None:
    """Writes what was dropped last and closes the logger."""
    if self._dropped is not None:
      self._to.write(self._dropped)
    self._to.close()


def log_path(
  run_dir: str | os.PathLike,
  label: str,
  instance: int | None = None,
  suffix: str = '.jsonl',
) -> pathlib.Path:
  """Returns where the log of a part of a run is."""
  return pathlib.Path(run_dir) / 'logs' / f'{_stem(label, instance)}{suffix}'


def _stem(label: str, instance: int | None) -> str:
  return label if instance is None else f'{label}-{instance}'


def make_logger_factory(
  run_dir: str | os.PathLike,
  *,
  terminal: bool = True,
  terminal_period: float = 10.0,
  tensorboard: bool = True,
  tensorboard_period: float = 1.0,
  csv_files: bool = False,
) -> LoggerFactory:
  """Makes the `logger_factory` of an experiment; JSONL is always written.

  Args:
    run_dir: directory of the run.
    terminal: whether to print, of each label the first instance alone.
    terminal_period: seconds between two lines of a label.
    tensorboard: whether to write TensorBoard events.
    tensorboard_period: seconds between two events of a label; short episodes
      would spend a tenth of a run on them.
    csv_files: whether to write CSV files beside the JSONL ones.

  Returns:
    A function `(label, steps_key, instance) -> Logger`. It raises a ValueError
    when `label` cannot be the name of a file.
  """

  def make_logger(label, steps_key=None, instance=None):
    if not re.fullmatch(r'[A-Za-z0-9_]+', label):
      raise ValueError(
        f'label ({label!r}) must be of letters, digits and "_", to name a file;'
        ' choose another.'
      )
    to: list[Logger] = [JSONLLogger(log_path(run_dir, label, instance))]
    if csv_files:
      to.append(CSVLogger(log_path(run_dir, label, instance, '.csv')))
    if tensorboard:
      directory = pathlib.Path(run_dir) / 'tensorboard' / _stem(label, instance)
      events = TensorBoardLogger(directory, label, steps_key)
      to.append(TimeFilter(events, tensorboard_period))
    if terminal and not instance:
      to.append(TimeFilter(TerminalLogger(label), terminal_period))
    return Dispatcher(to)

  return make_logger
