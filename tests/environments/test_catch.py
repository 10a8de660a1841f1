"""Catch and the memory chain in JAX, held to the rules of bsuite's."""

import dm_env
import episodes
import jax
import numpy as np
import pytest

from ftwax.environments import catch, memory_chain


def _assert_timestep(timestep, observation, reward, is_last):
  np.testing.assert_allclose(timestep.observation, observation, atol=1e-6)
  assert timestep.reward == reward
  assert timestep.discount == 1.0 - is_last
  assert (timestep.step_type == dm_env.StepType.LAST) == is_last


@pytest.mark.parametrize(('rows', 'columns'), [(10, 5), (2, 1), (4, 7)])
def test_the_ball_falls_and_the_paddle_moves(rows, columns):
  loop = episodes.HostLoop(catch.make(rows, columns))
  rng = np.random.default_rng(0)
  for _ in range(20):
    timestep, paddle = loop.reset(), columns // 2
    ball = int(loop.state.ball_x)
    for height in range(rows):
      is_last = height == rows - 1
      reward = (1.0 if paddle == ball else -1.0) if is_last else 0.0
      board = np.zeros((rows, columns))
      board[height, ball] = board[-1, paddle] = 1.0
      if height:
        _assert_timestep(timestep, board, reward, is_last)
      if not is_last:
        action = rng.integers(3)
        paddle = min(max(paddle + action - 1, 0), columns - 1)
        timestep = loop.step(action)


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
def test_the_memory_chain_asks_for_a_bit_of_the_start(memory_length, num_bits):
  loop = episodes.HostLoop(memory_chain.make(memory_length, num_bits))
  rng = np.random.default_rng(0)
  rewards = []
  for _ in range(20):
    loop.reset()
    bits, query = np.asarray(loop.state.context), int(loop.state.query)
    for time in range(memory_length + 1):
      action, is_last = rng.integers(2), time == memory_length
      timestep = loop.step(action)
      # An observation holds the time before its action.
      shown = (2 * bits - 1) * (time == 0)
      asked = query * (time == memory_length - 1)
      rest = [1.0 - time / memory_length, asked]
      reward = (1.0 if action == bits[query] else -1.0) if is_last else 0.0
      _assert_timestep(timestep, [[*rest, *shown]], reward, is_last)
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
