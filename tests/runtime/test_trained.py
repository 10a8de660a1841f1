"""The populations that come with the library."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftwax
from ftwax import inference
from ftwax.cli import past_runs
from ftwax.environments import capture_the_flag
from ftwax.inference import loading, playable
from ftwax.population import players
from ftwax.runtime import evaluation
from ftwax.runtime.device import matches

# Of the tournament: the main job's maps of full size.
RULES = capture_the_flag.CaptureTheFlagConfig(height=11, width=15)
GAMES = {
  'capture_the_flag': capture_the_flag.make(RULES),
  'first_person': capture_the_flag.make(
    RULES.replace(observation='rays', compass=False)
  ),
}


@pytest.fixture(scope='module', params=GAMES)
def name(request):
  return request.param


@pytest.fixture(scope='module')
def agents(name):
  return [ftwax.load(name, member, greedy=False) for member in (0, 1)]


def test_trained_members_beat_random_play(name, agents):
  game = GAMES[name]
  variables = jax.tree.map(
    lambda *leaves: jnp.stack(leaves), *(agent.variables for agent in agents)
  )
  results = matches.round_robin(
    jax.random.PRNGKey(0),
    game,
    agents[0].actor,
    variables,
    {'random': players.uniform(game.spec.actions)},
    games_per_pair=10,
  )
  summary = evaluation.summarize(results, game.teams, 3, anchor=2)
  assert np.all(summary.win_rates[:2, 2] > 0.75)


def test_a_trained_member_acts(name, agents):
  game = GAMES[name]
  _, timestep = game.reset(jax.random.PRNGKey(0))
  first = jax.tree.map(lambda leaf: leaf[0], timestep)
  action = agents[0].act(first)
  for part, spec in game.spec.actions.items():
    spec.validate(action[part])


def test_records_come_with_it(name):
  directory = loading.TRAINED / name
  most = {'capture_the_flag': 2e6, 'first_person': 7e5}[name]
  assert sum(path.stat().st_size for path in directory.iterdir()) < most
  about = json.loads((directory / 'about.json').read_text())
  assert about['scores'].keys() == {
    'random', 'wanderer', 'attacker', 'tactician',
  }  # fmt: skip
  assert (directory / 'lineage.jsonl').exists()
  assert json.loads((directory / 'versions.json').read_text())['commit']
  for path in directory.glob('*.json'):
    assert '/tmp' not in path.read_text() and '/root' not in path.read_text()


def test_the_game_of_a_population_is_rebuilt(name):
  made = past_runs.rebuild(name, None)
  game = made.evaluation_factory(0)
  assert game.spec.observations == GAMES[name].spec.observations
  state, timestep = game.reset(jax.random.PRNGKey(0))
  same, expected = GAMES[name].reset(jax.random.PRNGKey(0))
  np.testing.assert_array_equal(state.map.tiles, same.map.tiles)
  np.testing.assert_array_equal(timestep.observation, expected.observation)
  # Pages play it, too.
  shown = playable.find(name).game.reset(jax.random.PRNGKey(0))[1]
  np.testing.assert_array_equal(shown.observation, expected.observation)


def test_all_members_are_rebuilt_with_their_experiment(name, agents):
  made = past_runs.rebuild(name, None)
  last = made.population.num_members - 1
  again = ftwax.load(name, last, False, made)
  assert jax.tree.map(jnp.shape, again.variables) == jax.tree.map(
    jnp.shape, agents[0].variables
  )
  with pytest.raises(ValueError, match=f'member.*{last + 1}'):
    ftwax.load(name, last + 1)


def test_a_population_of_another_name_is_refused():
  with pytest.raises(ValueError, match=r"one of \['capture_the_flag', 'first"):
    inference.load('hide_and_seek')
