"""Progress of a run: a bar on a terminal, plain lines in a file or a pipe.

    with progress.Progress(total_steps=1_000_000) as display:
      ...
      display.update(num_steps, episode_return=episode_return)

A file or a pipe gets no control characters, and at most one line per
`min_seconds`, so that logs of batch jobs stay readable.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from ftwax import import_guard
from ftwax.records import log_values

if TYPE_CHECKING:
  import rich.console
  import rich.progress


# Terminal widths in columns from which on the speed is shown, and from which on
# bar and numbers are shown.
_MEDIUM_WIDTH, _WIDE_WIDTH = 60, 120


# Seconds over which a speed is measured at least.
_MIN_RATE_S = 0.1


class Progress:
  """Shows the steps done, the speed, the time left, and other numbers.

  It is a context manager. On a terminal, lines printed meanwhile appear above
  the bar.
  """

  def __init__(
    self,
    total_steps: int,
    *,
    label: str = 'training',
    initial_steps: int = 0,
    min_seconds: float = 10.0,
    stream: TextIO | None = None,
    console: 'rich.console.Console | None' = None,
    clock: Callable[[], float] = time.monotonic,
    num_compiled: Callable[[], int] | None = None,
  ):
    """Prepares the display, which `with` starts.

    Args:
      total_steps: number of steps of the run; more may be done.
      label: prefix of the numbers.
      initial_steps: steps done before the run was resumed.
      min_seconds: minimum number of seconds between two plain lines; the last
        one is always printed.
      stream: stream to write to; standard output by default.
      console: a Rich console to use instead of `stream`.
      clock: returns seconds, for the plain lines.
      num_compiled: returns how many functions were compiled so far, if updates
        may compile. Those that did say nothing about the time that is left.

    Raises:
      ValueError: if `total_steps` is not positive.
    """
    if total_steps <= 0:
      raise ValueError(
        f'total_steps ({total_steps}) must be positive; give the number of'
        ' steps after which the run ends.'
      )
    self._total_steps = total_steps
    self._label = label
    self._initial_steps = initial_steps
    self._min_seconds = min_seconds
    self._stream = stream
    self._console = console
    self._clock = clock
    self._num_compiled = num_compiled
    self._compiled_before = -1
    self._display: _Lines | _Bar | None = None

  def __enter__(self) -> 'Progress':
    self._display = self._make_display()
    return self

  def __exit__(self, *exception: Any) -> None:
    del exception
    if self._display is not None:
      self._display.close()
      self._display = None

  def update(self, steps: int, **fields: Any) -> None:
    """Shows that `steps` steps are done.

    Args:
      steps: steps done since the run was first started.
      **fields: numbers to show, e.g. the return of the last episode.

    Raises:
      RuntimeError: if called outside of `with`.
    """
    if self._display is None:
      raise RuntimeError(
        f'Progress of {self._label!r} must be entered before update; write'
        ' `with Progress(...) as progress: progress.update(...)`.'
      )
    # NaN is the mean of no episodes. A value equals itself unless it is NaN.
    known = {name: one for name, one in fields.items() if one == one}  # noqa: PLR0124
    num_compiled = self._num_compiled() if self._num_compiled else 0
    if num_compiled != self._compiled_before:
      # Measures the speed from now on, as what came before was compiling.
      self._compiled_before = num_compiled
      self._display.restart(int(steps))
    self._display.update(int(steps), known)

  def _make_display(self) -> '_Lines | _Bar':
    stream = self._stream or sys.stdout
    on_terminal = stream.isatty() and os.environ.get('TERM') != 'dumb'
    if self._console is not None:
      stream = self._console.file
      dumb = self._console.is_dumb_terminal
      on_terminal = self._console.is_terminal and not dumb
    steps = self._initial_steps, self._total_steps
    if not on_terminal:
      return _Lines(stream, self._label, steps, self._min_seconds, self._clock)
    console = self._console
    if console is None:
      with import_guard.guarded():
        import rich.console  # Slow, and not needed by plain lines.

      # Without a file, Rich looks up standard output at each write, which
      # respects redirections.
      console = rich.console.Console(file=self._stream)
    return _Bar(console, self._label, steps)


class _Lines:
  """Prints plain lines, at most one per `min_seconds` and one at the end."""

  def __init__(
    self,
    stream: TextIO,
    label: str,
    steps: tuple[int, int],
    min_seconds: float,
    clock: Callable[[], float],
  ):
    self._stream = stream
    self._label = label
    self._initial_steps, self._total_steps = steps
    self._min_seconds = min_seconds
    self._clock = clock
    self._start_time = self._line_time = clock()
    self._steps = self._initial_steps
    self._fields: log_values.LoggingData = {}
    # Time and steps since which the next line measures the speed.
    self._since = self._start_time, self._initial_steps

  def restart(self, steps: int) -> None:
    self._since = self._clock(), steps

  def update(self, steps: int, fields: log_values.LoggingData) -> None:
    self._steps, self._fields = steps, fields
    now = self._clock()
    begin, begin_steps = self._since
    if now - self._line_time < self._min_seconds:
      return
    rate = (steps - begin_steps) / max(now - begin, 1e-9)
    remaining = max(self._total_steps - steps, 0)
    eta = log_values.format_seconds(remaining / rate) if rate > 0 else 'unknown'
    is_known = now > begin + _MIN_RATE_S
    self._print(*((f'{rate:,.0f} steps/s', f'ETA {eta}') if is_known else ()))
    self._line_time = now
    self._since = now, steps

  def close(self) -> None:
    seconds = self._clock() - self._start_time
    rate = (self._steps - self._initial_steps) / max(seconds, 1e-9)
    self._print(
      f'{rate:,.0f} steps/s', f'took {log_values.format_seconds(seconds)}'
    )

  def _print(self, *parts: str) -> None:
    percentage = min(100 * self._steps / self._total_steps, 100.0)
    line = ' | '.join(
      [
        f'{self._label}: {self._steps:,} of {self._total_steps:,} steps'
        f' ({percentage:.1f}%)',
        *parts,
        log_values.format_values(self._fields),
      ]
    )
    print(line.removesuffix(' | '), file=self._stream, flush=True)


class _Bar:
  """A Rich progress bar."""

  def __init__(
    self, console: 'rich.console.Console', label: str, steps: tuple[int, int]
  ):
    with import_guard.guarded():
      from rich import progress

    def column(text: str) -> progress.TextColumn:
      return progress.TextColumn(text, markup=False)

    initial_steps, total_steps = steps
    # A line that is too long would be truncated within a number.
    columns = [
      column('{task.description}'),
      column('{task.percentage:.0f}%'),
      progress.TimeRemainingColumn(),
    ]
    if console.width >= _MEDIUM_WIDTH:
      columns.insert(2, _make_speed_column())
    if console.width >= _WIDE_WIDTH:
      columns[1:2] = [
        progress.BarColumn(),
        column('{task.completed:,.0f}/{task.total:,.0f}'),
      ]
      columns.append(column('{task.fields[live]}'))
    self._progress = progress.Progress(
      *columns, console=console, refresh_per_second=4
    )
    self._label, self._total_steps = label, total_steps
    self._task = self._progress.add_task(
      f'{label}: starting', total=total_steps, completed=initial_steps, live=''
    )
    self._progress.start()

  def restart(self, steps: int) -> None:
    self._progress.reset(
      self._task,
      total=self._total_steps,
      completed=steps,
      description=self._label,
    )

  def update(self, steps: int, fields: log_values.LoggingData) -> None:
    self._progress.update(
      self._task, completed=steps, live=log_values.format_values(fields)
    )

  def close(self) -> None:
    self._progress.stop()


def _make_speed_column() -> 'rich.progress.ProgressColumn':
  with import_guard.guarded():
    from rich import progress, text

  class SpeedColumn(progress.ProgressColumn):
    """Shows the steps per second over the last half minute."""

    def render(self, task: progress.Task) -> text.Text:
      speed = task.finished_speed or task.speed
      return text.Text('' if speed is None else f'{speed:,.0f} steps/s')

  return SpeedColumn()
