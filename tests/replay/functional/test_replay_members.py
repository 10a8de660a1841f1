"""A functional replay in transformations that its other tests do not use."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import replay_steps

from ftwax.replay.functional import rebalancing

KEY = jax.random.PRNGKey(0)


def equal(got, want):
  jax.tree.map(np.testing.assert_array_equal, got, want)


def _episode(num_steps, num_environments=2):
  return replay_steps.make_sequence(0, num_steps, num_environments, num_steps)


def test_returns_of_a_population_are_those_of_its_members():
  num_members, num_steps = 3, 40
  replay = replay_steps.make_small(
    num_environments=2, max_length=64, episodes=True, record_returns=True
  )
  states = jax.vmap(lambda _: replay.init())(jnp.arange(num_members))
  # Members' episodes end at different steps, and some are not added to.
  batches = [_episode(num_steps - 10 * i) for i in range(num_members)]
  batches = [
    jax.tree.map(
      lambda *parts: np.concatenate(parts), batch, _episode(10 * i + 2)
    )
    for i, batch in enumerate(batches)
  ]
  batches = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
  env_ids = jnp.array([[0, 1], [1, 0], [1, 5]])
  discounts = jnp.array([0.5, 0.9, 1.0])

  def add(state, batch, ids, discount):
    hyperparameters = replay_steps.ALPHA_ONE._replace(discount=discount)
    return replay.add_sequence(state, batch, ids, hyperparameters)

  got = jax.jit(jax.vmap(add))(states, batches, env_ids, discounts)
  for i in range(num_members):
    args = jax.tree.map(
      lambda leaf, i=i: leaf[i], (states, batches, env_ids, discounts)
    )
    want = jax.jit(add)(*args)
    equal(jax.tree.map(lambda leaf, i=i: leaf[i], got), want)
    assert len(np.unique(want.returns.value)) > 30


def test_returns_of_a_population_write_in_place():
  replay = replay_steps.make_small(
    max_length=20_000, episodes=True, record_returns=True
  )
  num_members, num_steps = 8, 100
  states = jax.vmap(lambda _: replay.init())(jnp.arange(num_members))
  batch = jax.tree.map(
    lambda leaf: np.stack([leaf] * num_members), _episode(num_steps, 1)
  )
  add = jax.jit(jax.vmap(replay.add_sequence), donate_argnums=0)
  text = add.lower(states, batch).compile().as_text()
  # A select of all members' tables would be part of each iteration.
  assert f'pred[{num_members},1,20000]' not in text
  assert not [
    line
    for line in text.splitlines()
    if ' select(' in line and '20000' in line.split('=')[1].split('(')[0]
  ]


@pytest.mark.slow
def test_shard_map_accepts_every_function():
  replay = replay_steps.make()
  num_devices = min(2, jax.device_count())
  mesh = jax.make_mesh((num_devices,), ('x',))
  spec = jax.sharding.PartitionSpec('x')
  batch = replay_steps.make_sequence(0, 6, 2)

  def use(batch, key):
    state = replay.add_sequence(replay.init(), batch)
    step = jax.tree.map(lambda leaf: leaf[-1], batch)
    state = replay.add(state, step)
    sample = replay.sample(state, key, replay_steps.HYPERPARAMETERS)
    state = replay.update_priorities(
      state,
      sample.info.env_id,
      sample.info.position,
      sample.data['reward'][0],
    )
    weights = rebalancing.reward_balanced(replay_steps.CONFIG, state)
    weighted = replay.sample_weighted(
      state, key, weights, replay_steps.HYPERPARAMETERS
    )
    state = replay.clear(replay.remove_up_to(state, 1), jnp.array([0]))
    state, _ = replay.dequeue(replay.end_episodes(state), 1)
    return replay.reindex(state), sample, weighted

  def use_shard(batch, key):
    result = use(jax.tree.map(lambda leaf: leaf[0], batch), key[0])
    return jax.tree.map(lambda leaf: leaf[None], result)

  keys = jax.random.split(KEY, num_devices)
  batches = jax.tree.map(lambda leaf: np.stack([leaf] * num_devices), batch)
  shard_map = getattr(jax, 'shard_map', None)
  if shard_map is None:
    pytest.skip('this JAX has no jax.shard_map')
  mapped = shard_map(use_shard, mesh=mesh, in_specs=spec, out_specs=spec)
  inputs = jax.device_put(
    (batches, keys), jax.sharding.NamedSharding(mesh, spec)
  )
  got = jax.device_get(jax.jit(mapped)(*inputs))
  for i in range(num_devices):
    part = jax.tree.map(lambda leaf, i=i: leaf[i], got)
    chex.assert_trees_all_close(part, jax.jit(use)(batch, keys[i]), rtol=1e-6)


@pytest.mark.slow
def test_restored_numpy_states_work_outside_jit():
  replay = replay_steps.make()
  state = replay_steps.fill(replay, 5, 2)
  restored = jax.tree.map(np.asarray, state)
  step = replay_steps.make_step(5, 2)
  args = jnp.zeros(1, int), jnp.array([3])
  for name, rest in (
    ('add', (step,)),
    ('sample', (KEY,)),
    ('update_priorities', (*args, jnp.ones(1))),
    ('reindex', ()),
    ('get_field', ('reward', *args)),
    ('dequeue', ()),
    ('clear', ()),
    ('end_episodes', ()),
    ('steps_to_episode_end', args),
  ):
    function = getattr(replay, name)
    equal(function(restored, *rest), function(state, *rest))


def test_gradients_go_past_a_replay_in_a_scan():
  replay = replay_steps.make()
  state = replay_steps.fill(replay, 6, 2)
  batch = replay_steps.make_sequence(6, 3, 2)

  def loss(weight):
    def step(state, new):
      new = {**new, 'reward': weight * new['reward']}
      state = replay.add(state, new)
      sample = replay.sample(state, KEY, replay_steps.HYPERPARAMETERS)
      reward = sample.data['reward']
      state = replay.update_priorities(
        state,
        sample.info.env_id,
        sample.info.position,
        jnp.abs(weight * reward[0]),
      )
      return state, jnp.sum(weight * reward)

    return jnp.sum(jax.lax.scan(step, state, batch)[1])

  value, gradient = jax.jit(jax.value_and_grad(loss))(1.0)
  # What is stored is data.
  np.testing.assert_allclose(gradient, value, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('draw', ['independent', 'stratified', 'distinct'])
@pytest.mark.parametrize('prioritized', [False, True])
def test_strict_promotion_of_dtypes(draw, prioritized):
  replay = replay_steps.make(draw=draw, prioritized=prioritized)
  batch = replay_steps.make_sequence(0, 6, 2)
  hyperparameters = replay_steps.HYPERPARAMETERS

  @jax.jit
  def use(batch, key):
    state = replay.add_sequence(replay.init(), batch)
    step = jax.tree.map(lambda leaf: leaf[-1], batch)
    state = replay.add(state, step, jnp.array([1, 0]))
    sample = replay.sample(state, key, hyperparameters, sequence_length=3)
    if prioritized:
      state = replay.update_priorities(
        state, sample.info.env_id, sample.info.position, jnp.ones(4)
      )
    weights = rebalancing.reward_balanced(replay_steps.CONFIG, state)
    weighted = replay.sample_weighted(state, key, weights, hyperparameters)
    told = (
      replay.can_sample(state),
      replay.is_stored(state, 0, 3),
      replay.get_field(state, 'reward', 0, 3),
      replay.steps_to_episode_end(state, 0, 3),
      replay.episode_begin_position(state, 0, 3),
      replay.gather_all(state),
    )
    state = replay.clear(replay.remove_up_to(state, 1), jnp.array([0]))
    state, _ = replay.dequeue(replay.end_episodes(state), 1)
    return replay.reindex(state), sample, weighted, told

  with jax.numpy_dtype_promotion('strict'):
    got = use(batch, KEY)
  jax.clear_caches()
  equal(got, use(batch, KEY))
