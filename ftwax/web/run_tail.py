"""Reads what a run writes, as far as it is new; never writes."""

import json
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from ftwax.records import (
  files,
  game_files,
  loggers,
  run_directory,
  tournament_files,
)
from ftwax.reporting import history, report

# Bytes of each log that one answer holds; the page asks again at once.
_MAX_BYTES = 1_000_000


class RunTail:
  """The directory of a run, which may be written to, ended or damaged.

  Attributes:
    directory: of the run.
  """

  def __init__(self, directory: str | os.PathLike[str]):
    """Takes a directory, which need not exist yet."""
    self.directory = pathlib.Path(directory)

  def facts(self) -> dict[str, Any]:
    """Returns what is known of the run, as JSON.

    Returns:
      'name', 'directory', 'seed', 'command', 'events' and the newest
      'checkpoint'; whether there is a 'report'; of a 'tournament' its players,
      their Elo and its interval; of a distributed run 'nodes', what is said of
      each, and 'nodes_age', seconds since then; 'problem', a sentence, where
      something cannot be read.
    """
    directory = self.directory
    facts: dict[str, Any] = {
      'name': directory.name,
      'directory': os.fspath(directory),
      'checkpoint': newest_checkpoint(directory),
      'report': (directory / report.REPORT_FILE).exists(),
    }
    if not directory.is_dir():
      return {**facts, 'problem': f'There is no directory {directory} (yet).'}
    try:
      config = run_directory.read_config(directory)
      facts |= {'experiment': config['name'], 'seed': config['seed']}
      facts['steps'] = config.get('max_num_actor_steps')
      facts['members'] = config['population']['num_members']
      facts['events'] = game_files.read(directory).event_names
      command = directory / run_directory.COMMAND_FILE
      facts['command'] = command.read_text('utf-8', 'replace').strip()
      tournament = directory / tournament_files.TOURNAMENT_FILE
      if tournament.exists():
        results = files.read_object(tournament)
        names = ('players', 'ratings', 'lows', 'highs')
        facts['tournament'] = {name: results[name] for name in names}
      nodes = directory / run_directory.NODES_FILE
      if nodes.exists():
        facts['nodes'] = files.read_object(nodes)
        facts['nodes_age'] = max(time.time() - nodes.stat().st_mtime, 0.0)
    except (OSError, ValueError, KeyError, TypeError) as error:
      facts['problem'] = (
        f'{directory} must hold the records of a run, but:'
        f' {type(error).__name__}: {error}'
      )[:500]
    return facts

  def read(self, offsets: Mapping[str, int]) -> dict[str, Any]:
    """Returns the rows of all logs after `offsets`, in bytes by label.

    Returns:
      By label: 'rows'; 'offset' to ask with next; 'more', whether there are
      rows already; 'fresh', whether the log was begun anew; 'damaged', lines
      left out; 'age', seconds since it was written.
    """
    paths = sorted(loggers.log_path(self.directory, 'x').parent.glob('*.jsonl'))
    lineage = self.directory / history.LINEAGE_FILE
    paths += [lineage] if lineage.exists() else []
    found = {}
    for path in paths:
      try:
        found[path.stem] = _tail(path, offsets.get(path.stem, 0))
      except OSError:
        continue  # Gone since it was listed; there may be another next time.
    return found


def _tail(path: pathlib.Path, offset: int) -> dict[str, Any]:
  with open(path, 'rb') as file:
    status = os.fstat(file.fileno())
    is_fresh = not 0 <= offset <= status.st_size
    offset = 0 if is_fresh else offset
    file.seek(offset)
    data = file.read(_MAX_BYTES)
  end = data.rfind(b'\n') + 1
  if not end and len(data) == _MAX_BYTES:
    end = _MAX_BYTES  # No line of ours is as long: it counts as damaged.
  rows, num_damaged = [], 0
  for line in data[:end].splitlines():
    try:
      row = json.loads(line)
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


def newest_checkpoint(directory: pathlib.Path) -> str | None:
  """Returns the name of the newest checkpoint, None if there is none."""
  names = [
    path.name
    for path in (directory / 'checkpoints').glob('*')
    if path.name[:1].isdigit()
  ]
  return max(names, default=None)


def newest_run(root: pathlib.Path) -> pathlib.Path:
  """Returns the run in `root/<name>/<run>` that was begun last.

  Raises:
    ValueError: if there is none.
  """
  found = list(root.glob(f'*/*/{run_directory.CONFIG_FILE}'))
  if not found:
    raise ValueError(
      f'run ({root}/*/*) must be given where there is none in {root}; start an'
      ' experiment, or give the directory of a run.'
    )
  return max(found, key=lambda path: path.stat().st_mtime).parent
