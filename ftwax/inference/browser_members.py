"""Members whose networks run in the browser, beside the rules of their game.

`environments/capture_the_flag/members.js` has the rules of capture the flag and
the networks of populations like those that come with the library. The site
plays with them, and so does `ftwax play` until its own functions are compiled.
"""

import base64
import json
import os
import pathlib
import types
from typing import Any

import jax
import numpy as np

from ftwax.environments import capture_the_flag
from ftwax.environments.capture_the_flag import browser, maps
from ftwax.inference import loading, playable
from ftwax.records import game_files

# Populations that come with the library.
STANDARD, FIRST_PERSON = 'capture_the_flag', 'first_person'
POPULATIONS = (STANDARD, FIRST_PERSON)

SCRIPT = pathlib.Path(capture_the_flag.__file__).with_name('members.js')

# Of a population, by the part of its names.
_MODULES = ('observation_embedding', 'lstm', 'policy_head')


def make_config(source: str | os.PathLike[str]) -> Any:
  """Returns the config of the game that a population plays."""
  spec = game_files.read(loading.find(source))
  return browser.read_config(spec.environment, spec.team_size)


def find(source: str | os.PathLike[str]) -> str | None:
  """Returns the name of a population that `members.js` runs, or None."""
  for name in POPULATIONS:
    if os.fspath(source) in (name, str(loading.TRAINED / name)):
      return name
  return None


def make_data(population: str, num_maps: int) -> dict[str, Any]:
  """Returns config, maps and arrays of a population, as JSON.

  Args:
    population: one of `POPULATIONS`.
    num_maps: number of maps.
  """
  config = make_config(population)
  make_map = jax.jit(lambda key: maps.make_map(key, config))
  made = [make_map(jax.random.PRNGKey(seed)) for seed in range(num_maps)]
  variables = [
    agent.variables for agent in loading.load_members(population, greedy=False)
  ]
  params = jax.tree.map(lambda *leaves: np.stack(leaves), *variables)
  arrays = {
    f'params/{module}/{name}': _encode(leaf)
    for module, leaves in params.params.items()
    if module.startswith(_MODULES)
    for name, leaf in leaves.items()
  }
  arrays['internal_rewards'] = _encode(params.internal_rewards)
  game = playable.find(population)
  seats = [
    game.seat_facts(
      seat, f'member {seat % len(variables)}' if seat else 'person', not seat
    )
    for seat in range(len(game.teams))
  ]
  # Facts are what the script of the game asks for; the rest is for its rules.
  facts = game.page.facts(types.SimpleNamespace(map=made[0]))
  fields = ['flag_return_period', 'compass']
  if config.observation == 'rays':
    fields.append('num_rays')
  return {
    # For saved games, which bring their drawing.
    'code': game.page.script.read_text('utf-8'),
    'seats': seats,
    'config': {**facts, **{name: getattr(config, name) for name in fields}},
    'maps': [
      {
        'tiles': np.asarray(one.tiles).ravel().tolist(),
        'stands': np.asarray(one.stands).tolist(),
        'pads': np.asarray(one.pads).tolist(),
      }
      for one in made
    ],
    'arrays': arrays,
  }


def read_script() -> str:
  """Returns the code of `members.js`."""
  return SCRIPT.read_text('utf-8')


def to_script(data: dict[str, Any]) -> str:
  """Returns the data as a script, since pages on a disk cannot fetch files."""
  return f'ftwax.data = {json.dumps(data, separators=(",", ":"))};\n'


def _encode(array: Any) -> dict[str, Any]:
  array = np.asarray(array, np.float32)
  data = base64.b64encode(array.tobytes()).decode()
  return {'shape': list(array.shape), 'data': data}
