"""Bad input: a clear error outside jit, a documented result inside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import replay_steps
from jax.experimental import checkify

from ftwax.replay import functional

CONFIG = replay_steps.CONFIG.replace(recent_data=False)
KEY = jax.random.PRNGKey(0)


def make(**changes):
  return replay_steps.make(CONFIG, **changes)


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'num_environments': 0}, r'num_environments \(0\) must be at least 1'),
    ({'max_length': 0}, r'max_length \(0\) must be at least 1'),
    ({'sequence_length': 0}, r'sequence_length \(0\) must be at least 1'),
    ({'batch_size': -1}, r'batch_size \(-1\) must be at least 1'),
    (
      {'num_earliest_frames_ignored': -1},
      r'num_earliest_frames_ignored \(-1\) must not be negative',
    ),
    (
      {'sequence_length': 7},
      r'max_length \(6\) must hold sequence_length \(7\).*choose 7 or more',
    ),
    (
      {'num_earliest_frames_ignored': 5},
      r'num_earliest_frames_ignored \(5\); choose 7 or more',
    ),
    ({'max_length': 2**30}, r'max_length \(2147483648\) must be at most'),
    ({'batch_size': 2**16}, r'batch_size \(65536\) must be at most 32768'),
    (
      {'draw': 'distinct', 'batch_size': 13},
      r"batch_size \(13\) must be at most .*\(12\) with draw='distinct'",
    ),
    ({'draw': 'random'}, r"draw \('random'\) must be one of"),
    ({'episodes': False}, r'record_returns \(True\) .* set episodes=True'),
  ],
)
def test_bad_config(changes, message):
  with pytest.raises(ValueError, match=message):
    CONFIG.replace(**changes)


@pytest.mark.parametrize(
  'changes, message',
  [
    (
      {'step_type_field': 'kind'},
      r"field 'kind' must name .* no 'kind' among \['discount', 'image'",
    ),
    ({'reward_field': 'image.x'}, r"field 'image.x' .* no 'x' among \[\]"),
    (
      {'step_type_field': 'reward'},
      r'step_type \(float32 of shape \(\)\) must',
    ),
    ({'step_type_field': 'image'}, r'step_type \(uint8 of shape \(2,\)\) must'),
    ({'discount_field': 'image'}, r'discount \(of shape \(2,\)\) must'),
  ],
)
def test_bad_fields(changes, message):
  with pytest.raises(ValueError, match=message):
    make(**changes)


def test_empty_spec():
  with pytest.raises(
    ValueError, match=r'step_spec \(\{\}\) must have at least'
  ):
    functional.make_replay({}, CONFIG)


def test_batches_that_do_not_fit():
  replay = make()
  state = replay.init()
  step = replay_steps.make_step(0, 2)
  with pytest.raises(ValueError, match=r'batch must have the structure'):
    replay.add(state, {**step, 'extra': step['reward']})
  with pytest.raises(
    ValueError, match=r"batch\['image'\] must have dtype uint8"
  ):
    replay.add(state, {**step, 'image': step['image'].astype(np.float32)})
  with pytest.raises(
    ValueError, match=r"\['reward'\] must have shape \(1, 2\)"
  ):
    replay.add(state, {**step, 'reward': step['image'].astype(np.float32)})
  with pytest.raises(ValueError, match=r'of 2 environments, got 1 steps of 1;'):
    replay.add(state, replay_steps.make_step(0, 1))
  with pytest.raises(ValueError, match=r'1 to 6 steps .* got 7 steps of 2'):
    replay.add_sequence(state, replay_steps.make_sequence(0, 7, 2))
  with pytest.raises(ValueError, match=r'got 0 steps of 2'):
    replay.add_sequence(state, replay_steps.make_sequence(0, 0, 2))


@pytest.mark.parametrize(
  'env_ids, message',
  [
    ([0, 0], r'env_ids must be unique, but 0 is repeated'),
    ([1, 2], r'env_ids must lie in \[0, 2\), got 2'),
    ([-1, 1], r'env_ids must lie in \[0, 2\), got -1'),
    ([0.0, 1.0], r'env_ids must be integers \[K\], got float32'),
    ([[0, 1]], r'env_ids must be integers \[K\], .* shape \(1, 2\)'),
  ],
)
def test_bad_env_ids(env_ids, message):
  replay = make()
  state = replay_steps.fill(replay, 3, 2)
  env_ids = jnp.array(env_ids)
  step = replay_steps.make_step(3, 2)
  with pytest.raises(ValueError, match=message):
    replay.add(state, step, env_ids)
  for function in (replay.clear, replay.end_episodes):
    with pytest.raises(ValueError, match=message):
      function(state, env_ids)
  with pytest.raises(ValueError, match=message):
    replay.remove_up_to(state, 1, env_ids)
  with pytest.raises(ValueError, match=message):
    replay.dequeue(state, 1, env_ids)


def test_sampling_what_is_not_there():
  replay = make()
  state = replay_steps.fill(replay, 1, 2)
  assert not replay.can_sample(state)
  message = r'needs at least 1 sequences of 2 steps .* out of 0 stored'
  with pytest.raises(ValueError, match=message):
    replay.sample(state, KEY)
  info = jax.jit(replay.sample)(state, KEY).info
  assert not np.any(info.is_valid)
  np.testing.assert_array_equal(info.importance_weight, 0)
  np.testing.assert_array_equal(info.probability, 0)


@pytest.mark.parametrize('prioritized', [False, True])
def test_more_samples_than_data_without_replacement(prioritized):
  replay = make(draw='distinct', batch_size=5, prioritized=prioritized)
  state = replay_steps.fill(replay, 3, 2)
  assert not replay.can_sample(state)
  message = r'needs at least 5 sequences of 2 steps .* out of 4 stored'
  with pytest.raises(ValueError, match=message):
    replay.sample(state, KEY)
  info = jax.jit(replay.sample)(state, KEY).info
  np.testing.assert_array_equal(info.is_valid, [True] * 4 + [False])
  assert info.importance_weight[4] == 0
  assert replay.can_sample(replay_steps.fill(replay, 4, 2))


def test_all_priorities_zero():
  replay = make(batch_size=2)
  state = replay_steps.fill(replay, 2, 2)
  ids, positions = jnp.arange(2), jnp.zeros(2, jnp.int32)
  state = replay.update_priorities(state, ids, positions, jnp.zeros(2))
  assert not replay.can_sample(state)
  with pytest.raises(
    ValueError, match=r'priority is not zero, out of 2 stored'
  ):
    replay.sample(state, KEY)


@pytest.mark.parametrize(
  'env_id, position, priority, message',
  [
    (0, 3, -1.0, r'priorities must be finite and not negative, got -1.0'),
    (0, 3, np.nan, r'priorities must be finite and not negative, got nan'),
    (0, 3, np.inf, r'priorities must be finite and not negative, got inf'),
    (0, 8, 1.0, r'positions must have been written, .* 1 steps past'),
    (2, 3, 1.0, r'env_ids must lie in \[0, 2\), got 2'),
    (-1, 3, 1.0, r'env_ids must lie in \[0, 2\), got -1'),
  ],
)
def test_bad_priorities(env_id, position, priority, message):
  replay = make()
  state = replay_steps.fill(replay, 8, 2)
  args = (
    jnp.array([0, env_id]),
    jnp.array([4, position]),
    jnp.array([9.0, priority]),
  )
  with pytest.raises(ValueError, match=message):
    replay.update_priorities(state, *args)
  # Inside jit the bad one is passed over.
  got = jax.jit(replay.update_priorities)(state, *args)
  want = replay.update_priorities(state, *(arg[:1] for arg in args))
  jax.tree.map(np.testing.assert_array_equal, got, want)


def test_priorities_of_a_uniform_replay():
  replay = make(prioritized=False)
  with pytest.raises(ValueError, match=r'needs prioritized \(False\)'):
    replay.update_priorities(
      replay.init(), jnp.zeros(1, int), jnp.zeros(1, int), jnp.ones(1)
    )


@pytest.mark.parametrize(
  'env_id, position, message',
  [
    (0, 1, r'positions must be stored; 1 of environment 0 .* 6 steps before 8'),
    (1, 8, r'positions must be stored; 8 of environment 1'),
    (0, -1, r'positions must be stored; -1 of environment 0'),
    (2, 4, r'env_ids must lie in \[0, 2\), got 2'),
  ],
)
def test_steps_that_are_not_stored(env_id, position, message):
  replay = make()
  state = replay_steps.fill(replay, 8, 2)
  ids, positions = jnp.array([0, env_id]), jnp.array([5, position])
  np.testing.assert_array_equal(
    replay.is_stored(state, ids, positions), [True, False]
  )
  for function in (
    lambda *args: replay.get_field(args[0], 'reward', *args[1:]),
    replay.steps_to_episode_end,
    replay.episode_begin_position,
  ):
    with pytest.raises(ValueError, match=message):
      function(state, ids, positions)
  get_reward = jax.jit(lambda *args: replay.get_field(state, 'reward', *args))
  np.testing.assert_array_equal(get_reward(ids, positions), [5, 0])
  to_end = jax.jit(replay.steps_to_episode_end)(state, ids, positions)
  np.testing.assert_array_equal(to_end, [2, -1])
  begin = jax.jit(replay.episode_begin_position)(state, ids, positions)
  np.testing.assert_array_equal(begin, [4, position])


def test_unknown_field():
  replay = make()
  state = replay_steps.fill(replay, 1, 2)
  with pytest.raises(ValueError, match=r"field 'action' must name a part"):
    replay.get_field(state, ('reward', 'action'), 0, 0)


def test_dequeueing_more_than_there_is():
  replay = make()
  state = replay_steps.fill(replay, 3, 2)
  state = replay.remove_up_to(state, 2, jnp.array([1]))
  with pytest.raises(
    ValueError, match=r'num_steps \(2\) steps, but one holds 1'
  ):
    replay.dequeue(state, 2)
  with pytest.raises(ValueError, match=r'num_steps \(7\) must lie in \[1, 6\]'):
    replay.dequeue(state, 7)
  new, steps = jax.jit(lambda state: replay.dequeue(state, 2))(state)
  np.testing.assert_array_equal(new.ring.size, [1, 1])
  np.testing.assert_array_equal(steps.is_valid, [[True, False]] * 2)
  np.testing.assert_array_equal(steps.data['reward'], [[0, 0], [1, 0]])


def test_what_needs_episodes():
  replay = make(episodes=False, record_returns=False)
  state = replay_steps.fill(replay, 1, 2)
  for function in (replay.steps_to_episode_end, replay.episode_begin_position):
    with pytest.raises(ValueError, match=r'does not track episodes'):
      function(state, 0, 0)
  with pytest.raises(ValueError, match=r'make it with episodes=True'):
    replay.end_episodes(state)


def test_bad_share_of_recent_data():
  hyperparameters = functional.ReplayHyperparameters(recent_data_ratio=0.5)
  replay = make()
  state = replay_steps.fill(replay, 4, 2)
  with pytest.raises(ValueError, match=r'recent_data=True; got 0.5'):
    replay.sample(state, KEY, hyperparameters)
  replay = make(recent_data=True)
  replay.sample(state, KEY, hyperparameters)
  with pytest.raises(ValueError, match=r'must lie in \[0, 1\].* got 1.5'):
    replay.sample(state, KEY, hyperparameters._replace(recent_data_ratio=1.5))


def test_bad_weights():
  replay = make()
  state = replay_steps.fill(replay, 4, 2)
  weights = jnp.ones([2, 6]).at[0, 1].set(-1)
  with pytest.raises(ValueError, match=r'must be finite .* got -1.0'):
    replay.sample_weighted(state, KEY, weights)
  with pytest.raises(ValueError, match=r'weights \(6, 2\) must be'):
    replay.sample_weighted(state, KEY, weights.T)
  info = jax.jit(replay.sample_weighted)(state, KEY, weights * jnp.inf).info
  assert not np.any(info.is_valid)


def test_bad_ids_inside_jit_are_left_out():
  replay = make()
  state = replay_steps.fill(replay, 3, 2)
  step = replay_steps.make_sequence(3, 1, 4)
  step = {name: leaf[0] for name, leaf in step.items()}
  # Of environment 1 the last row counts; -1 and 2 do not exist.
  got = jax.jit(replay.add)(state, step, jnp.array([1, -1, 2, 1]))
  last = {name: leaf[3:] for name, leaf in step.items()}
  want = replay.add(state, last, jnp.array([1]))
  jax.tree.map(np.testing.assert_array_equal, got, want)


def errors_of(function, *args):
  error, _ = jax.jit(checkify.checkify(function))(*args)
  return error.get()


@pytest.mark.slow
def test_checkify_tells_of_bad_input_inside_jit():
  replay = make(checkify=True, draw='distinct')
  silent = make(draw='distinct')
  state = replay_steps.fill(replay, 8, 2)
  ids, positions = jnp.array([0, 0]), jnp.array([5, 1])
  step = replay_steps.make_step(8, 2)
  cases = [
    ('add', (state, step, ids), 'but 0 is repeated'),
    ('add', (state, step, jnp.array([0, 5])), r'lie in [0, 2), got 5'),
    ('sample', (replay.init(), KEY), 'out of 0 stored'),
    ('is_stored', (state, ids, positions), None),
    ('steps_to_episode_end', (state, ids, positions), '1 of environment 0'),
    (
      'update_priorities',
      (state, ids, positions, jnp.array([1.0, jnp.nan])),
      'not negative, got nan',
    ),
    ('add', (state, step), None),
    ('sample', (state, KEY), None),
  ]
  for name, args, message in cases:
    error = errors_of(getattr(replay, name), *args)
    assert (error is None) if message is None else (message in error), name
    assert errors_of(getattr(silent, name), *args) is None
  # Also under vmap and scan.
  states = jax.vmap(lambda _: replay.init())(jnp.arange(2))
  keys = jax.random.split(KEY)
  assert 'out of 0' in errors_of(jax.vmap(replay.sample), states, keys)

  def scan(state):
    return jax.lax.scan(
      lambda state, ids: (replay.add(state, step, ids), None),
      state,
      jnp.array([[0, 1], [1, 1]]),
    )

  assert 'but 1 is repeated' in errors_of(scan, state)
