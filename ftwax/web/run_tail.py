"""Reads new data of a run as it is written; never writes."""

import datetime
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ftwax.records import (
  files,
  log_values,
  loggers,
  run_directory,
  tournament_files,
)
from ftwax.reporting import (
  comparison,
  evaluation_curves,
  health,
  history,
  outcome,
  report,
  run_facts,
)

# Maximum bytes of each log per answer; the page immediately asks for more.
_MAX_BYTES = 1_000_000

# Times that reading the logs of what is reached took, until it is done again.
_REST = 50.0


class RunTail:
  """The directory of a run, which may be active, finished or damaged.

  Attributes:
    directory: directory of the run.
  """

  def __init__(self, directory: str | os.PathLike[str]):
    """Stores the directory, which need not exist yet."""
    self.directory = pathlib.Path(directory)
    self._fitted: tuple[int, Any] = 0, None
    self._reached: tuple[list[int], list[str]] = [], []
    self._due = 0.0

  def facts(self) -> dict[str, Any]:
    """Returns the facts of the run, as JSON.

    Returns:
      'name', 'directory', 'seed', 'command', 'events' and the newest
      'checkpoint'; 'headline', the event that is the return; 'outcome', what
      the run has reached, in the report's sentences; 'variant',
      equal for runs that differ in their seeds; 'log_scaled', hyperparameters
      with a log-uniform prior; 'compiling_s', before the first row of a log,
      seconds that the run before took to compile, None if unknown; 'strength',
      the fields of `evaluation_curves.Evaluations` if there were opponents;
      'report',
      whether there is one; 'running', whether a process writes the run, None if
      that is not known; 'ended_s', seconds since the run recorded its end, None
      if it did not; 'error', whether a process has left an error; 'tournament',
      its players with Elo ratings and intervals; for a distributed run,
      'nodes', the status of each; 'problem', a sentence, if something cannot be
      read.
    """
    directory = self.directory
    facts: dict[str, Any] = {
      'name': directory.name,
      'directory': os.fspath(directory),
      'checkpoint': newest_checkpoint(directory),
      'report': (directory / report.REPORT_FILE).exists(),
      'running': run_directory.is_locked(directory),
      'ended_s': _seconds_since(run_directory.ended_at(directory)),
      'error': (directory / run_directory.ERROR_FILE).exists(),
    }
    if not directory.is_dir():
      return {**facts, 'problem': f'There is no directory {directory} (yet).'}
    try:
      config = run_directory.read_config(directory)
      facts |= {'experiment': config['name'], 'seed': config['seed']}
      facts['variant'] = comparison.variant(config)
      facts['log_scaled'] = run_facts.read_log_scaled(directory)
      facts['steps'] = config.get('max_num_actor_steps')
      facts['members'] = config['population']['num_members']
      facts['events'] = run_directory.read_game(directory, 'event_names')
      if facts['events']:
        game = files.read_object(directory / run_directory.GAME_FILE)
        facts['headline'] = game.get('headline')
      facts['strength'] = self._strength()
      if not loggers.log_path(directory, 'train').exists():
        facts['compiling_s'] = self._compiled_before()
      command = directory / run_directory.COMMAND_FILE
      facts['command'] = files.read(command, 'replace').strip()
      tournament = directory / tournament_files.TOURNAMENT_FILE
      if tournament.exists():
        results = files.read_object(tournament)
        names = ('players', 'ratings', 'lows', 'highs')
        facts['tournament'] = {name: results[name] for name in names}
      nodes = directory / run_directory.NODES_FILE
      if nodes.exists():
        facts['nodes'] = files.read_object(nodes)
      facts['outcome'] = self._outcome()
    except (OSError, ValueError, KeyError, TypeError) as error:
      facts['problem'] = (
        f'{directory} must hold the records of a run, but:'
        f' {type(error).__name__}: {error}'
      )[:500]
    return facts

  def _compiled_before(self) -> float | None:
    """Returns seconds from start to training of the last run beside this."""
    configs = self.directory.parent.glob(f'*/{run_directory.CONFIG_FILE}')
    found = []
    for run in (config.parent for config in configs):
      log = loggers.log_path(run, 'train')
      started = run_directory.started_at(run)
      ended = run_directory.ended_at(run)
      commands = files.read(run / run_directory.COMMAND_FILE).splitlines()
      # If it was never resumed, nor killed.
      if run != self.directory and log.exists() and len(commands) == 1:
        rows = loggers.read_jsonl(log)
        if started and ended and rows:
          trained = float(rows[-1]['seconds'])
          spent = (ended - started).total_seconds() - trained
          found.append((started, max(spent, 0.0)))
    return max(found)[1] if found else None

  def _strength(self) -> dict[str, Any] | None:
    """Returns the ratings of evaluations, fitted anew if the log has grown."""
    path = loggers.log_path(self.directory, evaluation_curves.LABEL)
    size = path.stat().st_size if path.exists() else 0
    if size != self._fitted[0]:
      found = evaluation_curves.read(self.directory)
      self._fitted = (
        size,
        found
        and {
          name: log_values.null_non_finite(np.asarray(part).tolist())
          for name, part in found._asdict().items()
        },
      )
    return self._fitted[1]

  def _outcome(self) -> list[str]:
    """Returns `outcome.read`, anew if its files have grown, at times."""
    paths = (
      loggers.log_path(self.directory, 'train'),
      loggers.log_path(self.directory, evaluation_curves.LABEL),
      self.directory / tournament_files.TOURNAMENT_FILE,
    )
    sizes = [path.stat().st_size for path in paths if path.exists()]
    begin = time.monotonic()
    if sizes != self._reached[0] and begin >= self._due:
      told = files.read_or_warn(health.read, self.directory) or []
      reached = [*outcome.read(self.directory), *map(str, told)]
      self._reached = sizes, reached
      # A long log is read more seldom.
      now = time.monotonic()
      self._due = now + _REST * (now - begin)
    return self._reached[1]

  def read(self, offsets: Mapping[str, int]) -> dict[str, Any]:
    """Returns the rows of all logs after `offsets`, given in bytes by label.

    Returns:
      By label: 'rows'; 'offset' for the next call; 'more', whether there are
      further rows; 'fresh', whether the log was restarted; 'damaged', number of
      lines that were skipped; 'age', seconds since the log was written.
    """
    paths = sorted(loggers.log_path(self.directory, 'x').parent.glob('*.jsonl'))
    lineage = self.directory / history.LINEAGE_FILE
    paths += [lineage] if lineage.exists() else []
    paths = [path for path in paths if path.is_file()]
    tails = {}
    for path in paths:
      try:
        tails[path.stem] = _read_tail(path, offsets.get(path.stem, 0))
      except OSError:
        continue  # Deleted since it was listed.
    return tails


def _read_tail(path: pathlib.Path, offset: int) -> dict[str, Any]:
  with files.opened(path) as file:
    status = os.fstat(file.fileno())
    # A file that has become shorter was replaced.
    is_fresh = not 0 <= offset <= status.st_size
    offset = 0 if is_fresh else offset
    file.seek(offset)
    data = file.read(_MAX_BYTES)
  end = data.rfind(b'\n') + 1
  if not end and len(data) == _MAX_BYTES:
    end = _MAX_BYTES  # Our lines are shorter: count it as damaged.
  rows, num_damaged = [], 0
  for line in data[:end].splitlines():
    try:
      row = files.parse_text(line)
      if not isinstance(row, dict):
        raise ValueError
      rows.append(row)
    except (ValueError, RecursionError):
      num_damaged += 1
  return {
    'rows': rows,
    'offset': offset + end,
    'more': bool(end) and offset + end < status.st_size,
    'fresh': is_fresh,
    'damaged': num_damaged,
    'age': max(time.time() - status.st_mtime, 0.0),
  }


def _seconds_since(then: datetime.datetime | None) -> float | None:
  if then is None:
    return None
  now = datetime.datetime.now(datetime.timezone.utc)
  return max((now - then).total_seconds(), 0.0)


def newest_checkpoint(directory: pathlib.Path) -> str | None:
  """Returns the name of the newest checkpoint; None if there is none."""
  names = [
    path.name
    for path in (directory / 'checkpoints').glob('*')
    if path.name[:1].isdigit()
  ]
  return max(names, default=None)
