"""Contracts of a functional replay that no trace of operations reaches."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import replay_steps
from jax.experimental import checkify

from ftwax.replay import functional
from ftwax.replay.functional import prioritized, rebalancing

KEY = jax.random.PRNGKey(0)


def equal(got, want):
  jax.tree.map(np.testing.assert_array_equal, got, want)


def assert_sequences(data, is_valid=True):
  """The reward counts the steps."""
  steps = np.diff(data['reward'], axis=0)
  np.testing.assert_array_equal(steps[:, np.broadcast_to(is_valid, 32)], 1)


@pytest.mark.parametrize('draw', ['independent', 'stratified', 'distinct'])
def test_rows_are_sequences_whatever_filled_the_state(draw):
  short = replay_steps.make_small()
  state = replay_steps.fill(short, 11)
  batch_size = 5 if draw == 'distinct' else 32
  long = replay_steps.make_small(
    sequence_length=4, draw=draw, batch_size=batch_size
  )
  sample = jax.jit(long.sample)(state, KEY)
  is_valid = np.asarray(sample.info.is_valid)
  steps = np.diff(sample.data['reward'], axis=0)
  np.testing.assert_array_equal(steps[:, is_valid], 1)
  if draw == 'distinct':
    assert is_valid.all()
    return
  assert 0 < is_valid.sum() < len(is_valid)
  np.testing.assert_array_equal(sample.info.importance_weight[~is_valid], 0)
  with pytest.raises(ValueError, match=r'must have 4 steps.* call reindex'):
    long.sample(state, KEY)
  assert_sequences(long.sample(long.reindex(state), KEY).data)


@pytest.mark.parametrize('prioritized', [False, True])
@pytest.mark.parametrize('length', [1, 2, 5])
def test_sizes_of_a_sample_are_arguments(length, prioritized):
  replay = replay_steps.make_small(sequence_length=2, prioritized=prioritized)
  other = replay_steps.make_small(
    sequence_length=length, batch_size=7, prioritized=prioritized
  )
  state = replay_steps.fill(replay, 11)
  if prioritized:
    state = replay.update_priorities(
      state, jnp.zeros(3, int), jnp.array([4, 6, 9]), jnp.array([9.0, 0.0, 5.0])
    )
  sample = jax.jit(
    replay.sample, static_argnames=('batch_size', 'sequence_length')
  )
  got = sample(state, KEY, batch_size=7, sequence_length=length)
  assert got.data['reward'].shape == (length, 7)
  assert np.all(got.info.is_valid)
  if prioritized:
    # Whoever reindexes gives sequences of priority zero another chance.
    assert 6 not in got.info.position
    return
  equal(got, jax.jit(other.sample)(state, KEY))
  weights = rebalancing.reward_balanced(replay_steps.CONFIG, state) * 0 + 1
  weighted = replay.sample_weighted(
    state, KEY, weights, batch_size=7, sequence_length=length
  )
  equal(weighted, other.sample_weighted(state, KEY, weights))


def test_priorities_of_another_length_are_those_of_a_replay_of_it():
  replay = replay_steps.make_small(sequence_length=2)
  state = replay_steps.fill(replay, 11)
  state = replay.update_priorities(
    state, jnp.zeros(2, int), jnp.array([4, 9]), jnp.array([9.0, 5.0])
  )
  for length in (1, 4, 8):
    other = replay_steps.make_small(sequence_length=length)
    want = other.sample(other.reindex(state), KEY)
    equal(replay.sample(state, KEY, sequence_length=length), want)
  assert not replay.can_sample(replay_steps.fill(replay, 3), sequence_length=4)
  assert replay.can_sample(replay_steps.fill(replay, 1), sequence_length=1)


def test_sizes_of_a_sample_are_static():
  replay = replay_steps.make_small()
  state = replay_steps.fill(replay, 5)
  with pytest.raises(ValueError, match=r"static_argnames='batch_size'"):
    jax.jit(lambda size: replay.sample(state, KEY, batch_size=size))(3)
  with pytest.raises(ValueError, match=r'must hold sequence_length \(9\)'):
    replay.sample(state, KEY, sequence_length=9)


@pytest.mark.slow
@pytest.mark.parametrize('num_ignored', [0, 1, 2])
@pytest.mark.parametrize('length', [1, 2])
def test_a_sequence_is_its_steps_with_learned_priorities(length, num_ignored):
  replay = replay_steps.make_small(
    num_environments=2,
    max_length=6,
    sequence_length=length,
    num_earliest_frames_ignored=num_ignored,
  )
  rng = np.random.default_rng(0)
  for num_before, num_steps in ((4, 2), (6, 6), (7, 3), (5, 5), (6, 4)):
    state = replay_steps.fill(replay, num_before, 2)
    stored = np.arange(max(0, num_before - 6), num_before - length + 1)
    ids, positions = np.repeat([0, 1], len(stored)), np.tile(stored, 2)
    learned = rng.choice([0.5, 2.0, 3.0, 5.0, 8.0], ids.size)
    state = replay.update_priorities(
      state, ids, positions, learned.astype(np.float32), replay_steps.ALPHA_ONE
    )
    batch = replay_steps.make_sequence(num_before, num_steps, 2)
    want = replay_steps.fill(replay, num_steps, 2, num_before, state)
    equal(replay.add_sequence(state, batch), want)
    for env_ids in ([1], [1, 0]):
      part = jax.tree.map(lambda leaf, ids=env_ids: leaf[:, : len(ids)], batch)
      want = state
      for t in range(num_steps):
        step = jax.tree.map(lambda leaf, t=t: leaf[t], part)
        want = replay.add(want, step, jnp.array(env_ids))
      equal(replay.add_sequence(state, part, jnp.array(env_ids)), want)


def test_later_steps_of_a_sequence_find_less():
  replay = replay_steps.make_small(max_length=4)
  state = replay_steps.fill(replay, 4)
  state = replay.update_priorities(
    state,
    jnp.array([0]),
    jnp.array([1]),
    jnp.array([5.0]),
    replay_steps.ALPHA_ONE,
  )
  state = replay.add_sequence(state, replay_steps.make_sequence(4, 2))
  np.testing.assert_array_equal(state.priorities.sampling[4:], [5, 1, 1, 1])


@pytest.mark.parametrize('value', [np.nan, np.inf, -1.0])
def test_bad_hyperparameters_of_priorities(value):
  replay = replay_steps.make_small()
  state = replay_steps.fill(replay, 3)
  step = replay_steps.make_step(3)
  good = functional.ReplayHyperparameters()
  for name in ('initial_priority', 'priority_exponent', 'importance_exponent'):
    bad = good._replace(**{name: value})
    call, args = replay.add, (state, step, None)
    if name == 'importance_exponent':
      call, args = replay.sample, (state, KEY)
    message = rf'{name} must be finite and not negative, got'
    with pytest.raises(ValueError, match=message):
      call(*args, bad)
    # Inside jit each has a rule.
    neutral = good._replace(initial_priority=1.0, importance_exponent=0.0)
    jitted = jax.jit(lambda *args, call=call: call(*args))
    equal(jitted(*args, bad), jitted(*args, neutral))
    # And a check.
    emitting = getattr(replay_steps.make_small(checkify=True), call.__name__)
    check = checkify.checkify(lambda *args, f=emitting: f(*args))
    assert f'{name} must be finite' in jax.jit(check)(*args, bad)[0].get()


def test_numbers_that_do_not_fit():
  replay = replay_steps.make_small(num_environments=2)
  step = replay_steps.make_step(0, 2)
  state = replay.init()
  large = np.array([1, 2**33 + 5])
  with pytest.raises(
    ValueError, match=r"batch\['step_type'\] must fit into int32.* 8589934597"
  ):
    replay.add(state, {**step, 'step_type': large})
  with pytest.raises(ValueError, match=r"\['reward'\] must fit into float32"):
    replay.add(state, {**step, 'reward': np.array([1e300, 1.0])})
  with pytest.raises(ValueError, match=r'env_ids must fit into int32'):
    replay.add(state, step, np.array([0, 2**32 + 1]))
  state = replay.add(state, step)
  with pytest.raises(ValueError, match=r'positions must fit into int32'):
    replay.update_priorities(state, [0], np.array([2**32]), [1.0])
  # Those that fit are taken, in whatever width.
  wide = {**step, 'step_type': np.array([1, 2])}
  wide['reward'] = wide['reward'].astype(np.float64)
  assert replay.add(state, wide).ring.size[0] == 2


def test_states_of_another_replay():
  state = replay_steps.fill(replay_steps.make_small(prioritized=False), 3)
  for changes, message in (
    ({}, r'must come from a replay with prioritized=True'),
    (
      {'prioritized': False, 'episodes': True},
      r'must come from a replay with episodes=True',
    ),
    (
      {'num_environments': 2},
      r'of 1 environments and 8 steps\) must be of num_environments \(2\)',
    ),
    ({'max_length': 9}, r'and max_length \(9\)'),
  ):
    replay = replay_steps.make_small(**changes)
    for name, args in (
      ('sample', (KEY,)),
      ('can_sample', ()),
      ('gather_all', ()),
      ('total_size', ()),
    ):
      with pytest.raises(ValueError, match=message):
        getattr(replay, name)(state, *args)


def test_lengths_of_priorities():
  replay = replay_steps.make_small()
  state = replay_steps.fill(replay, 3)
  ids, positions = jnp.zeros(2, int), jnp.arange(2)
  for args in (
    (ids, positions, jnp.ones(3)),
    (ids[:1], positions, jnp.ones(2)),
    (ids[None], positions[None], jnp.ones((1, 2))),
  ):
    with pytest.raises(ValueError, match=r'must have one shape \[M\]'):
      replay.update_priorities(state, *args)


@pytest.mark.slow
@pytest.mark.parametrize('draw', ['independent', 'stratified', 'distinct'])
def test_recent_rows_are_not_of_priority_zero(draw):
  size = 6 if draw == 'distinct' else 32
  replay = replay_steps.make_small(
    num_environments=2, recent_data=True, draw=draw, batch_size=size
  )
  hyperparameters = replay_steps.ALPHA_ONE._replace(
    recent_data_ratio=0.9, recent_data_steps=3, importance_exponent=1.0
  )
  state = replay_steps.fill(replay, 11, 2)
  zero = jnp.array([0, 0, 0, 1]), jnp.array([8, 9, 10, 10])
  state = replay.update_priorities(state, *zero, jnp.zeros(4))
  keys = jax.random.split(KEY, 50)
  info = jax.jit(
    jax.vmap(lambda key: replay.sample(state, key, hyperparameters).info)
  )(keys)
  assert np.all(info.is_valid)
  drawn = set(zip(np.ravel(info.env_id), np.ravel(info.position), strict=True))
  assert not drawn & {(0, 8), (0, 9), (0, 10), (1, 10)}
  assert {(1, 8), (1, 9)} <= drawn
  if draw != 'distinct':
    # 29 of 32 rows are recent: the two, and the share of the twelve others.
    is_recent = (info.env_id == 1) & (info.position >= 8)
    assert abs(np.mean(is_recent) - (29 + 3 * 2 / 12) / 32) < 0.02
    want = np.where(is_recent, 29 / 32 / 2, 0) + 3 / 32 / 12
    np.testing.assert_allclose(info.probability, want, rtol=1e-5)
  # If none of the recent ones is left, all rows are from the others.
  rest = jnp.array([1, 1]), jnp.array([8, 9])
  state = replay.update_priorities(state, *rest, jnp.zeros(2))
  info = replay.sample(state, KEY, hyperparameters).info
  assert np.all(info.position < 8)


def test_recent_rows_have_weights_that_are_given():
  replay = replay_steps.make_small(prioritized=False, recent_data=True)
  state = replay_steps.fill(replay, 8)
  hyperparameters = replay_steps.ALPHA_ONE._replace(
    recent_data_ratio=1.0, recent_data_steps=4
  )
  weights = jnp.ones((1, 8)).at[0, 6:].set(0.0)
  info = replay.sample_weighted(state, KEY, weights, hyperparameters).info
  assert set(np.asarray(info.position)) == {4, 5}


def test_fields_whose_names_have_dots():
  spec = {
    'state.external': np.zeros((), np.float32),
    'state': {'external': np.zeros((2,), np.float32), 'a.b': {'c.d': [0.0]}},
  }
  spec = jax.tree.map(np.float32, spec)
  config = functional.ReplayConfig(num_environments=1, max_length=2)
  replay = functional.make_replay(spec, config)
  state = replay.add(replay.init(), jax.tree.map(lambda leaf: leaf[None], spec))
  state = state._replace(
    ring=state.ring._replace(
      data=jax.tree.map(lambda leaf: leaf + leaf.ndim, state.ring.data)
    )
  )
  assert replay.get_field(state, 'state.external', 0, 0).shape == ()
  # The shorter one is reached by way of its parent.
  parent = replay.get_field(state, 'state', 0, 0)
  assert parent['external'].shape == (2,)
  assert replay.get_field(state, 'state.a.b.c.d.0', 0, 0) == 2
  with pytest.raises(ValueError, match=r"there is no 'x' among"):
    replay.get_field(state, 'state.a.b.x', 0, 0)


def test_functions_document_themselves():
  replay = replay_steps.make_small()
  for name, function in replay._asdict().items():
    assert function.__name__ == name
    documentation = inspect.getdoc(function)
    assert documentation and 'partial' not in documentation
    assert 'config:' not in documentation
    names = list(inspect.signature(function).parameters)
    assert names[:1] == ([] if name == 'init' else ['state'])
  assert 'batch_size: B, static' in inspect.getdoc(replay.sample)


def test_importance_weights_are_those_of_the_paper():
  """Schaul et al., 2016, section 3.4: (N P)^-beta; the largest is 1."""
  probability = np.array([0.5, 0.2, 0.05, 0.3], np.float32)
  is_valid = np.array([True, True, False, True])
  found = prioritized.importance_weights(
    jnp.asarray(probability), 0.7, jnp.asarray(is_valid)
  )
  weights = np.where(is_valid, (4 * probability) ** -0.7, 0.0)
  np.testing.assert_allclose(found, weights / weights.max(), rtol=1e-5)
