"""Folders of agents that can be shared, for example on hubs.

The card of a folder, `README.md`, has the facts that others need.
"""

import errno
import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from ftwax import types
from ftwax.environments import games
from ftwax.records import array_files, files, game_files, loggers, run_directory
from ftwax.reporting import history

CARD_FILE = 'README.md'
FILM_FILE = 'game.gif'

# Name of the file of arrays.
_VARIABLES = 'variables'

# Records that are copied from the directory of a run.
_RECORDS = (
  run_directory.CONFIG_FILE,
  run_directory.VERSIONS_FILE,
  run_directory.GAME_FILE,
  history.LINEAGE_FILE,
)


def write_folder(
  source: pathlib.Path,
  directory: pathlib.Path,
  members: Sequence[int],
  variables: types.ActorVariables,
  about: Mapping[str, Any] | None,
) -> None:
  """Writes agents with their records; see `loading.export`.

  Args:
    source: directory of the run, or another such folder.
    directory: a new directory.
    members: indices of the agents in the population.
    variables: variables of the agents, leaves [len(members), ...].
    about: see `loading.export`.
  """
  if about is None:
    about = _read_about(source)
  about = {'members': list(members), **about}
  if directory.exists():
    raise FileExistsError(
      errno.EEXIST, 'must be a new directory; choose another', str(directory)
    )
  # It has its name only once it is whole.
  temporary = directory.with_name(f'.{directory.name}.{os.getpid()}.tmp')
  temporary.mkdir(parents=True)
  try:
    _write(source, temporary, directory.name, variables, about)
    temporary.rename(directory)
  finally:
    shutil.rmtree(temporary, ignore_errors=True)


def _write(
  source: pathlib.Path,
  directory: pathlib.Path,
  title: str,
  variables: types.ActorVariables,
  about: Mapping[str, Any],
) -> None:
  """Writes the files of a folder that exists."""
  for name in _RECORDS:
    if (source / name).exists():
      _copy(source / name, directory / name)
  films = sorted(
    [*(source / 'videos').glob('*.gif'), *source.glob(FILM_FILE)],
    key=lambda path: path.stat().st_mtime,
  )
  if films:
    _copy(films[-1], directory / FILM_FILE)
  array_files.write(directory, _VARIABLES, variables)
  files.write_atomically(
    directory / run_directory.ABOUT_FILE, json.dumps(about, indent=2) + '\n'
  )
  card = _make_card(
    title,
    game_files.read(source),
    about,
    files.read_object(source / run_directory.VERSIONS_FILE),
    has_film=bool(films),
  )
  files.write_atomically(directory / CARD_FILE, card)


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
  """Copies a record; a link could publish any file of its reader."""
  with files.reading(source, 'what can be shared'):
    files.write_synced(target, files.read_bytes(source))


def _read_about(source: pathlib.Path) -> dict[str, Any]:
  """Returns the information recorded about a run or a folder."""
  if (source / run_directory.ABOUT_FILE).exists():
    about = files.read_object(source / run_directory.ABOUT_FILE)
    about.pop('members', None)
    return about
  about = {}
  command = source / run_directory.COMMAND_FILE
  if command.exists():
    about['command'] = files.read(command).partition('\n')[0].partition(' ')[2]
  config = files.read_object(source / run_directory.CONFIG_FILE)
  if 'seed' in config:
    about['seed'] = config['seed']
  log = loggers.log_path(source, 'evaluation')
  rows = loggers.read_jsonl(log) if log.exists() else []
  if rows:
    last = rows[-1]
    about['steps'] = last.get('actor_steps')
    about['episode_return'] = last.get('episode_return')
    with files.reading(log, 'scores of evaluations'):
      scores = {
        name.removeprefix('scores/'): round(float(value), 3)
        for name, value in last.items()
        if name.startswith('scores/')
      }
    if scores:
      about['scores'] = scores
  return about


def _make_card(
  name: str,
  spec: games.GameSpec,
  about: Mapping[str, Any],
  versions: Mapping[str, Any],
  has_film: bool,
) -> str:
  """Returns the card in Markdown, with the front matter that model hubs expect.

  Args:
    name: name of the folder.
    spec: specs of the game in which the agents were trained.
    about: `members`, and optional facts, e.g. `command`, `seed`, `scores`.
    versions: versions of packages, and the commit.
    has_film: whether there is a film in the folder.
  """
  members = about.get('members', [])
  facts = {key: value for key, value in about.items() if key != 'members'}
  parts = [
    '---\nlibrary_name: ftwax\ntags:\n- reinforcement-learning\n- jax\n'
    'pipeline_tag: reinforcement-learning\n---',
    f'# {name}',
    f'{len(members)} recurrent actor-critic agent'
    f'{"s" if len(members) != 1 else ""} trained with ftwax.',
  ]
  if has_film:
    parts.append(f'![A game of the agents]({FILM_FILE})')
  parts += [
    'Load an agent, to act in an environment or to record a film:',
    '```python\nimport ftwax\n\nagent = ftwax.load(folder, member=0)\n'
    'action = agent.act(timestep)\n```',
  ]
  if facts:
    parts += ['## Results', _table(facts)]
  environment = {
    'seats': spec.num_players,
    'observations': spec.environment.observations,
    'actions': spec.environment.actions,
    'events': ', '.join(spec.event_names),
  }
  parts += ['## Environment', _table(environment)]
  if versions:
    parts += ['## Versions', _table(versions)]
  return '\n\n'.join(parts) + '\n'


def _table(values: Mapping[str, Any]) -> str:
  rows = ['| | |', '| --- | --- |']
  for name, value in values.items():
    if isinstance(value, Mapping):
      text = ', '.join(f'{key} {entry}' for key, entry in value.items())
    else:
      text = json.dumps(value) if isinstance(value, list) else str(value)
    cell = text.replace('|', '\\|').replace('\n', ' ')
    rows.append(f'| {name.replace("_", " ")} | {cell} |')
  return '\n'.join(rows)
