"""Small games and rooms for tests of pages."""

import json
import pathlib
import re
import runpy
import shutil
import time

import numpy as np
import pytest

from ftwax.environments import capture_the_flag, catch, functional, games
from ftwax.inference import playable
from ftwax.records import game_files, loggers, run_directory
from ftwax.reporting import saved_games
from ftwax.web import pages, play_room

# With it come the other packages that tests of pages need.
pytest.importorskip('httpx2', reason='the extra dev is not there')

from starlette import testclient  # noqa: E402

BASE_URL = 'http://127.0.0.1'


def make_capture_the_flag(**options):
  """Returns a short game of scripted players."""
  config = capture_the_flag.CaptureTheFlagConfig(
    **{'team_size': 1, 'height': 7, 'width': 11, 'num_steps': 12, **options}
  )
  game = capture_the_flag.make(config)
  # One script, since each takes seconds to compile.
  scripts = {'wanderer': game.scripts['wanderer']}
  return playable.make('capture the flag', game._replace(scripts=scripts))


def make_catch():
  return playable.make('catch', catch.make())


def make_client(playable, directory, **options):
  """Returns a client of a new room, and its saved games."""
  saved = saved_games.SavedGames(directory)
  app = pages.make_play_app(play_room.Room(playable, saved), saved, **options)
  return testclient.TestClient(app, base_url=BASE_URL), saved


def connect(client):
  """Returns a socket to the room, as a page opens it."""
  return client.websocket_connect(
    'ws://127.0.0.1/room', headers={'origin': BASE_URL}
  )


def receive(socket, name, timeout=60.0):
  """Returns the next message with an entry `name`."""
  end = time.monotonic() + timeout
  while time.monotonic() < end:
    message = socket.receive_json()
    if name in message:
      return message
  raise AssertionError(f'no message with {name} came')


def receive_phase(socket, phase):
  while True:
    message = receive(socket, 'phase')
    if message['phase'] == phase:
      return message


def make_run(directory):
  """Writes the records of a short run of catch."""
  (directory / 'logs').mkdir(parents=True)
  config = {
    'name': 'catch', 'seed': 3, 'max_num_actor_steps': 100,
    'population': {'num_members': 1},
  }  # fmt: skip
  (directory / 'config.json').write_text(json.dumps(config))
  (directory / 'command.txt').write_text('2026-01-01T00:00:00 train\n')
  game = functional.as_game(catch.make())
  spec = games.GameSpec(game.spec, game.teams, game.event_names)
  game_files.write(directory, spec)
  append_rows(directory, 10, 20)
  return directory


def append_rows(directory, *steps):
  """Appends a row to the log of training for each number of steps."""
  with open(directory / 'logs' / 'train.jsonl', 'a') as file:
    for step in steps:
      row = {'episode_return': step / 100, 'actor_steps': step, 'seconds': step}
      file.write(json.dumps(row) + '\n')


def read_link(stream):
  """Returns the address in the lines that a process prints."""
  for line in stream:
    # Launchpad ends the lines of its processes by a code of their color.
    found = re.search(r'http://[^\s\x1b]+', line)
    if found:
      return found[0]
  raise AssertionError('no link was printed')


def make_site_game(directory):
  """Builds the site's page of the game, as `docs/hooks.py` does."""
  folder = pathlib.Path(__file__).parents[2] / 'docs'
  target = directory / 'play'
  shutil.copytree(folder / 'play', target)
  runpy.run_path(str(folder / 'play' / 'make_data.py'))['complete'](target)
  return target / 'index.html'


def make_population_run(directory, seed, **config):
  """Writes the records of a finished run of three members in games."""
  rng = np.random.default_rng(seed)
  config = {
    'name': 'my_game', 'seed': seed, 'max_num_actor_steps': 4_000,
    'environment': 'game:Maze', 'population': {'num_members': 3}, **config,
  }  # fmt: skip
  directory = run_directory.create_at(directory, config)
  (directory / 'command.txt').write_text(
    '2026-01-01T00:00:00 python -m ftwax train my_game'
    ' --set=agent.learning_rate=0.001 --max_num_actor_steps=4000\n'
  )
  rows = {'train': [], 'population': [], 'evaluation': []}
  for step in range(100, 4_100, 100):
    counts = {'actor_steps': step, 'seconds': step / 10}
    value = np.tanh(step / 2_000) + rng.normal() / 10
    rows['train'].append(
      {'episode_return': value, 'num_episodes': 10, **counts}
    )
    if step % 1_000 == 0:
      rows['population'].append(_population_row(rng, step // 1_000, counts))
      scores = np.clip(value * rng.uniform(0.5, 1.0, (3, 2)), 0.0, 1.0)
      rows['evaluation'].append(
        {
          'scores/random': scores[:, 0].mean(),
          'scores/very_strong_script': scores[:, 1].mean(),
          'member_scores': scores.tolist(),
          'member_games': [[100, 100]] * 3,
          **counts,
        }
      )
  for label, lines in rows.items():
    logger = loggers.JSONLLogger(loggers.log_path(directory, label))
    for line in lines:
      logger.write(line)
    logger.close()
  lineage = [
    {'generation': 0, 'num_members': 3},
    {'generation': 2, 'member': 0, 'parent': 1, 'games': 20, 'changed': {}},
  ]
  (directory / 'lineage.jsonl').write_text(
    ''.join(json.dumps(row) + '\n' for row in lineage)
  )
  return directory


def _population_row(rng, generation, counts):
  return {
    'generation': generation,
    'games': [10 * generation] * 3,
    'ratings': rng.normal(1000.0, 50.0, 3),
    'mean_returns': rng.normal(0.5, 0.1, 3),
    'internal_rewards': rng.uniform(-1.0, 1.0, (3, 2)),
    'event_rates': rng.uniform(0.0, 2.0, (3, 2)),
    'payoff_scores': [[0.0, 3.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
    'payoff_games': [[0.0, 4.0, 2.0], [4.0, 0.0, 0.0], [2.0, 0.0, 0.0]],
    'hyperparameters/learning_rate': rng.uniform(1e-4, 1e-3, 3),
    'hyperparameters/entropy_cost': rng.uniform(1e-4, 1e-3, 3),
    **counts,
  }
