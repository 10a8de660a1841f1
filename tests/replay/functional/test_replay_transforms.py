"""Transforms, donation and checkpoints of a functional replay."""

import functools
import operator

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import replay_steps

from ftwax.records import array_files
from ftwax.replay import functional

pytestmark = pytest.mark.slow

KEY = jax.random.PRNGKey(1)


def equal(got, want):
  jax.tree.map(np.testing.assert_array_equal, got, want)


def use(replay, state, key):
  """Samples, learns, adds: a little of everything."""
  sample = replay.sample(state, key, replay_steps.HYPERPARAMETERS)
  state = replay.update_priorities(
    state,
    sample.info.env_id,
    sample.info.position,
    1.0 + sample.data['reward'][0],
    replay_steps.HYPERPARAMETERS,
  )
  state = replay.add(
    state,
    jax.tree.map(lambda leaf: leaf[0, :2], sample.data),
    jnp.array([1, 0]),
  )
  return state, sample


def test_jit_scan_and_eager_agree():
  replay = replay_steps.make()
  state = replay_steps.fill(replay, 5, 2)
  keys = jax.random.split(KEY, 3)
  eager, samples = state, []
  for key in keys:
    eager, sample = use(replay, eager, key)
    samples.append(sample)
  jitted = state
  use_jitted = jax.jit(functools.partial(use, replay))
  for key in keys:
    jitted, _ = use_jitted(jitted, key)
  scanned, scanned_samples = jax.lax.scan(
    functools.partial(use, replay), state, keys
  )
  chex.assert_trees_all_close(jitted, eager, rtol=1e-6)
  chex.assert_trees_all_close(scanned, eager, rtol=1e-6)
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *samples)
  chex.assert_trees_all_close(scanned_samples, stacked, rtol=1e-6)


def test_vmap_over_four_replays():
  replay = replay_steps.make()
  states = jax.vmap(replay.init, axis_size=4)()
  batch = replay_steps.make_sequence(0, 12, 8)
  batch = jax.tree.map(
    lambda leaf: jnp.moveaxis(leaf.reshape(12, 4, 2, *leaf.shape[2:]), 1, 0),
    batch,
  )
  hyperparameters = functional.ReplayHyperparameters(
    initial_priority=jnp.array([1.0, 2.0, 3.0, 4.0]),
    recent_data_ratio=jnp.array([0.0, 0.3, 0.5, 1.0]),
    discount=jnp.array([0.0, 0.5, 0.9, 1.0]),
  )
  axes = functional.ReplayHyperparameters(*(None,) * len(hyperparameters))
  axes = axes._replace(initial_priority=0, recent_data_ratio=0, discount=0)
  keys = jax.random.split(KEY, 4)

  @jax.jit
  @functools.partial(jax.vmap, in_axes=(0, 0, 0, axes))
  def run(state, batch, key, hyperparameters):
    for part in (slice(0, 5), slice(5, 11), slice(11, 12)):
      steps = jax.tree.map(operator.itemgetter(part), batch)
      state = replay.add_sequence(state, steps, None, hyperparameters)
    state, sample = use(replay, state, key)
    return state, sample, replay.sample(state, key, hyperparameters)

  together = run(states, batch, keys, hyperparameters)
  for i in range(4):
    one = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], (states, batch, keys))
    chosen = jax.tree.map(
      lambda leaf, axis, i=i: leaf if axis is None else leaf[i : i + 1],
      hyperparameters,
      axes,
      is_leaf=lambda leaf: leaf is None,
    )
    alone = run(*one, chosen)
    part = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], together)
    chex.assert_trees_all_close(part, alone, rtol=1e-6)


def test_donated_states_are_written_in_place():
  spec = {**replay_steps.SPEC, 'image': np.zeros((64, 64, 3), np.uint8)}
  config = replay_steps.CONFIG.replace(
    max_length=400, num_earliest_frames_ignored=3
  )
  replay = functional.make_replay(spec, config)
  step = jax.tree.map(
    lambda leaf: jnp.zeros((2, *leaf.shape), leaf.dtype), spec
  )
  sequence = jax.tree.map(lambda leaf: jnp.stack([leaf] * 5), step)
  info = jnp.zeros([4], jnp.int32), jnp.zeros([4], jnp.int32), jnp.ones([4])
  state = replay.init()
  stored = state.ring.data['image'].nbytes
  for function, *args in (
    (replay.add, step),
    (replay.add_sequence, sequence),
    (replay.add, step, jnp.array([1, 0])),
    (replay.update_priorities, *info),
    (replay.clear,),
    (replay.end_episodes,),
  ):
    compiled = jax.jit(function, donate_argnums=0).lower(state, *args).compile()
    memory = compiled.memory_analysis()
    # All but what is returned anew, such as small vectors, is written in place.
    assert memory.temp_size_in_bytes < stored / 50
    assert memory.alias_size_in_bytes > stored
    pointer = state.ring.data['image'].unsafe_buffer_pointer()
    state = compiled(state, *args)
    assert state.ring.data['image'].unsafe_buffer_pointer() == pointer
  compiled = jax.jit(replay.sample).lower(state, KEY).compile()
  assert compiled.memory_analysis().temp_size_in_bytes < stored / 50


def test_saved_and_restored_on_bits(tmp_path):
  replay = replay_steps.make()
  state, _ = use(replay, replay_steps.fill(replay, 9, 2), KEY)
  array_files.write(tmp_path, 'replay', state)
  restored, _ = array_files.read(tmp_path, jax.eval_shape(replay.init))
  equal(restored, state)
  # What follows is the same, weights and initial priorities included.
  for _ in range(3):
    state, sample = use(replay, state, KEY)
    restored, restored_sample = use(replay, restored, KEY)
    equal(restored_sample, sample)
    assert np.all(sample.info.importance_weight > 0)
  equal(restored, state)


def test_changing_hyperparameters_compiles_nothing():
  replay = replay_steps.make()
  state = replay_steps.fill(replay, 5, 2)

  @jax.jit
  @chex.assert_max_traces(n=1)
  def sample(*args):
    return replay.sample(*args)

  weights = [
    sample(
      state,
      KEY,
      replay_steps.HYPERPARAMETERS._replace(importance_exponent=beta),
    ).info.importance_weight
    for beta in (0.0, 0.5, 1.0)
  ]
  np.testing.assert_array_equal(weights[0], 1)
  np.testing.assert_allclose(weights[1] ** 2, weights[2], rtol=1e-5)
