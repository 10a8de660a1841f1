"""What runs on accelerators gives what runs on a CPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from ftwax.replay import functional
from ftwax.replay.functional import prioritized, segment_tree

pytestmark = pytest.mark.slow

STEP = {'reward': jnp.zeros(()), 'image': jnp.zeros((3, 2), jnp.uint8)}


def make_replay(max_length):
  return functional.make_replay(
    STEP,
    functional.ReplayConfig(
      num_environments=2,
      max_length=max_length,
      sequence_length=3,
      batch_size=8,
      prioritized=True,
      draw='stratified',
    ),
  )


def run(replay, num_steps, priorities):
  """Returns the state and a sample after adds and updates of priorities."""
  state = replay.init()
  rng = np.random.default_rng(0)
  for i in range(num_steps):
    step = {
      'reward': rng.random(2, np.float32),
      'image': rng.integers(0, 255, (2, 3, 2), np.uint8),
    }
    state = replay.add(state, step)
    if i % 5 == 4:
      info = replay.sample(state, jax.random.PRNGKey(i)).info
      # Jitted, so that priorities that are none are passed over.
      state = jax.jit(replay.update_priorities)(
        state, info.env_id, info.position, priorities
      )
  return state, replay.sample(state, jax.random.PRNGKey(num_steps))


def test_both_ways_give_the_same_replay(monkeypatch):
  priorities = jnp.array([0.5, 2.0, 0.0, -1.0, jnp.inf, jnp.nan, 1e-30, 3.0])
  expected = run(make_replay(23), 20, priorities)
  ways = []

  def choose_default(*args, default, **others):
    ways.append(set(others))
    return default(*args)

  for module in (prioritized, segment_tree):
    monkeypatch.setattr(module.lax, 'platform_dependent', choose_default)
  segment_tree.make_update.cache_clear()
  jax.clear_caches()
  actual = run(make_replay(23), 20, priorities)
  segment_tree.make_update.cache_clear()
  jax.clear_caches()
  assert {'cpu'} in ways
  jax.tree.map(np.testing.assert_array_equal, actual, expected)
  assert len(np.unique(expected[0].priorities.sampling)) > 10


@pytest.mark.parametrize('platform', ['cuda', 'tpu'])
def test_functions_lower_for_accelerators(platform):
  replay = make_replay(9)
  state = jax.eval_shape(replay.init)
  key = jax.eval_shape(functools.partial(jax.random.PRNGKey, 0))
  step = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype), STEP
  )
  sample = jax.eval_shape(replay.sample, state, key)
  priorities = jax.ShapeDtypeStruct((8,), jnp.float32)
  for function, *args in (
    (replay.add, state, step),
    (replay.sample, state, key),
    (
      replay.update_priorities,
      state,
      sample.info.env_id,
      sample.info.position,
      priorities,
    ),
  ):
    lowered = export.export(jax.jit(function), platforms=[platform])(*args)
    assert lowered.platforms == (platform,)
