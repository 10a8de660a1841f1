"""Arrays and Minari data sets become recorded games."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import ftwax
from ftwax import types
from ftwax.agents import ppo
from ftwax.cli import record_command
from ftwax.environments import catch, functional, gymnasium_spaces
from ftwax.networks import cores
from ftwax.records import recorded_episodes, recorded_games
from ftwax.runtime import prepare, recorded

Episode = recorded_episodes.Episode


class _Arm(gymnasium.Env):
  """Every kind of space, in an order of its own."""

  observation_space = spaces.Dict(
    {
      'place': spaces.Box(-np.inf, np.inf, (3,), np.float64),
      'frame': spaces.Box(0, 255, (4, 4), np.uint8),
      'mode': spaces.Discrete(5, start=2),
    }
  )
  action_space = spaces.Dict(
    {
      'force': spaces.Box(np.float32([-2, 0]), np.float32([2, 8])),
      'grip': spaces.MultiDiscrete([2, 3]),
      'switch': spaces.Discrete(3, start=1),
    }
  )

  def reset(self, seed=None, options=None):
    super().reset(seed=seed)
    self._step = 0
    return self.observation_space.sample(), {}

  def step(self, action):
    assert self.action_space.contains(action)
    self._step += 1
    is_over = self._step == 5
    return self.observation_space.sample(), 0.5, is_over, False, {}


class _Fake:
  """Has what is read of a `minari.MinariDataset`."""

  def __init__(self, env, episodes):
    self.observation_space = env.observation_space
    self.action_space = env.action_space
    self._episodes = episodes

  def iterate_episodes(self):
    return iter(self._episodes)


class _EpisodeData:
  """Has the fields of Minari's."""

  def __init__(self, **fields):
    vars(self).update(fields)


def stack(values):
  return jax.tree.map(lambda *leaves: np.stack(leaves), *values)


def sample_episode(length, terminations=(), truncations=()):
  env = _Arm()
  env.observation_space.seed(0)
  env.action_space.seed(0)
  flags = [
    np.isin(np.arange(length), steps) for steps in (terminations, truncations)
  ]
  return _EpisodeData(
    observations=stack(
      [env.observation_space.sample() for _ in range(length + 1)]
    ),
    actions=stack([env.action_space.sample() for _ in range(length)]),
    rewards=np.arange(length) + 1.0,
    terminations=flags[0],
    truncations=flags[1],
  )


def read(directory):
  spec = recorded_games.read_game(directory).environment
  return list(recorded_games.read(directory, spec))


def test_spaces_and_ends_are_those_of_the_environment(tmp_path):
  data = _Fake(
    _Arm(),
    [
      sample_episode(3, terminations=[2]),
      sample_episode(2, truncations=[1]),
      sample_episode(2),  # Its end is not recorded.
      sample_episode(5, terminations=[1, 4], truncations=[4]),
    ],
  )
  assert recorded_episodes.from_minari(tmp_path / 'games', data) == 5
  (streams,) = read(tmp_path / 'games')
  step_type = streams.timestep.step_type[:, 0]
  lengths = [3, 2, 2, 2, 3]
  wanted = np.concatenate(
    [[types.FIRST, *[types.MID] * (n - 1), types.LAST] for n in lengths]
  )
  np.testing.assert_array_equal(step_type, wanted)
  last = step_type == types.LAST
  assert streams.timestep.discount[last, 0].tolist() == [0, 1, 1, 0, 0]
  assert (streams.timestep.discount[~last] == 1).all()
  rewards = streams.timestep.reward[:, 0]
  assert rewards.tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 3, 4, 5]
  decode = gymnasium_spaces.make_decoder(_Arm.action_space)
  for index in range(1, 4):
    taken = jax.tree.map(
      lambda leaf, i=index: leaf[i, 0], streams.previous_action
    )
    back, own = decode(taken), sample_episode(3).actions
    for name, value in back.items():
      np.testing.assert_allclose(value, own[name][index - 1], rtol=1e-6)
  seen = streams.timestep.observation
  assert seen['place'].dtype == np.float32 and seen['frame'].dtype == np.uint8
  np.testing.assert_array_equal(
    seen['mode'][:4, 0], sample_episode(3).observations['mode']
  )


@pytest.mark.ci
def test_agents_learn_vectors_in_their_own_scale(tmp_path):
  data = _Fake(_Arm(), [sample_episode(9, terminations=[8])])
  recorded_episodes.from_minari(tmp_path / 'games', data)
  experiment = ftwax.ExperimentConfig(
    agent=ppo.PPOConfig(
      core=cores.GRU(4),
      tasks=('clone',),
      sequence_length=4,
      batch_size=2,
      num_minibatches=1,
    ),
    environment=_Arm,
    max_num_actor_steps=32,
    num_environments=1,
    demonstrations=str(tmp_path / 'games'),
    offline=True,
  )
  made = recorded.load(prepare.prepare(experiment)).demonstrations
  force = made.previous_action['force']
  assert np.abs(force).max() <= 1.0 + 1e-6
  own = sample_episode(9).actions['force']
  middle, half = np.array([0.0, 4.0]), np.array([2.0, 4.0])
  np.testing.assert_allclose(
    force[1:, 0], ((own - middle) / half)[:4], rtol=1e-5
  )
  assert not force[0, 0].any()
  result = ftwax.run(experiment, 16, 1, run_dir=tmp_path / 'run')
  assert not np.any(result.state.skipped)


@pytest.mark.filterwarnings('ignore::UserWarning')
def test_minari_s_own_data_sets_are_read(tmp_path, monkeypatch, capsys):
  minari = pytest.importorskip('minari', reason='the extra minari is not there')
  pytest.importorskip('h5py', reason='the extra minari is not there')
  monkeypatch.setenv('MINARI_DATASETS_PATH', str(tmp_path / 'data'))
  env = gymnasium.make('CartPole-v1', max_episode_steps=12)
  buffers, lengths = [], []
  for seed in range(6):
    observation, _ = env.reset(seed=seed)
    kept = {'observations': [observation], 'actions': [], 'rewards': []}
    flags = {'terminations': [], 'truncations': []}
    while not any(map(any, flags.values())):
      action = len(kept['actions']) % 2 if seed % 2 else 1
      observation, reward, *ends, _ = env.step(action)
      kept['observations'].append(observation)
      kept['actions'].append(action)
      kept['rewards'].append(float(reward))
      for flag, value in zip(flags.values(), ends, strict=True):
        flag.append(value)
    lengths.append(len(kept['actions']))
    buffers.append(minari.data_collector.EpisodeBuffer(**kept, **flags))
  minari.create_dataset_from_buffers(
    'cartpole/test-v0',
    buffers,
    observation_space=env.observation_space,
    action_space=env.action_space,
  )
  env.close()
  out = str(tmp_path / 'games')
  options = record_command.Options(minari='cartpole/test-v0', out=out)
  assert record_command.run(options) == 0
  assert 'cartpole/test-v0 has 6 episodes' in capsys.readouterr().out
  (streams,) = read(out)
  step_type = streams.timestep.step_type[:, 0]
  assert len(step_type) == sum(lengths) + 6
  ends = streams.timestep.discount[step_type == types.LAST, 0]
  wanted = [float(length == 12) for length in lengths]
  assert ends.tolist() == wanted and 0 < sum(wanted) < 6
  experiment = ftwax.ExperimentConfig(
    agent=ppo.PPOConfig(core=cores.FeedForward(8), tasks=('clone',)),
    environment='CartPole-v1',
    max_num_actor_steps=1_000,
    demonstrations=out,
    offline=True,
  )
  recorded.check(prepare.prepare(experiment))
  with pytest.raises(
    ValueError, match=r'minari \(no/such-v0\) must be a data s'
  ):
    recorded_episodes.from_minari(tmp_path / 'other', 'no/such-v0')


def make_arrays(length=4, **changes):
  fields = {
    'observations': np.zeros((length + 1, 5, 4)),
    'actions': np.arange(length) % 3,
    'rewards': np.linspace(0.0, 1.0, length),
    'is_terminated': True,
  }
  return Episode(**{**fields, **changes})


def test_arrays_of_one_s_own_are_recorded(tmp_path):
  game = catch.make(5, 4)
  episodes = [make_arrays(), make_arrays(2, is_terminated=False)]
  assert recorded_episodes.from_arrays(tmp_path / 'games', game, episodes) == 2
  recorded_episodes.from_arrays(tmp_path / 'games', game, iter(episodes[:1]))
  first, second = recorded_games.read(
    tmp_path / 'games', functional.as_game(game).spec
  )
  assert (first.shape, second.shape) == ((8, 1), (5, 1))
  assert first.previous_action[:, 0].tolist() == [-1, 0, 1, 2, 0, -1, 0, 1]


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (
      {'rewards': np.zeros(3)},
      r'actions \(shape \(4,\)\) must be of shape \(3,\)'
      '|observations .shape',
    ),
    ({'rewards': np.zeros(0)}, r'rewards of episode 1 .* with L > 0'),
    ({'rewards': np.full(4, np.nan)}, 'rewards of episode 1 must be finite'),
    (
      {'actions': np.full(4, 3)},
      r'actions of episode 1 \(from 3 to 3\) must be',
    ),
    (
      {'actions': np.zeros(4)},
      r'episode 1: actions \(float64\) must be of dtype',
    ),
    ({'actions': {'x': np.zeros(4)}}, 'episode 1: actions .*must be'),
    (
      {'observations': np.full((5, 5, 4), np.inf)},
      'episode 1: observations must be finite, and is not at step 0',
    ),
  ],
)
def test_arrays_that_do_not_fit_are_told(tmp_path, change, message):
  episodes = [make_arrays(), make_arrays(**change)]
  with pytest.raises(ValueError, match=message) as caught:
    recorded_episodes.from_arrays(
      tmp_path / 'games', catch.make(5, 4), episodes
    )
  assert '\n' not in str(caught.value)
  assert not (tmp_path / 'games').exists()


def test_what_cannot_be_recorded_is_told(tmp_path):
  with pytest.raises(ValueError, match='episodes must be at least one'):
    recorded_episodes.from_arrays(tmp_path / 'games', catch.make(5, 4), [])
  with pytest.raises(ValueError, match='run must be given, or else --minari'):
    record_command.run(record_command.Options())
  with pytest.raises(ValueError, match='run must be given, or else --minari'):
    record_command.run(record_command.Options(run='here', minari='there'))
