"""Games that ale-py steps together, beside those stepped one by one."""

import numpy as np
import pytest

pytest.importorskip('ale_py', reason='the extra envs is not there')

from ftwax.environments import atari, atari_vector, game_vectors, vector  # noqa: E402

LAST = 2


def make_both(game='breakout', **options):
  config = atari.AtariConfig(**{'noop_max': 0, 'size': 42, **options})

  def make(num_environments, seed):
    return atari_vector.make(
      game, num_environments=num_environments, seed=seed, config=config
    )

  made = game_vectors.make_games(vector.VectorFactory(make), [3, 4], 'test')
  alone = game_vectors.make_games(
    lambda seed: atari.make(game, seed=seed, config=config), [3, 4], 'test'
  )
  assert made.spec._replace(spaces='') == alone.spec
  return made, alone


def play(games, num_steps):
  rng = np.random.default_rng(0)
  num_actions = games.spec.environment.actions.num_values
  timesteps = [games.reset()]
  for _ in range(num_steps):
    timesteps.append(games.step(rng.integers(0, num_actions, 2)))
  games.close()
  return timesteps


@pytest.mark.parametrize(
  'options',
  [
    {},
    pytest.param({'grayscale': False, 'max_pool': False}, marks=pytest.mark.ci),
    {'sticky_actions': 0.0, 'action_repeat': 3, 'full_action_space': True},
    pytest.param({'max_episode_frames': 200}, marks=pytest.mark.ci),
  ],
)
def test_timesteps_are_those_of_single_games_until_the_last(options):
  num_ends = 0
  both = [play(games, 400) for games in make_both(**options)]
  for one, other in zip(*both, strict=True):
    for field in ('step_type', 'reward', 'discount'):
      np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    goes_on = one.step_type != LAST
    num_ends += (~goes_on).sum()
    np.testing.assert_array_equal(
      one.observation[goes_on], other.observation[goes_on]
    )
  assert num_ends


def test_the_last_observation_is_the_one_before():
  options = {'max_episode_frames': 60, 'action_repeat': 1, 'max_pool': False}
  timesteps = play(make_both(**options)[0], 130)
  ends = [i for i, t in enumerate(timesteps) if (t.step_type == LAST).all()]
  assert ends
  for end in ends:
    np.testing.assert_array_equal(
      timesteps[end].observation, timesteps[end - 1].observation
    )


def test_older_frames_are_black_at_the_start():
  made, alone = make_both(frame_stack=3, grayscale=False)
  one, other = made.reset().observation, alone.reset().observation
  assert one.shape == other.shape == (2, 42, 42, 9)
  assert not one[..., :6].any() and other[..., :6].any()
  np.testing.assert_array_equal(one[..., 6:], other[..., 6:])
  for _ in range(2):
    one = made.step(np.zeros(2, np.int32)).observation
    other = alone.step(np.zeros(2, np.int32)).observation
  np.testing.assert_array_equal(one, other)


def test_what_differs_too_much_is_refused():
  with pytest.raises(ValueError, match='terminal_on_life_loss .* must be Fals'):
    make_both(terminal_on_life_loss=True)
  with pytest.raises(ValueError, match=r"game \('pongg'\) must be the name"):
    make_both('pongg')
  with pytest.raises(ValueError, match=r'seed \(-1\) must lie in'):
    atari_vector.make(num_environments=2, seed=-1)
  made = atari_vector.make(num_environments=2, seed=2**31 - 1)
  assert made.reset().first().all()
  made.close()
