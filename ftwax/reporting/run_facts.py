"""Facts that identify a run: its command, date, seed, steps and versions."""

import os
import pathlib
from collections.abc import Iterator
from typing import Any

from ftwax.records import files, log_values, run_directory
from ftwax.reporting import history as history_lib
from ftwax.reporting import words


def read(
  run_dir: str | os.PathLike[str], history: history_lib.History | None = None
) -> dict[str, str]:
  """Returns the recorded facts of a run, by name.

  Args:
    run_dir: directory of the run.
    history: history of its population, for steps and duration.
  """
  run_dir = pathlib.Path(run_dir)
  config = _read(run_dir / run_directory.CONFIG_FILE)
  versions = _read(run_dir / run_directory.VERSIONS_FILE)
  command = run_dir / run_directory.COMMAND_FILE
  facts = files.read_or_warn(_commands, command) or {}
  if 'seed' in config:
    facts['seed'] = str(config['seed'])
  if history and history.num_steps:
    facts['environment steps'] = f'{history.num_steps:,}'
  if history and history.seconds:
    facts['duration'] = log_values.format_seconds(history.seconds)
  names = [name for name in ('ftwax', 'python', 'jax') if name in versions]
  if names:
    facts['versions'] = ', '.join(f'{name} {versions[name]}' for name in names)
  if 'commit' in versions:
    facts['commit'] = str(versions['commit'])
  return facts


def read_title(run_dir: str | os.PathLike[str]) -> str:
  """Returns the name of the experiment, or else of the run's directory."""
  run_dir = pathlib.Path(run_dir)
  config = _read(run_dir / run_directory.CONFIG_FILE)
  name = words.readable(str(config.get('name', run_dir.resolve().name)))
  return name[:1].upper() + name[1:]


def read_headline(run_dir: str | os.PathLike[str]) -> str:
  """Returns what the game calls its return; empty if it does not."""
  game = _read(pathlib.Path(run_dir) / run_directory.GAME_FILE)
  return str(game.get('headline') or '')


def read_event_names(
  run_dir: str | os.PathLike[str], history: history_lib.History
) -> list[str]:
  """Returns a name for each event; its index if no names are recorded."""
  num_events = history.internal_rewards.shape[-1]
  names = files.read_or_warn(_event_names, run_dir, num_events)
  return names or [f'event {i}' for i in range(num_events)]


def _event_names(run_dir: str | os.PathLike[str], num_events: int) -> list[str]:
  names = run_directory.read_game(run_dir, 'event_names')
  if names is not None and len(names) != num_events:
    raise ValueError(
      f'{run_directory.GAME_FILE} in {run_dir} must name the {num_events}'
      f' events of the run, and names {len(names)}; restore it from a copy.'
    )
  return [words.readable(str(name)) for name in names or ()]


def read_log_scaled(run_dir: str | os.PathLike[str]) -> list[str]:
  """Returns the names of the hyperparameters with a log-uniform prior."""
  config = _read(pathlib.Path(run_dir) / run_directory.CONFIG_FILE)
  agent = config.get('agent')
  return list(_find_log_scaled(agent)) if isinstance(agent, dict) else []


def _find_log_scaled(part: Any) -> Iterator[str]:
  """Yields the names of the hyperparameters of a part, and of those in it."""
  kind = 'LogUniform('  # The class's name, which needs no import of JAX.
  if isinstance(part, str) and part.startswith(kind):
    yield ''
  entries: Any = part.items() if isinstance(part, dict) else ()
  if isinstance(part, list):
    entries = [
      (one.get('name') or index, one) if isinstance(one, dict) else (index, one)
      for index, one in enumerate(part)
    ]
  for name, entry in entries:
    for rest in _find_log_scaled(entry):
      yield f'{name}.{rest}' if rest else str(name)


def _read(path: pathlib.Path) -> dict[str, Any]:
  return files.read_or_warn(files.read_object, path) or {}


def _commands(path: pathlib.Path) -> dict[str, str]:
  """Returns the first command with its date, and the number of resumes."""
  if not path.exists():
    return {}
  lines = [line.partition(' ') for line in files.read(path).splitlines()]
  facts = {}
  if lines:
    started, _, command = lines[0]
    # Non-UTF-8 bytes could not be written into the page.
    facts['command'] = os.fsencode(command).decode('utf-8', 'replace')
    facts['started'] = started
  if len(lines) > 1:
    facts['resumed'] = f'{len(lines) - 1} times, last at {lines[-1][0]}'
  return facts
