"""What `docs/coming_from/` says of behaviour is tried here.

A test quotes the sentences that it tries, which must stand on one of its pages.
"""

import functools
import importlib

import chex
import equivalents
import fakes
import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import hyperparameters, internal_rewards
from ftwax.agents import a2c, ftw, ppo, unreal
from ftwax.agents.actor_critic import optimization, tasks
from ftwax.environments import gymnasium_adapter
from ftwax.networks import embeddings, entry_torsos
from ftwax.records import checkpoints, loggers
from ftwax.replay import functional, replay_options
from ftwax.replay.functional import rebalancing
from ftwax.replay.functional import segment_tree as tree_lib

SPEC = {'step_type': np.zeros((), np.int32), 'reward': np.zeros((), np.float32)}


def _replay(**options):
  sizes = {'num_environments': 2, 'max_length': 4, 'batch_size': 100}
  config = functional.ReplayConfig(**{**sizes, **options})
  return functional.make_replay(SPEC, config)


def _fill(replay):
  """Adds six steps of each environment to the four that fit."""
  state = replay.add_sequence(replay.init(), _steps(range(2)))
  return replay.add_sequence(state, _steps(range(2, 6)))


def _steps(values):
  """Returns steps with rewards, [S, 2]."""
  rewards = np.asarray(values, np.float32)[:, None] + np.array([0, 100])
  return {
    'step_type': np.ones(rewards.shape, np.int32),
    'reward': rewards.astype(np.float32),
  }


@equivalents.says(
  'leaves start as the identity (0, inf, -inf)',
  'of repeated indices the last counts',
  '-1 skips an entry; other indices out of range raise outside of `jit` and'
  ' are skipped within, like NaN',
  'Empty updates are allowed',
  'capacity 0 is an error',
)
def test_leaves_of_segment_trees():
  for operation, leaf in (
    (tree_lib.SUM, 0.0), (tree_lib.MIN, np.inf), (tree_lib.MAX, -np.inf)
  ):  # fmt: skip
    tree = tree_lib.init(operation, 3)
    assert tree.dtype == jnp.float32
    np.testing.assert_array_equal(tree_lib.get_all(tree, 3), [leaf] * 3)
  update = functools.partial(tree_lib.update, tree_lib.SUM)
  tree = update(
    tree_lib.init(tree_lib.SUM, 3), np.array([1, 1, -1]), np.array([2.0, 5, 7])
  )
  np.testing.assert_array_equal(tree_lib.get_all(tree, 3), [0.0, 5.0, 0.0])
  for index, value in ((4, 1.0), (-2, 1.0), (0, np.nan)):
    entry = jnp.array([index]), jnp.array([value], jnp.float32)
    with pytest.raises(ValueError, match='index of a leaf|NaN'):
      update(tree, *entry)
    chex.assert_trees_all_equal(jax.jit(update)(tree, *entry), tree)
  nothing = np.zeros((0,), np.int32), np.zeros((0,), np.float32)
  chex.assert_trees_all_equal(update(tree, *nothing), tree)
  with pytest.raises(ValueError, match=r'capacity \(0\)'):
    tree_lib.init(tree_lib.SUM, 0)


@equivalents.says(
  'a threshold equal to the sum gives the last non-zero leaf; one above it'
  ' raises outside of `jit` and does the same within'
)
def test_thresholds_of_segment_trees():
  tree = tree_lib.build(tree_lib.SUM, jnp.array([1.0, 2.0, 0.0]))
  nothing = jnp.zeros(1)
  index, leaf = tree_lib.find_sum_bound(tree, jnp.array([3.0]), nothing)
  assert (index[0], leaf[0]) == (1, 2.0)
  with pytest.raises(ValueError, match='threshold must lie in'):
    tree_lib.find_sum_bound(tree, jnp.array([3.5]), nothing)
  index, leaf = jax.jit(tree_lib.find_sum_bound)(
    tree, jnp.array([3.5]), nothing
  )
  assert (index[0], leaf[0]) == (1, 2.0)


@equivalents.says(
  'a full ring overwrites its oldest steps',
  'dtypes and shapes must match the spec; nothing is broadcast or cast, other'
  ' than 64 bits to 32',
  '0.07 of 100 is 7 rows',
  'Rows of recent data come first, as in ALF',
  'all stored sequences are equally likely',
  'inside `jit`, rows without data have `info.is_valid` false and weight 0',
  'An empty replay has no valid rows',
)
def test_steps_and_samples_of_a_replay():
  replay = _replay()
  state = _fill(replay)
  rows = replay.gather_all(state)
  np.testing.assert_array_equal(rows.data['reward'][:, 0], [2, 3, 4, 5])
  step = jax.tree.map(lambda leaf: leaf[0], _steps([9]))
  replay.add(state, {**step, 'reward': step['reward'].astype(np.float64)})
  for wrong in (step['reward'].astype(np.int32), np.float32(0.0)):
    with pytest.raises(ValueError, match='must have'):
      replay.add(state, {**step, 'reward': wrong})
  values = functional.ReplayHyperparameters(recent_data_ratio=0.07)
  recent = _replay(recent_data=True, max_length=40)
  state = recent.add_sequence(recent.init(), _steps(range(40)))
  sample = recent.sample(state, jax.random.PRNGKey(0), values)
  newest = np.asarray(sample.data['reward'])[0] % 100 == 39
  assert newest[:7].all() and not newest[7:].all()
  # Of 100 stratified rows and 8 sequences, each has 12 or 13.
  plain = _replay(batch_size=96)
  drawn = plain.sample(
    plain.add_sequence(plain.init(), _steps(range(4))), jax.random.PRNGKey(0)
  )
  counts = np.unique(np.asarray(drawn.data['reward'])[0], return_counts=True)[1]
  np.testing.assert_array_equal(counts, [12] * 8)
  empty = jax.jit(plain.sample)(plain.init(), jax.random.PRNGKey(0))
  assert not np.any(empty.info.is_valid)
  assert not np.any(empty.info.importance_weight)
  assert not np.any(plain.gather_all(plain.init()).is_valid)


@equivalents.says(
  'raises priorities to the power `priority_exponent`',
  'Outdated positions are skipped, even if all are; positions not yet written,'
  ' and priorities that are negative, infinite or NaN, are errors; of repeated'
  ' positions the last counts',
  'the error for an unknown name lists the known ones',
  'integers in [0, E), unique; inside `jit`, ids out of range are ignored, and'
  ' of repeated ids all but the last',
)
def test_priorities_of_a_replay():
  replay = _replay(prioritized=True)
  state = _fill(replay)
  values = functional.ReplayHyperparameters(priority_exponent=0.5)
  update = functools.partial(replay.update_priorities, hyperparameters=values)
  env, zero = np.array([0, 0]), np.array([0, 0])
  late = np.array([3, 3])
  changed = update(state, env, late, np.array([4.0, 16.0], np.float32))
  share = 4.0 / (7 * 1.0 + 4.0)  # The others have the initial priority.
  sample = replay.sample(changed, jax.random.PRNGKey(0))
  (found,) = set(
    np.asarray(sample.info.probability)[
      np.asarray(sample.data['reward'])[0] == 3
    ].tolist()
  )
  np.testing.assert_allclose(found, share, rtol=1e-5)
  chex.assert_trees_all_equal(
    update(state, env, zero, np.ones(2, np.float32)), state
  )
  for position, priority in (
    (9, 1.0), (3, -1.0), (3, np.inf), (3, np.nan)
  ):  # fmt: skip
    with pytest.raises(ValueError, match='position|priorit'):
      update(state, env[:1], np.array([position]), np.float32([priority]))
  with pytest.raises(ValueError, match='step_type'):
    replay.get_field(state, 'rewards', env[:1], late[:1])
  step = jax.tree.map(lambda leaf: leaf[0], _steps([9]))
  for ids in ([0, 0], [0, 2]):
    with pytest.raises(ValueError, match='env_ids'):
      replay.add(state, step, np.array(ids))
  added = jax.jit(replay.add)(state, step, jnp.array([0, 0]))
  assert replay.gather_all(added).data['reward'][-1, 0] == 109


@equivalents.says(
  'P(not zero) = 1 / skew for any skew of at least 1, integer or not',
)
def test_rewards_are_balanced_by_any_skew():
  config = functional.ReplayConfig(num_environments=2, max_length=4)
  replay = functional.make_replay(SPEC, config)
  steps = _steps(range(4))
  steps['reward'][1:] = 0.0  # In the first environment all are zero.
  state = replay.add_sequence(replay.init(), steps)
  weights = rebalancing.reward_balanced(config, state, skew=2.5)
  stored = replay.gather_all(state).data['reward'].T  # [E, L]
  share = np.sum(np.asarray(weights)[np.asarray(stored) != 0.0])
  np.testing.assert_allclose(share, 0.4, rtol=1e-6)


@equivalents.says(
  '`agents.FTWConfig.replace` is short for the second',
  'a constant never changes; there a number is perturbed like any other',
  'a range is `hyperparameters.LogUniform(low, high)` with positive bounds; a'
  ' number is fixed, and zero is zero, not 1e-12',
  'bounds of zero or below are an error',
  "each value separately, within its prior's bounds",
  'weights may be negative; scaling never changes a sign',
)
def test_hyperparameters():
  config = ftw.FTWConfig(entropy_cost=0.0).replace(learning_rate=1e-4)
  assert config.learning_rate in (1e-4, hyperparameters.Constant(1e-4))
  first = config.sample_hyperparameters(jax.random.PRNGKey(0))
  assert first.learning_rate == np.float32(1e-4) and first.entropy_cost == 0.0
  with pytest.raises(ValueError, match='low'):
    hyperparameters.LogUniform(0.0, 1.0)
  priors = (
    hyperparameters.Constant(2.0), hyperparameters.LogUniform(1.0, 1.1)
  )  # fmt: skip
  values = (jnp.float32(2.0), jnp.float32(1.05))
  for seed in range(8):
    key = jax.random.PRNGKey(seed)
    values = hyperparameters.perturb(key, values, priors, 1.0)
    assert values[0] == 2.0 and 1.0 <= values[1] <= np.float32(1.1)
  weights = jnp.array([-0.5, 0.5])
  prior = hyperparameters.Uniform(-1.0, 1.0)
  for seed in range(8):
    key = jax.random.PRNGKey(seed)
    found = internal_rewards.perturb(key, weights, prior, 1.0)
    assert found[0] < 0.0 < found[1]


@equivalents.says('a share of the first value, not a rate: 0.1 ends at a tenth')
def test_the_learning_rate_has_an_end():
  config = a2c.A2CConfig(
    learning_rate=1.0, decay=optimization.LinearDecay(100.0, to=0.1)
  )
  values = config.sample_hyperparameters(jax.random.PRNGKey(0))
  for steps, rate in ((0, 1.0), (50, 0.55), (100, 0.1), (200, 0.1)):
    found = optimization.decay(config.decay, values, jnp.int32(steps))
    np.testing.assert_allclose(found.learning_rate, rate, rtol=1e-6)
  with pytest.raises(ValueError, match=r'to \(2.0\) of LinearDecay must be'):
    optimization.LinearDecay(to=2.0)


IMAGE = fakes.make_image_spec()
VECTOR = fakes.make_vector_spec()


@pytest.mark.parametrize(
  ('sentence', 'make', 'message'),
  [
    (
      'less than a batch is an error',
      lambda: ftw.FTWConfig(
        queue=replay_options.Queue(max_size=8), batch_size=16
      ),
      'max_size',
    ),
    (
      'longer than `sequence_length` is an error',
      lambda: ftw.FTWConfig(
        tasks=(tasks.RewardPrediction(length=9),), sequence_length=4
      ),
      'length',
    ),
    (
      'together with value replay it is an error; there one is chosen silently',
      lambda: unreal.UNREALConfig(tasks=('off_policy', 'value_replay')),
      'value_replay',
    ),
    (
      'at least `sequence_length + num_earliest_frames_ignored`, checked at'
      ' construction',
      lambda: _replay(sequence_length=4, num_earliest_frames_ignored=1),
      'max_length',
    ),
    (
      '| unknown arguments | ignored, with a warning | a `TypeError` |',
      lambda: ppo.PPOConfig(clip_epsilom=0.1),
      'clip_epsilon',
    ),
    pytest.param(
      "names must be 'policy'; there they are ignored",
      lambda: importlib.import_module('ftwax.acme').Learner.get_variables(
        None, ['weights']
      ),
      'policy',
      marks=pytest.mark.python_310,
    ),
    (
      'Vector actions are an error',
      lambda: unreal.UNREALConfig().make_network(
        IMAGE._replace(actions=specs.BoundedArray((2,), np.float32, -1.0, 1.0))
      ),
      'must be discrete for action values',
    ),
    (
      'Frames smaller than 8x8 are an error',
      lambda: hk.transform(lambda x: entry_torsos.FTWTorso()(x)).init(
        jax.random.PRNGKey(0), jnp.zeros((1, 7, 8, 3))
      ),
      '8',
    ),
  ],
)
def test_what_is_an_error(sentence, make, message):
  assert sentence in equivalents.read(), sentence
  with pytest.raises((TypeError, ValueError), match=message):
    make()


@equivalents.says(
  'a function from the number of an episode to the `options` of its `reset`'
)
def test_options_of_episodes():
  seen = []

  class Told(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
      seen.append(options)
      return np.zeros(2, np.float32), {}

    def step(self, action):
      return np.zeros(2, np.float32), 0.0, True, False, {}

  environment = gymnasium_adapter.GymnasiumEnvironment(
    Told(), options=lambda episode: {'level': episode // 2}
  )
  for _ in range(6):  # FIRST, LAST, FIRST, ...
    environment.step(0)
  assert seen == [{'level': 0}, {'level': 0}, {'level': 1}]


@equivalents.says(
  'images with other finite bounds are scaled by these to [0, 1]'
)
def test_images_are_scaled_by_their_bounds():
  spec = specs.BoundedArray((4, 4, 3), np.float32, -2.0, 2.0)
  found = embeddings.scale_image(jnp.full((1, 4, 4, 3), 1.0), spec)
  np.testing.assert_allclose(found, 0.75)


@equivalents.says(
  'writes a row for each of the first 1,000 episodes, then one a second, the'
  ' mean of its episodes; `train_period=0` of'
  ' `records.loggers.make_logger_factory` writes all'
)
def test_rows_of_episodes(tmp_path):
  for period, num_rows in ((1.0, 1002), (0.0, 1100)):
    make = loggers.make_logger_factory(
      tmp_path, terminal=False, tensorboard=False, train_period=period
    )
    log = make('train', 'actor_steps', int(period))
    for step in range(1100):
      log.write({'episode_return': 1.0, 'actor_steps': step})
    log.close()
    rows = loggers.read_jsonl(loggers.log_path(tmp_path, 'train', int(period)))
    assert len(rows) <= num_rows and rows[999]['actor_steps'] == 999
    assert sum(row.get('num_episodes', 1) for row in rows) == 1100


@equivalents.says('`FastSaver(...)`: `max_to_keep` (5)')
def test_checkpoints_kept(tmp_path):
  with checkpoints.Checkpointer(tmp_path, max_to_keep=2) as checkpointer:
    for step in (1, 2, 3):
      checkpointer.save(step, {'x': np.zeros(1)})
    checkpointer.wait()
    assert list(checkpointer.steps()) == [2, 3]
