"""Functional environments: vectors reset rows by themselves, faces agree."""

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import scans, types
from ftwax.environments import functional

FIRST, MID, LAST = map(int, dm_env.StepType)


def make_counter(num_events=None):
  """Counts to a number in [2, 5] drawn by the key; the reward is the action."""
  shape = () if num_events is None else (num_events,)

  def reset(key):
    goal = jax.random.randint(key, (), 2, 6)
    observation = jnp.stack([goal, jnp.zeros_like(goal)])
    return (goal, jnp.int32(0)), functional.restart(observation, num_events)

  def step(state, action):
    goal, count = state
    count = count + 1
    reward = jnp.broadcast_to(action.astype(jnp.float32), shape)
    timestep = functional.transition(
      reward, jnp.stack([goal, count]), count >= goal
    )
    return (goal, count), timestep

  spec = types.EnvironmentSpec(
    observations=specs.Array((2,), np.int32),
    actions=specs.DiscreteArray(3),
    rewards=specs.Array(shape, np.float32),
    discounts=specs.BoundedArray((), np.float32, 0, 1),
  )
  return functional.FunctionalEnvironment(spec, reset, step)


def roll(environment, key, actions):
  """Returns timesteps [T + 1, ...] under `actions` [T, ...]."""
  state, first = jax.jit(environment.reset)(key)
  _, rest = jax.jit(
    lambda state: jax.lax.scan(environment.step, state, actions)
  )(state)
  return jax.tree.map(
    lambda one, more: np.concatenate([one[None], more]), first, rest
  )


def test_restart_and_transition_follow_the_conventions():
  first = functional.restart(jnp.zeros(3), num_events=2)
  assert first.step_type == FIRST and first.discount == 1
  np.testing.assert_array_equal(first.reward, [0, 0])
  for terminal, truncated, step_type, discount in [
    (False, False, MID, 1),
    (True, False, LAST, 0),
    (False, True, LAST, 1),
    (True, True, LAST, 0),
  ]:
    timestep = functional.transition(2.0, jnp.zeros(3), terminal, truncated)
    assert timestep.step_type == step_type
    assert timestep.discount == discount
    assert timestep.reward == 2 and timestep.reward.dtype == jnp.float32
    assert timestep.step_type.dtype == jnp.int32


@pytest.mark.parametrize('num_events', [None, 2])
def test_rows_are_endless_streams_of_whole_episodes(key, num_events):
  environment = functional.vectorize(make_counter(num_events), 4)
  actions = jnp.ones((40, 4), jnp.int32)
  step_type, reward, discount, observation = roll(environment, key, actions)
  goal, count = observation[..., 0], observation[..., 1]
  # What the step types must be follows from what is observed.
  expected = np.where(count == 0, FIRST, np.where(count == goal, LAST, MID))
  np.testing.assert_array_equal(step_type, expected)
  np.testing.assert_array_equal(
    count[1:], np.where(count[:-1] == goal[:-1], 0, count[:-1] + 1)
  )
  np.testing.assert_array_equal(discount, step_type != LAST)
  scalar = reward if num_events is None else reward[..., 0]
  np.testing.assert_array_equal(scalar, step_type != FIRST)
  assert len(np.unique(goal)) > 1, 'episodes must differ'
  starts = [
    tuple(goal[:, row][step_type[:, row] == FIRST][:5]) for row in (0, 1)
  ]
  assert starts[0] != starts[1], 'rows must differ'


def test_a_row_depends_on_its_own_actions_only(key):
  environment = functional.vectorize(make_counter(), 3)
  actions = jax.random.randint(key, (30, 3), 0, 3)
  changed = actions.at[:, 1:].set(0)
  one = roll(environment, key, actions)
  other = roll(environment, key, changed)
  jax.tree.map(
    lambda a, b: np.testing.assert_array_equal(a[:, 0], b[:, 0]), one, other
  )


def test_a_vector_of_vectors_by_vmap_is_the_same(key):
  environment = functional.vectorize(make_counter(), 3)
  keys = jax.random.split(key, 2)
  actions = jnp.ones((2, 20, 3), jnp.int32)

  def run(key, actions):
    state, _ = environment.reset(key)
    return jax.lax.scan(environment.step, state, actions)[1]

  together = jax.jit(jax.vmap(run))(keys, actions)
  for i in range(2):
    alone = jax.jit(run)(keys[i], actions[i])
    jax.tree.map(
      lambda a, b, i=i: np.testing.assert_array_equal(a[i], b), together, alone
    )


def test_a_step_starts_few_more_episodes_than_have_ended(key):
  counter, started = make_counter(), []

  def reset(key):
    jax.debug.callback(lambda _: started.append(1), key)
    return counter.reset(key)

  environment = functional.vectorize(counter._replace(reset=reset), 40)
  actions = jnp.ones((20, 40), jnp.int32)
  timesteps = roll(environment, key, actions)
  jax.effects_barrier()
  is_over = timesteps.step_type[:-1] == LAST
  assert set(is_over.any(axis=1)) == {False, True}
  # Three places start episodes, each one of every third row at a time.
  turns = np.max([is_over[:, place::3].sum(axis=1) for place in range(3)], 0)
  assert len(started) == 40 + 3 * turns.sum()
  alone = functional.vectorize(counter, 1)
  keys = jax.random.split(key, 40)
  for row in (0, 39):
    mine = roll(alone, keys[row, None], actions[:, :1])
    jax.tree.map(
      lambda a, b, row=row: np.testing.assert_array_equal(a[:, row], b[:, 0]),
      timesteps,
      mine,
    )


def test_spares_start_the_episodes_that_a_loop_would_start(key, monkeypatch):
  counter, started = make_counter(), []

  def reset(key):
    jax.debug.callback(lambda _: started.append(1), key)
    return counter.reset(key)

  vector = functional.vectorize(counter._replace(reset=reset), 40)
  first, _ = vector.reset(key)
  assert functional.make_spares(vector, first) == ()
  monkeypatch.setattr(scans, 'counts_launches', lambda: True)
  spares = functional.make_spares(vector, first)
  actions = jnp.ones((12, 40), jnp.int32)

  @jax.jit
  def play(spares):
    return jax.lax.scan(
      lambda state, action: vector.step(state._replace(spares=spares), action),
      first,
      actions,
    )

  jax.effects_barrier()
  del started[:]
  (state, timesteps), spared = play(spares), len(started)
  assert np.sum(timesteps.step_type == LAST, axis=0).max() > 2
  jax.tree.map(np.testing.assert_array_equal, play(()), (state, timesteps))
  jax.effects_barrier()
  assert spared < len(started) - spared


def test_no_environments_are_refused():
  with pytest.raises(ValueError, match=r'num_environments \(0\) must be at le'):
    functional.vectorize(make_counter(), 0)


def test_a_single_agent_is_a_game_of_one(key):
  environment = make_counter(num_events=2)
  game = functional.as_game(environment)
  assert game.teams == (0,)
  assert game.event_names == ('event_0', 'event_1')
  assert functional.as_game(make_counter()).event_names == ('reward',)
  actions = jnp.ones((12, 3), jnp.int32)
  alone = roll(functional.vectorize(environment, 3), key, actions)
  vector = functional.vectorize(game, 3)
  played = roll(vector, key, actions[..., None])
  jax.tree.map(
    lambda a, b: np.testing.assert_array_equal(a[:, :, None], b), alone, played
  )
  state, _ = vector.reset(key)
  np.testing.assert_array_equal(vector.outcome(state), np.zeros((3, 1)))
