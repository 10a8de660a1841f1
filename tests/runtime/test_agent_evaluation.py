"""Evaluations of loaded agents."""

import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import trees, types
from ftwax.environments import capture_the_flag, catch, games
from ftwax.inference import loaded_agent


@pytest.fixture
def left():
  """An agent that always moves to the left in catch."""
  spec = catch.make().spec

  def select_action(variables, timestep, state):
    return trees.zeros_like_spec(spec.actions, timestep.step_type.shape), state

  actor = types.ActorCore(
    lambda key, batch_size: jnp.zeros((batch_size,)), select_action, None, None
  )
  variables = types.ActorVariables((), (), jnp.ones(1), jnp.zeros(()))
  return loaded_agent.LoadedAgent(
    actor, variables, games.GameSpec(spec, (0,), ('reward',))
  )


def test_returns_are_of_different_episodes(left):
  returns = left.evaluate(catch.make(), 20)
  assert returns.shape == (20,) and returns.dtype == np.float32
  assert set(returns) == {-1.0, 1.0}
  np.testing.assert_array_equal(left.evaluate(catch.make(), 20), returns)


def test_other_environments_are_refused(left):
  with pytest.raises(ValueError, match=r'num_episodes \(0\) must be at least'):
    left.evaluate(catch.make(), 0)
  with pytest.raises(ValueError, match=r'observation \(shape \(4,\)\) must be'):
    left.evaluate('CartPole-v1')
  with pytest.raises(ValueError, match=r'environment \(4 players\) must be of'):
    left.evaluate(capture_the_flag.make())
