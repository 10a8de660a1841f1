import episodes
import numpy as np
import pytest
from dm_env import specs

pytest.importorskip('bsuite', reason='bsuite installs on Python 3.10 only')

from ftwax.environments import bsuite_adapter

# Those on MNIST download their data.
NAMES = [
  name for name in bsuite_adapter.list_experiments() if 'mnist' not in name
]


def play(environment, num_steps, seed=0):
  rng = np.random.default_rng(seed)
  actions = rng.integers(0, environment.action_spec().num_values, num_steps)
  return [environment.reset(), *map(environment.step, actions.astype(np.int32))]


def describe(timesteps):
  return [
    (t.step_type, t.reward, t.discount, t.observation.tobytes())
    for t in timesteps
  ]


@pytest.mark.parametrize('name', NAMES)
def test_timesteps_conform(name):
  environment = bsuite_adapter.make(name, seed=0)
  checked = episodes.Checked(environment, name)
  assert environment.action_spec().dtype == np.int32
  for timestep in play(checked, 250):
    environment.observation_spec().validate(timestep.observation)
    if timestep.first():
      assert timestep.reward is None and timestep.discount is None
    else:
      environment.reward_spec().validate(timestep.reward)
      environment.discount_spec().validate(timestep.discount)
  assert environment.bsuite_num_episodes > 0


@pytest.mark.parametrize('name', NAMES)
def test_seed_makes_episodes_repeatable(name):
  a, b = (
    describe(play(bsuite_adapter.make(name, seed=7), 300)) for _ in range(2)
  )
  assert a == b


# In the others nothing is random, or seldom.
@pytest.mark.parametrize(
  'bsuite_id',
  [
    'bandit_noise/0',
    'cartpole/0',
    'catch/0',
    'catch_noise/0',
    'deep_sea_stochastic/0',
    'memory_len/0',
    'memory_size/3',
    'mountain_car/0',
    'umbrella_length/0',
    'umbrella_distract/0',
  ],
)
def test_seed_matters(bsuite_id):
  a, b = (
    describe(play(bsuite_adapter.make(bsuite_id, seed=seed), 300))
    for seed in (1, 2)
  )
  assert a != b


def test_seed_is_drawn_if_none_is_given():
  a, b = (
    describe(play(bsuite_adapter.make('memory_len/0'), 300)) for _ in range(2)
  )
  assert a != b


def test_settings_are_those_of_the_id():
  def length(bsuite_id):
    timesteps = play(bsuite_adapter.make(bsuite_id, seed=0), 200)
    return next(index for index, t in enumerate(timesteps) if t.last())

  assert length('memory_len') == length('memory_len/0')
  # The setting's length is 30, and the answer takes one action more.
  assert length('memory_len/15') == 31
  board = bsuite_adapter.make().observation_spec()
  assert board == specs.BoundedArray((10, 5), np.float32, 0, 1)


def test_bsuite_info_is_passed_on():
  environment = bsuite_adapter.make('catch/0', seed=0)
  rewards = [t.reward or 0 for t in play(environment, 219)]
  missed = sum(reward == -1 for reward in rewards)
  assert missed > 0
  assert environment.bsuite_info() == {'total_regret': 2 * missed}


def test_memory_pays_for_the_remembered_bit():
  environment = bsuite_adapter.make('memory_len/2', seed=0)
  for _ in range(20):
    timestep = environment.reset()
    bit = timestep.observation[0, 2] > 0
    while not timestep.last():
      timestep = environment.step(np.int32(bit))
    assert timestep.reward == 1


@pytest.mark.parametrize(
  ('bsuite_id', 'message'),
  [
    ('cach/0', r"bsuite_id \('cach/0'\) must start .* did you mean 'catch'"),
    ('qqqqqq', r'did you mean another one\?.*list_experiments\(\)'),
    ('catch/99', r"bsuite_id \('catch/99'\) must have an index from 0 to 19"),
    ('catch/-1', 'must have an index from 0 to 19; choose e.g. catch/0'),
    ('catch/one', 'must have an index from 0 to 19'),
    ('catch/0/1', 'must have an index from 0 to 19'),
  ],
)
def test_unknown_ids(bsuite_id, message):
  with pytest.raises(ValueError, match=message):
    bsuite_adapter.make(bsuite_id)
