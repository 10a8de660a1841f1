"""The populations that come with the library."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftwax
from ftwax import inference
from ftwax.environments import capture_the_flag
from ftwax.inference import loading
from ftwax.population import players
from ftwax.runtime import evaluation
from ftwax.runtime.device import matches

# Of the tournament: the main job's maps of full size.
GAME = capture_the_flag.make(
  capture_the_flag.CaptureTheFlagConfig(height=11, width=15)
)


@pytest.fixture(scope='module')
def agents():
  return [
    ftwax.load('capture_the_flag', member, greedy=False) for member in (0, 1)
  ]


def test_trained_members_beat_random_play(agents):
  variables = jax.tree.map(
    lambda *leaves: jnp.stack(leaves), *(agent.variables for agent in agents)
  )
  results = matches.round_robin(
    jax.random.PRNGKey(0),
    GAME,
    agents[0].actor,
    variables,
    {'random': players.uniform(GAME.spec.actions)},
    games_per_pair=10,
  )
  summary = evaluation.summarize(results, GAME.teams, 3, anchor=2)
  assert np.all(summary.win_rates[:2, 2] > 0.75)


def test_a_trained_member_acts(agents):
  _, timestep = GAME.reset(jax.random.PRNGKey(0))
  first = jax.tree.map(lambda leaf: leaf[0], timestep)
  action = agents[0].act(first)
  for name, spec in GAME.spec.actions.items():
    spec.validate(action[name])


def test_records_come_with_it():
  directory = loading.TRAINED / 'capture_the_flag'
  assert sum(path.stat().st_size for path in directory.iterdir()) < 5e6
  about = json.loads((directory / 'about.json').read_text())
  assert about['scores'].keys() == {
    'random', 'wanderer', 'attacker', 'tactician',
  }  # fmt: skip
  assert (directory / 'lineage.jsonl').exists()
  assert json.loads((directory / 'versions.json').read_text())['commit']


def test_a_population_of_another_name_is_refused():
  with pytest.raises(ValueError, match=r"one of \['capture_the_flag'\]"):
    inference.load('hide_and_seek')
