"""Rebalanced sampling against its definition."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ftwax.replay.functional import buffer, rebalancing
from ftwax.replay.functional import replay_config as config_lib

E, L, T = 3, 12, 4
FIRST, MID, LAST = 0, 1, 2
CONFIG = config_lib.ReplayConfig(
  num_environments=E,
  max_length=L,
  sequence_length=T,
  batch_size=64,
  draw='independent',
)


def _steps(seed, num_steps, rewards=(-1.0, 0.0, 0.0, 0.0, 2.0)):
  """Steps [num_steps, E] of random episodes, numbered."""
  rng = np.random.default_rng(seed)
  step_type = np.full((num_steps, E), MID, np.int32)
  for env in range(E):
    t = 0
    while t < num_steps:
      end = t + rng.integers(1, 9)
      step_type[t, env] = FIRST
      step_type[end : end + 1, env] = LAST
      t = end + 1
  reward = np.where(
    step_type == FIRST, 0.0, rng.choice(rewards, (num_steps, E))
  )
  return {
    'step_type': step_type,
    'reward': reward.astype(np.float32),
    'number': np.arange(num_steps, dtype=np.int32)[:, None].repeat(E, 1),
  }


def _fill(steps, config=CONFIG):
  replay = buffer.make_replay({k: v[0, 0] for k, v in steps.items()}, config)
  state = replay.init()
  num_steps = len(steps['reward'])
  add = jax.jit(replay.add)
  for t in range(num_steps):
    state = add(state, {k: v[t] for k, v in steps.items()})
  return replay, state


def _classes(steps, threshold=0.0):
  """By definition: stored sequences inside an episode, by their last reward.

  Returns:
    Pairs of environment and number of the first step, for zero and for others.
  """
  num_steps = len(steps['reward'])
  classes = [], []
  for env in range(E):
    for begin in range(max(0, num_steps - L), num_steps - T + 1):
      if FIRST in steps['step_type'][begin + 1 : begin + T, env]:
        continue
      reward = steps['reward'][begin + T - 1, env]
      classes[int(abs(reward) > threshold)].append((env, begin))
  return classes


@pytest.mark.parametrize('num_steps', [9, 31])
@pytest.mark.parametrize('skew', [2.0, 4.0])
def test_draws_follow_the_definition(key, num_steps, skew):
  steps = _steps(num_steps, num_steps)
  zero, nonzero = _classes(steps)
  assert len(zero) > 1 and len(nonzero) > 1
  replay, state = _fill(steps)
  weights = rebalancing.reward_balanced(CONFIG, state, skew)
  draw = jax.jit(jax.vmap(lambda k: replay.sample_weighted(state, k, weights)))
  sample = draw(jax.random.split(key, 100))
  begins = sample.data['number'][:, 0].reshape(-1)
  counts = dict.fromkeys((*zero, *nonzero), 0)
  for pair in zip(
    np.asarray(sample.info.env_id).reshape(-1), np.asarray(begins), strict=True
  ):
    counts[pair] += 1  # A pair that must not be drawn raises.
  expected = [(1 - 1 / skew) / len(zero)] * len(zero)
  expected += [1 / skew / len(nonzero)] * len(nonzero)
  found = list(counts.values())
  test = scipy.stats.chisquare(found, np.array(expected) * sum(found))
  assert test.pvalue > 0.01


def test_uniform_draws_stay_inside_episodes(key):
  steps = _steps(7, 40)
  zero, nonzero = _classes(steps)
  replay, state = _fill(steps)
  weights = rebalancing.within_episodes(CONFIG, state)
  draw = jax.jit(jax.vmap(lambda k: replay.sample_weighted(state, k, weights)))
  sample = draw(jax.random.split(key, 100))
  counts = dict.fromkeys((*zero, *nonzero), 0)
  for pair in zip(
    np.asarray(sample.info.env_id).reshape(-1),
    np.asarray(sample.data['number'][:, 0]).reshape(-1),
    strict=True,
  ):
    counts[pair] += 1
  assert scipy.stats.chisquare(list(counts.values())).pvalue > 0.01


@pytest.mark.parametrize('rewards', [(0.0,), (1.0,)])
def test_one_kind_alone_is_drawn_from(rewards):
  steps = _steps(3, 20, rewards)
  steps['reward'][:] = rewards[0]
  _, state = _fill(steps)
  weights = rebalancing.reward_balanced(CONFIG, state)
  np.testing.assert_allclose(jnp.sum(weights), 1.0, rtol=1e-6)
  inside = rebalancing.within_episodes(CONFIG, state)
  np.testing.assert_array_equal(weights > 0, inside > 0)


def test_threshold_and_rewards_of_the_agent():
  steps = _steps(7, 25)
  _, state = _fill(steps)
  weights = rebalancing.reward_balanced(CONFIG, state, 2.0, 1.0)
  zero, nonzero = _classes(steps, 1.0)
  assert jnp.sum(weights > 0) == len(zero) + len(nonzero)
  share = jnp.sum(jnp.where(_is_above(state, 1.0), weights, 0.0))
  np.testing.assert_allclose(share, 0.5, rtol=1e-5)
  # With all rewards doubled and the threshold too nothing changes.
  own = rebalancing.reward_balanced(
    CONFIG, state, 2.0, 2.0, 2 * state.ring.data['reward']
  )
  np.testing.assert_allclose(own, weights, rtol=1e-6)


def _is_above(state, threshold):
  last = jnp.roll(state.ring.data['reward'], 1 - T, axis=1)
  return jnp.abs(last) > threshold


def test_empty_replay_has_no_weights():
  replay = buffer.make_replay(
    {k: v[0, 0] for k, v in _steps(0, 1).items()}, CONFIG
  )
  weights = rebalancing.reward_balanced(CONFIG, replay.init())
  np.testing.assert_array_equal(weights, np.zeros((E, L)))


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ((0.5,), r'skew \(0.5\) must be at least 1'),
    ((2.0, -0.1), r'threshold \(-0.1\) must not be negative'),
  ],
)
def test_bad_shares_are_refused(arguments, message):
  _, state = _fill(_steps(0, 10))
  balance = functools.partial(rebalancing.reward_balanced, CONFIG, state)
  with pytest.raises(ValueError, match=message):
    balance(*arguments)
