"""What the page `docs/play` needs from the library: maps and networks."""

import base64
import json
import pathlib
import shutil
import types
from typing import Any

import jax
import numpy as np

from ftwax.environments import capture_the_flag
from ftwax.environments.capture_the_flag import browser, maps
from ftwax.inference import loading, playable
from ftwax.records import game_files
from ftwax.reporting import page

NUM_MAPS = 32

# Files of the library that the page uses, too.
SHARED = (
  page.STATIC / 'style.css',
  page.STATIC / 'drawing.js',
  page.STATIC / 'mark.svg',
  pathlib.Path(capture_the_flag.__file__).with_name('capture_the_flag.js'),
)

_SOURCE = 'capture_the_flag'


def make_config() -> Any:
  """Returns the config of the game that the shipped population plays."""
  spec = game_files.read(loading.find(_SOURCE))
  return browser.read_config(spec.environment, spec.team_size)


def make_data() -> dict[str, Any]:
  """Returns config, maps and arrays of the members, as JSON."""
  config = make_config()
  make_map = jax.jit(lambda key: maps.make_map(key, config))
  made = [make_map(jax.random.PRNGKey(seed)) for seed in range(NUM_MAPS)]
  variables = [
    agent.variables for agent in loading.load_members(_SOURCE, greedy=False)
  ]
  params = jax.tree.map(lambda *leaves: np.stack(leaves), *variables)
  arrays = {
    f'params/{module}/{name}': _encode(leaf)
    for module, leaves in params.params.items()
    if not module.startswith('value_head')
    for name, leaf in leaves.items()
  }
  arrays['internal_rewards'] = _encode(params.internal_rewards)
  made_game = playable.find(_SOURCE)
  seats = [
    made_game.seat_facts(seat, f'member {seat}' if seat else 'person', not seat)
    for seat in range(len(made_game.teams))
  ]
  # Facts are what the script of the game asks for; the rest is for its rules.
  facts = browser.make_page(config).facts(types.SimpleNamespace(map=made[0]))
  fields = ('tag_cooldown', 'flag_return_period', 'respawn_period')
  return {
    # For saved games, which bring their drawing.
    'code': SHARED[-1].read_text('utf-8'),
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


def to_script(data: dict[str, Any]) -> str:
  """Returns the data as a script, since pages on a disk cannot fetch files."""
  return f'ftwax.data = {json.dumps(data, separators=(",", ":"))};\n'


def _encode(array: Any) -> dict[str, Any]:
  array = np.asarray(array, np.float32)
  data = base64.b64encode(array.tobytes()).decode()
  return {'shape': list(array.shape), 'data': data}


def complete(page: pathlib.Path) -> None:
  """Adds to the folder of the page what it takes from the library."""
  for source in SHARED:
    shutil.copy(source, page)
  (page / 'data.js').write_text(to_script(make_data()), 'utf-8')
