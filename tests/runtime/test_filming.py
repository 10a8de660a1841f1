"""Films of loaded agents."""

import functional_fakes
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from ftwax import trees, types
from ftwax.environments import (
  adapting,
  capture_the_flag,
  functional,
  games,
)
from ftwax.inference import loaded_agent
from ftwax.reporting import videos

CAPTURE_THE_FLAG = capture_the_flag.make(
  capture_the_flag.CaptureTheFlagConfig(height=7, width=11, num_steps=3)
)
MATCHING = functional_fakes.make_team_matching(2, 5)


def make_agent(spec, teams=(0,), member=0):
  """Returns an agent whose actions are all zeros."""

  def select_action(variables, timestep, state):
    del variables
    rows = timestep.step_type.shape
    return trees.zeros_like_spec(spec.actions, rows), state

  actor = types.ActorCore(
    lambda key, batch_size: jnp.zeros((batch_size,)), select_action, None, None
  )
  events = jnp.ones(spec.rewards.shape or (1,))
  variables = types.ActorVariables((), (), events, jnp.zeros(()))
  names = ('reward',) * len(events)
  return loaded_agent.LoadedAgent(
    actor, variables, games.GameSpec(spec, teams, names), None, member
  )


@pytest.fixture
def player():
  return make_agent(CAPTURE_THE_FLAG.spec, CAPTURE_THE_FLAG.teams)


def read(path):
  frames = []
  with Image.open(path) as image:
    for index in range(image.n_frames):
      image.seek(index)
      frames.append(np.asarray(image.convert('RGB')))
  return np.stack(frames)


def test_a_game_is_filmed_with_score_and_legend(player, tmp_path):
  path = player.record(
    CAPTURE_THE_FLAG,
    tmp_path / 'game.gif',
    seats=[player, player, 'attacker', 'random'],
  )
  frames = read(path)
  assert len(frames) == 4  # The first moment, and one after each step.
  height, width = 7 * 32, 11 * 32
  assert frames.shape[1] > height + 50 and frames.shape[2] == width
  # The captions differ: they count steps.
  assert np.any(frames[0, :40] != frames[3, :40])


def test_scores_and_names_are_written(monkeypatch, tmp_path):
  written = []

  def add_captions(frames, lines, legend):
    written.extend(lines)
    return frames

  monkeypatch.setattr(videos, 'add_captions', add_captions)
  game = MATCHING._replace(
    display=functional.Display(
      render=lambda state: jnp.full(
        (2, 3, 3), jnp.max(state.players.num_steps), jnp.uint8
      ),
      score=lambda state: jnp.arange(2),
      team_names=('left', 'right'),
    ),
    scripts={'knows': functional_fakes.name_sign},
  )
  agent = make_agent(game.spec, game.teams, 3)
  path = agent.record(
    game, tmp_path / 'a.gif', ['knows', 'knows', agent, agent]
  )
  assert written[2] == [
    'left 0   knows (2x)   step 2',
    'right 1   member 3 (2x)',
  ]
  np.testing.assert_array_equal(read(path)[:, 0, 0, 0], range(6))
  # Without a score of its own a game has the rewards of teams.
  written.clear()
  game = game._replace(display=None)
  with pytest.raises(ValueError, match='must have a method `render`'):
    agent.record(game, tmp_path / 'b.gif')


def test_environments_of_gymnasium_are_filmed(tmp_path):
  from ftwax.environments import gymnasium_adapter

  env = gymnasium.make('CartPole-v1', render_mode='rgb_array')
  agent = make_agent(
    types.make_environment_spec(gymnasium_adapter.GymnasiumEnvironment(env))
  )
  path = agent.record(env, tmp_path / 'pole.gif', max_num_steps=3)
  assert len(read(path)) == 4
  with pytest.raises(ValueError, match='render_mode=.*rgb_array'):
    agent.record(gymnasium.make('CartPole-v1'), tmp_path / 'no.gif')


def test_images_that_agents_see_are_filmed(tmp_path):
  from ftwax.environments import catch

  environment = catch.make()
  path = make_agent(environment.spec).record(environment, tmp_path / 'c.gif')
  assert read(path).shape[2] == 320


def test_a_game_that_does_not_fit_ends_in_one_message(player, tmp_path):
  path = tmp_path / 'game.gif'
  with pytest.raises(ValueError, match=r"script \('expert'\) must be one of "):
    player.record(CAPTURE_THE_FLAG, path, ['expert'])
  with pytest.raises(ValueError, match=r'seats \(2\) must name a player for'):
    player.record(CAPTURE_THE_FLAG, path, [player] * 2)
  flat = capture_the_flag.make(
    capture_the_flag.CaptureTheFlagConfig(action='flat')
  )
  with pytest.raises(
    ValueError, match="'member 0' must be trained in a game with"
  ):
    player.record(flat, path)
  with pytest.raises(
    ValueError, match="'member 0' must be trained in a game with"
  ):
    player.record(MATCHING, path)
  assert not path.exists()


@pytest.mark.slow
def test_timesteps_of_another_game_are_refused(player):
  _, timestep = CAPTURE_THE_FLAG.reset(jax.random.PRNGKey(0))
  first = jax.tree.map(lambda leaf: leaf[0], timestep)
  with pytest.raises(
    ValueError, match=r'reward \(shape \(2,\)\) must be of sh'
  ):
    player.act(first._replace(reward=np.zeros(2)))
  with pytest.raises(ValueError, match=r'observation .* must be of shape'):
    player.act(first._replace(observation=np.zeros(3)))


def test_an_environment_is_filmed_by_its_name(tmp_path):
  spec = types.make_environment_spec(adapting.adapt('CartPole-v1', 0))
  path = tmp_path / 'film.gif'
  make_agent(spec).record('CartPole-v1', path, max_num_steps=3)
  assert len(read(path)) == 4


@pytest.mark.ci
def test_the_view_of_a_player_is_filmed_beside_the_game(player, tmp_path):
  films = [
    read(
      player.record(
        CAPTURE_THE_FLAG, tmp_path / f'{seat}.gif', ['tactician'], seat=seat
      )
    )
    for seat in (None, 0, 3)
  ]
  alone, first, last = films
  height, width = alone.shape[1], 11 * 32
  assert first.shape[1:3] == (height, width + 7 * 32 * 3 // 2)
  # The same game, seen from two sides.
  assert (first[1:, 60:250, :width] == last[1:, 60:250, :width]).mean() > 0.9
  views = [film[0, 60:250, width:] for film in (first, last)]
  assert views[0].std() > 10 and (views[0] != views[1]).mean() > 0.05
  with pytest.raises(ValueError, match=r'seat \(4\) must be one of the 4 of'):
    player.record(CAPTURE_THE_FLAG, tmp_path / 'a.gif', seat=4)
  blind = CAPTURE_THE_FLAG._replace(
    display=CAPTURE_THE_FLAG.display._replace(look=None)
  )
  with pytest.raises(ValueError, match=r'seat \(0\) must be None in a game wi'):
    player.record(blind, tmp_path / 'a.gif', seat=0)
