"""Tests of late actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import types
from ftwax.environments import (
  capture_the_flag,
  catch,
  delays,
  functional,
  specified,
)


def _make_echo():
  """Returns an environment that shows the action that took effect."""
  spec = specified.make_spec(
    specs.Array((), np.float32, 'echo'),
    specs.BoundedArray((), np.float32, 2.0, 9.0, 'action'),
  )

  def reset(key):
    del key
    return jnp.int32(0), functional.restart(jnp.float32(-1))

  def step(state, action):
    timestep = functional.transition(0.0, action, state == 9)
    return state + 1, timestep

  return functional.FunctionalEnvironment(spec, reset, step)


def test_actions_take_effect_late():
  environment = delays.make(_make_echo(), 3)
  actions = jnp.arange(3.0, 9.0)

  def play(key):
    state, _ = environment.reset(key)
    _, echoes = jax.lax.scan(
      lambda state, action: environment.step(state, action), state, actions
    )
    return state.delay, echoes.observation

  keys = jax.random.split(jax.random.PRNGKey(0), 64)
  late, echoes = jax.jit(jax.vmap(play))(keys)
  counts = np.bincount(late, minlength=4)
  assert counts.shape == (4,) and counts.min() >= 5
  for delay, seen in zip(np.array(late), np.array(echoes), strict=True):
    # The least action that is allowed, until the first one takes effect.
    chosen = np.concatenate([np.full(delay, 2.0), actions])[: len(actions)]
    np.testing.assert_array_equal(seen, chosen)


def test_no_delay_changes_no_game():
  game = catch.make()
  key = jax.random.PRNGKey(3)
  late = delays.make(game, 0)
  state, _ = late.reset(key)
  expected = game.step(state.state, jnp.int32(1))[1]
  jax.tree.map(
    np.testing.assert_array_equal, late.step(state, jnp.int32(1))[1], expected
  )


def test_a_game_keeps_its_scripts_scores_and_display():
  game = capture_the_flag.make()
  late = delays.make(game, 2)
  reset, step = map(jax.jit, (late.reset, late.step))
  state, timestep = reset(jax.random.PRNGKey(0))
  assert timestep.step_type.shape == (4,)
  script = late.scripts['attacker']
  for number in range(3):
    key = jax.random.PRNGKey(number)
    played = [script(key, state, player) for player in range(4)]
    assert played[0] == game.scripts['attacker'](key, state.state, 0)
    action = jax.tree.map(lambda *leaves: jnp.stack(leaves), *played)
    state, timestep = step(state, action)
  assert timestep.step_type.tolist() == [types.MID] * 4
  np.testing.assert_array_equal(late.outcome(state), game.outcome(state.state))
  np.testing.assert_array_equal(
    late.display.render(state), game.display.render(state.state)
  )
  assert late.display.score(state).tolist() == [0, 0]


def test_negative_delays():
  with pytest.raises(ValueError, match=r'max_delay \(-1\) must be at least 0'):
    delays.make(catch.make(), -1)
