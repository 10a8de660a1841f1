"""Catch and the memory chain in JAX, held to bsuite's."""

import dm_env
import episodes
import jax
import numpy as np
import pytest

from ftwax.environments import catch, memory_chain

bsuite_catch = pytest.importorskip(
  'bsuite.environments.catch', reason='bsuite installs on Python 3.10'
)
bsuite_memory_chain = pytest.importorskip(
  'bsuite.environments.memory_chain', reason='bsuite installs on Python 3.10'
)


def _assert_same(timestep, theirs):
  assert timestep.step_type == theirs.step_type
  np.testing.assert_allclose(
    timestep.observation, theirs.observation, atol=1e-6
  )
  if theirs.reward is not None:
    assert timestep.reward == theirs.reward
    assert timestep.discount == theirs.discount


@pytest.mark.parametrize(('rows', 'columns'), [(10, 5), (2, 1), (4, 7)])
def test_catch_is_that_of_bsuite(rows, columns):
  ours = episodes.HostLoop(catch.make(rows, columns))
  theirs = bsuite_catch.Catch(rows, columns)
  rng = np.random.default_rng(0)
  for _ in range(20):
    timestep, their_timestep = ours.reset(), theirs.reset()
    theirs._ball_x = int(ours.state.ball_x)
    their_timestep = their_timestep._replace(observation=theirs._observation())
    _assert_same(timestep, their_timestep)
    while timestep.step_type != dm_env.StepType.LAST:
      action = rng.integers(3)
      timestep = ours.step(action)
      _assert_same(timestep, theirs.step(action))


def test_a_miss_pays_what_it_is_told_to():
  made = catch.make(4, 3, miss_reward=-0.25)
  loop = episodes.HostLoop(made)
  paid = set()
  for _ in range(20):
    timestep = loop.reset()
    while timestep.step_type != dm_env.StepType.LAST:
      timestep = loop.step(1)
      made.spec.rewards.validate(timestep.reward)
    paid.add((float(timestep.reward), int(loop.state.ball_x) == 1))
  assert paid == {(1.0, True), (-0.25, False)}


@pytest.mark.parametrize('miss_reward', [1.5, float('-inf'), float('nan')])
def test_a_miss_must_not_pay_more_than_a_catch(miss_reward):
  with pytest.raises(ValueError, match=r'miss_reward .* must be finite and at'):
    catch.make(miss_reward=miss_reward)


@pytest.mark.parametrize(
  ('memory_length', 'num_bits'), [(1, 1), (2, 3), (5, 1)]
)
def test_the_memory_chain_is_that_of_bsuite(memory_length, num_bits):
  made = memory_chain.make(memory_length, num_bits)
  ours = episodes.HostLoop(made)
  theirs = bsuite_memory_chain.MemoryChain(memory_length, num_bits)
  rng = np.random.default_rng(0)
  rewards = []
  for _ in range(20):
    timestep, their_timestep = ours.reset(), theirs.reset()
    theirs._context = np.asarray(ours.state.context)
    theirs._query = int(ours.state.query)
    their_timestep = their_timestep._replace(
      observation=theirs._get_observation()
    )
    _assert_same(timestep, their_timestep)
    while timestep.step_type != dm_env.StepType.LAST:
      action = rng.integers(2)
      timestep = ours.step(action)
      _assert_same(timestep, theirs.step(action))
    rewards.append(float(timestep.reward))
  assert set(rewards) == {-1.0, 1.0}


@pytest.mark.parametrize(
  'environment', [catch.make(), memory_chain.make(3, num_bits=2)]
)
def test_timesteps_are_as_the_spec_tells(environment, key):
  _, timestep = jax.jit(environment.reset)(key)
  spec = environment.spec
  spec.observations.validate(np.asarray(timestep.observation))
  spec.rewards.validate(np.asarray(timestep.reward))
  spec.discounts.validate(np.asarray(timestep.discount))
  assert timestep.step_type == dm_env.StepType.FIRST


def test_draws_are_even(key):
  keys = jax.random.split(key, 1000)
  state, _ = jax.vmap(catch.make().reset)(keys)
  counts = np.bincount(np.asarray(state.ball_x), minlength=5)
  assert (abs(counts - 200) < 60).all()  # Five deviations.
  state, _ = jax.vmap(memory_chain.make(num_bits=4).reset)(keys)
  assert abs(np.asarray(state.context).mean() - 0.5) < 0.04
  assert set(np.asarray(state.query)) == {0, 1, 2, 3}


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: catch.make(rows=1), r'rows \(1\) must be at least 2'),
    (lambda: catch.make(columns=0), r'columns \(0\) must be at least 1'),
    (
      lambda: memory_chain.make(memory_length=0),
      r'memory_length \(0\) must be at least 1',
    ),
    (lambda: memory_chain.make(num_bits=0), r'num_bits \(0\) must be at'),
  ],
)
def test_sizes_are_checked(make, message):
  with pytest.raises(ValueError, match=message):
    make()
