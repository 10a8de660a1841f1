"""Random traces of operations, each compared with the oracle after each."""

import collections
import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import replay_oracle
from hypothesis import strategies as st
from jax import lax

from ftwax.replay import functional

pytestmark = pytest.mark.slow

NUM_OPERATIONS = 24
STEP_SPEC = {
  'observation': {
    'image': np.zeros((2,), np.uint8),
    'number': np.zeros((), np.int32),
  },
  'step_type': np.zeros((), np.int8),
  'reward': np.zeros((), np.float32),
  'discount': np.zeros((), np.float32),
}

HYPERPARAMETERS = functional.ReplayHyperparameters(
  initial_priority=0.7,
  priority_exponent=0.5,
  importance_exponent=0.9,
  recent_data_ratio=0.57,
  recent_data_steps=2,
  discount=0.9,
  default_return=-5.0,
  min_reward=-1.0,
  max_reward=2.0,
)

CONFIGS = {
  'one_slot': functional.ReplayConfig(
    num_environments=1,
    max_length=1,
    batch_size=2,
    prioritized=True,
    draw='independent',
  ),
  'uniform': functional.ReplayConfig(
    num_environments=3,
    max_length=5,
    sequence_length=2,
    batch_size=4,
    num_earliest_frames_ignored=1,
  ),
  'prioritized': functional.ReplayConfig(
    num_environments=3,
    max_length=7,
    sequence_length=3,
    batch_size=4,
    prioritized=True,
    num_earliest_frames_ignored=2,
    episodes=True,
    record_returns=True,
  ),
  'distinct': functional.ReplayConfig(
    num_environments=2,
    max_length=4,
    sequence_length=1,
    batch_size=3,
    prioritized=True,
    draw='distinct',
    recent_data=True,
  ),
  'whole_ring': functional.ReplayConfig(
    num_environments=4,
    max_length=3,
    sequence_length=3,
    batch_size=3,
    prioritized=True,
    draw='distinct',
    episodes=True,
    record_returns=True,
    return_at_truncation=True,
  ),
}

KINDS = 'nothing add add_some sample update dequeue remove clear'.split()


def num_dequeued(config):
  return min(2, config.max_length)


# One operation, with everything that any kind of operation needs.
Operation = collections.namedtuple(
  'Operation', 'kind env_ids data key num_steps priorities'
)


def make_operation(config, kind, seed):
  """Makes the arguments of an operation, from its seed."""
  rng = np.random.default_rng(seed)
  num_envs = config.num_environments
  env_ids = np.arange(num_envs)
  if kind != 'add':
    rng.shuffle(env_ids)
    left_out = rng.random(num_envs) < 0.4
    # Under jit ids out of range are left out.
    env_ids = np.where(left_out, rng.choice([-1, num_envs]), env_ids)
  step_type = rng.choice([0, 1, 1, 1, 2], num_envs).astype(np.int8)
  number = rng.integers(0, 1000, num_envs).astype(np.int32)
  image = rng.integers(0, 256, (num_envs, 2)).astype(np.uint8)
  data = {
    'observation': {'image': image, 'number': number},
    'step_type': step_type,
    'reward': rng.normal(size=num_envs, scale=2).astype(np.float32),
    'discount': rng.choice([0, 0.5, 1, 1], num_envs).astype(np.float32),
  }
  return Operation(
    kind=np.int32(KINDS.index(kind)),
    env_ids=env_ids.astype(np.int32),
    data=data,
    key=np.asarray(rng.integers(0, 2**32, 2), np.uint32),
    num_steps=np.int32(rng.integers(0, config.max_length + 2)),
    priorities=rng.choice([0, 0.5, 1, 4], config.batch_size).astype(np.float32),
  )


@functools.cache
def make_run(name):
  """Makes one compiled function that runs a whole trace."""
  config = CONFIGS[name]
  replay = functional.make_replay(STEP_SPEC, config)

  def run_one(carry, operation):
    state, sample, steps = carry
    ids, hp = operation.env_ids, HYPERPARAMETERS

    def update():
      info = sample.info
      args = info.env_id, info.position, operation.priorities, hp
      if not config.prioritized:
        return state
      return replay.update_priorities(state, *args)

    branches = [
      lambda: carry,
      lambda: (replay.add(state, operation.data, None, hp), sample, steps),
      lambda: (replay.add(state, operation.data, ids, hp), sample, steps),
      lambda: (state, replay.sample(state, operation.key, hp), steps),
      lambda: (update(), sample, steps),
      lambda: (
        (new := replay.dequeue(state, num_dequeued(config), ids))[0],
        sample,
        new[1],
      ),
      lambda: (
        replay.remove_up_to(state, operation.num_steps, ids),
        sample,
        steps,
      ),
      lambda: (replay.clear(state, ids), sample, steps),
    ]
    carry = lax.switch(operation.kind, branches)
    state = carry[0]
    outputs = {
      'state': state,
      'sample': carry[1],
      'dequeued': carry[2],
      'everything': replay.gather_all(state),
      'kept': replay.gather_all(state, ignore_earliest_frames=True),
      'can_sample': replay.can_sample(state),
      'total_size': replay.total_size(state),
    }
    if config.episodes:
      ids = jnp.arange(config.num_environments)[None]
      position = outputs['everything'].position
      outputs['to_end'] = replay.steps_to_episode_end(state, ids, position)
      outputs['begin'] = replay.episode_begin_position(state, ids, position)
    return carry, outputs

  @jax.jit
  def run(first_position, operations):
    state = replay.init()
    ring = state.ring
    ring = ring._replace(position=ring.position + first_position)
    state = state._replace(ring=ring)
    sample = replay.sample(state, jnp.zeros(2, jnp.uint32), HYPERPARAMETERS)
    steps = replay.dequeue(state, num_dequeued(config))[1]
    return lax.scan(run_one, (state, sample, steps), operations)[1]

  return run


def check_sequences(oracle, sample):
  """Compares a sample with what the oracle allows."""
  config, info = oracle.config, sample.info
  candidates = oracle.all_candidates()
  assert info.num_candidates == len(candidates)
  by_wrapped = {
    (env_id, replay_oracle.wrap(position)): (env_id, position)
    for env_id, position in candidates
  }
  rows = []
  for row in np.flatnonzero(info.is_valid):
    # A sequence that crossed the head or was overwritten is no candidate.
    env_id, position = by_wrapped[info.env_id[row], info.position[row]]
    rows.append((env_id, position))
    steps = oracle.envs[env_id].steps
    for t in range(config.sequence_length):
      jax.tree.map(
        lambda got, want, t=t, row=row: np.testing.assert_array_equal(
          got[t, row], want
        ),
        sample.data,
        steps[position + t].data,
      )
    np.testing.assert_allclose(
      info.probability[row], oracle.probability((env_id, position)), rtol=1e-5
    )
    if config.record_returns:
      np.testing.assert_allclose(
        info.discounted_return[row],
        steps[position].discounted_return,
        rtol=1e-4,
        atol=1e-5,
      )
  if config.draw == 'distinct':
    assert len(set(rows)) == len(rows)
  check_recent_rows(oracle, info, rows)
  check_weights(oracle, info, rows)


def check_recent_rows(oracle, info, rows):
  num_recent = oracle.num_recent()
  if num_recent:
    recent = oracle.recent_candidates()
    is_valid = info.is_valid[:num_recent]
    assert set(rows[: np.sum(is_valid)]) <= set(recent)
    if oracle.config.draw != 'distinct':
      assert np.all(is_valid)
  num_valid = oracle.num_valid()
  if num_valid is not None:
    assert np.sum(info.is_valid) == num_valid


def check_weights(oracle, info, rows):
  num_candidates = len(oracle.all_candidates())
  weights = [
    (num_candidates * oracle.probability(row)) ** -oracle.hp.importance_exponent
    for row in rows
  ]
  want = np.zeros(oracle.config.batch_size)
  want[info.is_valid] = np.array(weights) / max(weights, default=1)
  np.testing.assert_allclose(info.importance_weight, want, rtol=1e-4)
  np.testing.assert_array_equal(info.probability[~info.is_valid], 0)


def check_contents(oracle, outputs):
  """Compares all that is stored."""
  config = oracle.config
  everything, kept = outputs['everything'], outputs['kept']
  ring = outputs['state'].ring
  sizes = [env.size for env in oracle.envs]
  np.testing.assert_array_equal(ring.size, sizes)
  np.testing.assert_array_equal(
    ring.position, [replay_oracle.wrap(env.end) for env in oracle.envs]
  )
  assert outputs['total_size'] == sum(sizes)
  ignored = config.num_earliest_frames_ignored
  for env_id, env in enumerate(oracle.envs):
    column = everything.is_valid[:, env_id]
    np.testing.assert_array_equal(column, np.arange(len(column)) < env.size)
    np.testing.assert_array_equal(kept.is_valid[:, env_id], column[ignored:])
    for row, position in enumerate(range(env.oldest, env.end)):
      assert everything.position[row, env_id] == replay_oracle.wrap(position)
      check_step(everything.data, (row, env_id), env.steps[position].data)
      if config.episodes:
        check_episode(outputs, (row, env_id), env, position)
    for leaf in jax.tree.leaves(everything.data):
      np.testing.assert_array_equal(leaf[~column, env_id], 0)


def check_step(data, index, want):
  jax.tree.map(
    lambda got, want: np.testing.assert_array_equal(got[index], want),
    data,
    want,
  )


def check_episode(outputs, index, env, position):
  begin = env.steps[position].begin
  assert outputs['begin'][index] == replay_oracle.wrap(begin)
  end = max(p for p, step in env.steps.items() if step.begin == begin)
  assert outputs['to_end'][index] == end - position


def check_priorities(oracle, outputs):
  """Compares the leaves of both trees, and their roots."""
  if not oracle.config.prioritized:
    return
  config, ring = oracle.config, outputs['state'].ring
  shape = config.num_environments, config.max_length
  want = np.zeros(shape)
  learned = np.full(shape, -np.inf)
  for env_id, position in oracle.all_candidates():
    env = oracle.envs[env_id]
    step = env.steps[position]
    slot = (ring.head[env_id] - (env.end - position)) % config.max_length
    want[env_id, slot] = step.priority
    if step.learned:
      learned[env_id, slot] = step.priority
  trees = outputs['state'].priorities
  num_leaves = trees.sampling.shape[0] // 2
  for tree, leaves, padding in (
    (trees.sampling, want, 0),
    (trees.learned, learned, -np.inf),
  ):
    got = tree[num_leaves:]
    np.testing.assert_allclose(got[: want.size], leaves.reshape(-1), rtol=1e-5)
    np.testing.assert_array_equal(got[want.size :], padding)
  np.testing.assert_allclose(trees.sampling[1], want.sum(), rtol=1e-5)
  np.testing.assert_allclose(trees.learned[1], learned.max(), rtol=1e-5)


def apply_to_oracle(oracle, kind, operation, outputs):
  """Does the operation in the oracle and checks what it returned."""
  if kind in ('add', 'add_some'):
    data = operation.data
    steps = [
      jax.tree.map(lambda leaf, row=row: leaf[row], data)
      for row in range(len(operation.env_ids))
    ]
    rows = {name: [step[name] for step in steps] for name in data}
    oracle.add(operation.env_ids, rows)
  elif kind == 'sample':
    check_sequences(oracle, outputs['sample'])
  elif kind == 'update' and oracle.config.prioritized:
    info = outputs['sample'].info
    oracle.update_priorities(info.env_id, info.position, operation.priorities)
  elif kind == 'remove':
    oracle.remove_up_to(operation.env_ids, int(operation.num_steps))
  elif kind == 'clear':
    oracle.clear(operation.env_ids)
  elif kind == 'dequeue':
    check_dequeued(oracle, operation, outputs['dequeued'])


def check_dequeued(oracle, operation, steps):
  num_steps = num_dequeued(oracle.config)
  for row, env_id in enumerate(operation.env_ids):
    has_steps = oracle.can_dequeue(env_id, num_steps)
    np.testing.assert_array_equal(steps.is_valid[:, row], has_steps)
    if has_steps:
      env = oracle.envs[env_id]
      for t in range(num_steps):
        position = env.oldest + t
        assert steps.position[t, row] == replay_oracle.wrap(position)
        check_step(steps.data, (t, row), env.steps[position].data)
      oracle.remove_up_to([env_id], num_steps)


def operations_of(config):
  kinds = KINDS[1:] + ['add'] * 6 + ['sample'] * 3 + ['update'] * 2
  one = st.tuples(st.sampled_from(kinds), st.integers(0, 2**32 - 1))
  return st.lists(one, min_size=8, max_size=NUM_OPERATIONS)


@pytest.mark.parametrize('name', CONFIGS)
def test_replay_does_what_the_oracle_does(name):
  config, run = CONFIGS[name], make_run(name)

  @hypothesis.settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
  )
  @hypothesis.given(
    trace=operations_of(config),
    first_position=st.sampled_from([0, 2**31 - 10]),
  )
  def check_trace(trace, first_position):
    padding = [('nothing', 0)] * (NUM_OPERATIONS - len(trace))
    operations = [make_operation(config, *op) for op in [*trace, *padding]]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *operations)
    results = jax.device_get(run(jnp.int32(first_position), stacked))
    oracle = replay_oracle.Oracle(config, HYPERPARAMETERS, first_position)
    for step, (kind, _) in enumerate(trace):
      outputs = jax.tree.map(lambda leaf, step=step: leaf[step], results)
      apply_to_oracle(oracle, kind, operations[step], outputs)
      check_contents(oracle, outputs)
      check_priorities(oracle, outputs)

  check_trace()
