import dataclasses

import dm_env
import episodes
import numpy as np
import pytest
from dm_env import specs

pytest.importorskip('ale_py', reason='the extra envs is not there')

from ftwax.environments import atari, vector  # noqa: E402

FIRST, MID, LAST = dm_env.StepType


def play(environment, num_steps, seed=0):
  rng = np.random.default_rng(seed)
  actions = rng.integers(0, environment.action_spec().num_values, num_steps)
  return [environment.reset(), *map(environment.step, actions)]


def make(game='pong', seed=0, **options):
  config = atari.AtariConfig(**options)
  return atari.make(game, seed=seed, config=config)


def frames(timesteps):
  return np.stack([t.observation for t in timesteps])


@pytest.mark.parametrize(
  ('options', 'shape'),
  [
    ({}, (84, 84, 1)),
    ({'size': 42}, (42, 42, 1)),
    ({'grayscale': False}, (84, 84, 3)),
    ({'frame_stack': 4}, (84, 84, 4)),
    ({'frame_stack': 2, 'grayscale': False, 'size': 42}, (42, 42, 6)),
  ],
)
def test_specs(options, shape):
  environment = episodes.Checked(make(**options), 'pong')
  spec = environment.observation_spec()
  assert spec == specs.BoundedArray(shape, np.uint8, 0, 255)
  assert environment.action_spec() == specs.DiscreteArray(6, np.int32)
  timesteps = play(environment, 20)
  assert timesteps[0].first() and timesteps[0].reward is None
  assert timesteps[-1].reward.dtype == np.float32
  assert timesteps[-1].discount.dtype == np.float32
  assert frames(timesteps).std() > 10


def test_default_is_pong_as_configured():
  a, b = play(atari.make(seed=3), 10), play(make(seed=3), 10)
  np.testing.assert_array_equal(frames(a), frames(b))


def test_seed_decides():
  a, b, c = (play(make(seed=seed), 150) for seed in (1, 1, 2))
  np.testing.assert_array_equal(frames(a), frames(b))
  assert [t.reward for t in a] == [t.reward for t in b]
  assert not np.array_equal(frames(a), frames(c))


def test_without_sticky_actions_and_no_ops_the_seed_does_not_matter():
  a, b = (
    play(make(seed=seed, sticky_actions=0, noop_max=0), 100) for seed in (1, 2)
  )
  np.testing.assert_array_equal(frames(a), frames(b))


@pytest.mark.parametrize('option', [{'sticky_actions': 0.25}, {'noop_max': 30}])
def test_sticky_actions_and_no_ops_each_bring_the_seed_in(option):
  options = {'sticky_actions': 0, 'noop_max': 0, **option}
  a, b = (play(make(seed=seed, **options), 100) for seed in (1, 2))
  assert not np.array_equal(frames(a), frames(b))


def test_pong_ends_with_the_discount_zero_and_starts_again():
  environment = make(seed=0, action_repeat=8, max_episode_frames=10**6)
  timesteps = play(environment, 1000)
  last = next(index for index, t in enumerate(timesteps) if t.last())
  rewards = [t.reward for t in timesteps[1 : last + 1]]
  assert timesteps[last].discount == 0
  assert rewards.count(-1) == 21 or rewards.count(1) == 21
  assert timesteps[last + 1].first()
  assert all(t.mid() and t.discount == 1 for t in timesteps[1:last])


def test_frame_limit_truncates():
  environment = make(noop_max=0, max_episode_frames=21)
  timesteps = play(environment, 8)
  # 24 frames are the first multiple of 4 past the limit.
  assert [t.step_type for t in timesteps] == [
    FIRST,
    *[MID] * 5,
    LAST,
    FIRST,
    MID,
  ]
  assert timesteps[6].discount == 1
  # A new game begins: the frame counter starts anew.
  assert [t.step_type for t in play(environment, 6)][-1] == LAST


def lose_life(environment):
  timestep = environment.reset()
  for step in range(500):
    if timestep.last():
      return timestep
    timestep = environment.step(step % 2)
  raise AssertionError('no life was lost')


def test_life_loss_ends_an_episode_but_not_the_game():
  options = {'terminal_on_life_loss': True, 'noop_max': 0, 'sticky_actions': 0}
  environment = make('breakout', **options)
  last = lose_life(environment)
  assert last.discount == 0
  after = environment.step(0)
  assert after.first()
  # The game goes on from where it stood, with one life less on display.
  np.testing.assert_array_equal(after.observation, last.observation)
  new_game = make('breakout', **options)
  new_game.reset()
  assert not np.array_equal(
    environment.step(0).observation, new_game.step(0).observation
  )


def test_life_loss_leaves_every_life_an_episode():
  lives, games = (
    sum(
      t.last()
      for t in play(
        make('breakout', terminal_on_life_loss=option, noop_max=0), 1200
      )
    )
    for option in (True, False)
  )
  assert games >= 1 and 4 * games <= lives


def test_whole_games_have_all_lives():
  options = {'terminal_on_life_loss': True, 'noop_max': 0, 'sticky_actions': 0}
  environment = make('breakout', **options)
  environment.play_whole_games()
  timestep = environment.reset()
  while not timestep.last():
    timestep = environment.step(1)
  assert environment._ale.lives() == 0


def test_reset_within_a_life_starts_a_new_game():
  options = {'terminal_on_life_loss': True, 'noop_max': 0, 'sticky_actions': 0}
  environment = make('breakout', **options)
  start = environment.reset().observation
  lose_life(environment)
  environment.reset()
  environment.step(1)
  np.testing.assert_array_equal(environment.reset().observation, start)


def test_max_pool_shows_what_flickers():
  """Pooled frames are the maximum of the two raw frames they come from."""
  options = {
    'grayscale': True,
    'sticky_actions': 0,
    'noop_max': 0,
    'size': 42,
  }
  raw = make(max_pool=False, action_repeat=1, **options)
  pooled = make(max_pool=True, **options)
  plain = make(max_pool=False, **options)
  for environment in (raw, pooled, plain):
    environment.reset()
  differs = False
  for step in range(60):
    action = step % 6
    screens = [raw.step(action).observation for _ in range(4)]
    got = pooled.step(action).observation
    np.testing.assert_array_equal(plain.step(action).observation, screens[-1])
    # Resizing averages: the maximum before it is no less than after it.
    assert np.all(got.astype(int) >= np.maximum(*screens[-2:]).astype(int) - 1)
    differs |= not np.array_equal(got, screens[-1])
  assert differs


def test_frame_stack_is_oldest_first():
  options = {'sticky_actions': 0, 'noop_max': 0}
  stacked = frames(play(make(frame_stack=3, **options), 12))
  single = frames(play(make(**options), 12))[..., 0]
  for channel, lag in enumerate((2, 1, 0)):
    expected = single[np.maximum(np.arange(13) - lag, 0)]
    np.testing.assert_array_equal(stacked[..., channel], expected)


def test_full_action_space():
  environment = make(full_action_space=True)
  assert environment.action_spec().num_values == 18
  assert environment.step(17).first() and environment.step(17).mid()


@pytest.mark.parametrize('frame_stack', [1, 2])
def test_observations_are_the_callers_to_keep(frame_stack):
  environment = make(frame_stack=frame_stack)
  timesteps = [environment.reset()]
  copies = [timesteps[0].observation.copy()]
  for action in range(6):
    timesteps.append(environment.step(action))
    copies.append(timesteps[-1].observation.copy())
  np.testing.assert_array_equal(frames(timesteps), np.stack(copies))


def test_games_run_in_a_vector():
  environment = vector.VectorEnvironment([make(seed=seed) for seed in range(2)])
  environment.reset()
  timestep = environment.step(np.zeros(2, np.int32))
  assert timestep.observation.shape == (2, 84, 84, 1)


def test_games_are_listed():
  games = atari.list_games()
  assert {'pong', 'breakout', 'montezuma_revenge'} <= set(games)
  assert len(games) > 50


@pytest.mark.parametrize(
  ('game', 'message'),
  [
    ('Pong', r"game \('Pong'\) must .* did you mean 'pong'.*list_games\(\)"),
    ('brekout', "did you mean 'breakout'"),
    ('qqqqqq', 'did you mean another one'),
  ],
)
def test_unknown_game(game, message):
  with pytest.raises(ValueError, match=message):
    atari.make(game, seed=0)


@pytest.mark.parametrize('seed', [-1, 2**31])
def test_seed_must_suit_the_emulator(seed):
  with pytest.raises(ValueError, match=rf'seed \({seed}\) must lie in \[0, 2'):
    atari.make(seed=seed)


@pytest.mark.parametrize('action', [-1, 6])
def test_action_must_be_in_range(action):
  environment = make()
  environment.reset()
  with pytest.raises(
    ValueError, match=rf'action \({action}\) must lie in \[0, 6'
  ):
    environment.step(action)


@pytest.mark.parametrize(
  ('option', 'value', 'message'),
  [
    ('size', 0, r'size \(0\) of AtariConfig must be at least 1; choose 84'),
    ('action_repeat', 0, r'action_repeat \(0\) of .* must be at least 1'),
    ('frame_stack', 0, r'frame_stack \(0\) of .* must be at least 1'),
    (
      'max_episode_frames',
      0,
      r'max_episode_frames \(0\) of .* must be at least 1',
    ),
    ('noop_max', -1, r'noop_max \(-1\) of .* must be at least 0'),
    (
      'sticky_actions',
      1.0,
      r'sticky_actions \(1\.0\) of .* at least 0 and below 1',
    ),
    (
      'sticky_actions',
      -0.1,
      r'sticky_actions \(-0\.1\) of .* at least 0 and b',
    ),
  ],
)
def test_options_are_checked(option, value, message):
  with pytest.raises(ValueError, match=message):
    atari.AtariConfig(**{option: value})
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(atari.AtariConfig(), **{option: value})
