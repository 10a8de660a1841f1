"""The card of a shared agent: a README.md with the facts that others need."""

import json
from collections.abc import Mapping
from typing import Any

from ftwax.environments import games


def make_card(
  name: str,
  spec: games.GameSpec,
  about: Mapping[str, Any],
  versions: Mapping[str, Any],
  film: str | None,
) -> str:
  """Returns the card in Markdown, with the front matter that model hubs expect.

  Args:
    name: name of the folder.
    spec: specs of the game in which the agents were trained.
    about: `members`, and optional facts, e.g. `command`, `seed`, `scores`.
    versions: versions of packages, and the commit.
    film: name of a film in the folder; None for none.
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
  if film is not None:
    parts.append(f'![A game of the agents]({film})')
  parts += [
    'Load an agent, to act in an environment or to record a film:',
    '```python\nimport ftwax\n\nagent = ftwax.load(folder, member=0)\n'
    'action = agent.act(timestep)\n```',
  ]
  if facts:
    parts += ['## Results', _table(facts)]
  parts += ['## Environment', _table(_describe_game(spec))]
  if versions:
    parts += ['## Versions', _table(versions)]
  return '\n\n'.join(parts) + '\n'


def _describe_game(spec: games.GameSpec) -> dict[str, Any]:
  environment = spec.environment
  return {
    'seats': spec.num_players,
    'observations': environment.observations,
    'actions': environment.actions,
    'events': ', '.join(spec.event_names),
  }


def _table(values: Mapping[str, Any]) -> str:
  rows = ['| | |', '| --- | --- |']
  for name, value in values.items():
    if isinstance(value, Mapping):
      text = ', '.join(f'{key} {entry}' for key, entry in value.items())
    else:
      text = value if isinstance(value, str) else _plain(value)
    cell = text.replace('|', '\\|').replace('\n', ' ')
    rows.append(f'| {name.replace("_", " ")} | {cell} |')
  return '\n'.join(rows)


def _plain(value: Any) -> str:
  return json.dumps(value) if isinstance(value, list) else str(value)
