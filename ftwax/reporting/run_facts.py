"""Facts that identify a run: its command, date, seed, steps and versions."""

import json
import os
import pathlib
from typing import Any

from ftwax.records import files, log_values, run_directory
from ftwax.reporting import history as history_lib


def read(
  run_dir: str | os.PathLike[str], history: history_lib.History
) -> dict[str, str]:
  """Returns the facts of a run by name, without those that are not recorded.

  Args:
    run_dir: directory of the run.
    history: of its population, which knows the steps and the time.
  """
  run_dir = pathlib.Path(run_dir)
  config = _read_json(run_dir / run_directory.CONFIG_FILE)
  versions = _read_json(run_dir / run_directory.VERSIONS_FILE)
  facts = _commands(run_dir / run_directory.COMMAND_FILE)
  if 'seed' in config:
    facts['seed'] = str(config['seed'])
  if history.num_steps:
    facts['environment steps'] = f'{history.num_steps:,}'
  if history.seconds:
    facts['duration'] = log_values.format_seconds(history.seconds)
  names = [name for name in ('ftwax', 'python', 'jax') if name in versions]
  if names:
    facts['versions'] = ', '.join(f'{name} {versions[name]}' for name in names)
  if 'commit' in versions:
    facts['commit'] = str(versions['commit'])
  return facts


def _commands(path: pathlib.Path) -> dict[str, str]:
  """Returns the first command with its date, and how often it was resumed."""
  if not path.exists():
    return {}
  lines = [line.partition(' ') for line in files.read(path).splitlines()]
  facts = {}
  if lines:
    started, _, command = lines[0]
    # Bytes that are no UTF-8 could not be written into the page.
    facts['command'] = os.fsencode(command).decode('utf-8', 'replace')
    facts['started'] = started
  if len(lines) > 1:
    facts['resumed'] = f'{len(lines) - 1} times, at last {lines[-1][0]}'
  return facts


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  if not path.exists():
    return {}
  content = json.loads(files.read(path))
  return content if isinstance(content, dict) else {}
