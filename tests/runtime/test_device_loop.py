"""The functions that runs on the device are compiled of: acting, iterations."""

import functools

import dm_env
import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import run_helpers

from ftwax import types
from ftwax.agents import impala
from ftwax.agents.actor_critic import acting, joint_loss, learning
from ftwax.environments import catch, functional
from ftwax.networks import cores, torsos
from ftwax.runtime import sharding
from ftwax.runtime.device import rollout
from ftwax.runtime.device import sizes as sizes_lib

CONFIG = impala.IMPALAConfig(
  core=cores.LSTM(8),
  torso=torsos.Torso(hidden_sizes=(8,)),
  sequence_length=5,
  batch_size=4,
)


# Rollouts.


def _without_results(step):
  """Makes the step of a rollout from that of a vector."""
  return lambda state, action: (*step(state, action), ())


def _start(environment, num_environments, key):
  """Returns environments, actor, variables and the state of a rollout."""
  network = CONFIG.make_network(environment.spec)
  actor = acting.make_actor_core(network, environment.spec)
  learner = learning.make_learner_core(network, CONFIG)
  vector = functional.vectorize(environment, num_environments)
  variables = types.actor_variables(learner.init(key))
  state = rollout.start(*vector.reset(key), actor.init(key, num_environments))
  return vector, actor, variables, state


def test_a_rollout_is_what_steps_one_by_one_give(key):
  environment = functional_fakes.make_matching(episode_length=3)
  vector, actor, variables, state = _start(environment, 2, key)
  num_steps = 7
  _, trajectory, episodes = jax.jit(
    functools.partial(
      rollout.rollout,
      vector.spec,
      _without_results(vector.step),
      actor.select_action,
    ),
    static_argnums=2,
  )(variables, state, num_steps)

  env_state, timestep, actor_state = state[:3]
  select, step = jax.jit(actor.select_action), jax.jit(vector.step)
  returns, lengths = np.zeros(2, np.float32), np.zeros(2, np.int32)
  for t in range(num_steps):
    first = np.asarray(timestep.step_type) == dm_env.StepType.FIRST
    last = np.asarray(timestep.step_type) == dm_env.StepType.LAST
    row = jax.tree.map(lambda leaf, t=t: leaf[t], trajectory.timestep)
    run_helpers.assert_same(row, timestep)
    np.testing.assert_array_equal(
      trajectory.previous_action[t], np.where(first, -1, actor_state.action)
    )
    action, actor_state = select(variables, timestep, actor_state)
    np.testing.assert_allclose(
      trajectory.logits[t],
      np.where(last[:, None], 0.0, actor_state.logits),
      atol=1e-6,
    )
    np.testing.assert_allclose(
      trajectory.value[t], actor_state.value, atol=1e-6
    )
    env_state, timestep = step(env_state, action)
    np.testing.assert_array_equal(episodes.moved[t], ~last)
    ended = np.asarray(timestep.step_type) == dm_env.StepType.LAST
    np.testing.assert_array_equal(episodes.ended[t], ended)
    returns = np.where(last, 0.0, returns) + np.asarray(timestep.reward)
    lengths = np.where(last, 0, lengths + 1)
    np.testing.assert_array_equal(episodes.returns[t], returns)
    np.testing.assert_array_equal(episodes.lengths[t], lengths)
  assert np.asarray(episodes.ended).sum() == 4  # Steps 3 and 7, both rows.


def test_a_rollout_goes_on_where_the_last_one_stopped(key):
  environment = functional_fakes.make_matching(episode_length=3)
  vector, actor, variables, state = _start(environment, 2, key)
  roll = jax.jit(
    functools.partial(
      rollout.rollout,
      vector.spec,
      _without_results(vector.step),
      actor.select_action,
    ),
    static_argnums=2,
  )
  middle, first, _ = roll(variables, state, 5)
  _, second, _ = roll(variables, middle, 5)
  _, whole, _ = roll(variables, state, 10)
  ends = jax.tree.map(lambda leaf: leaf[-1], first.timestep)
  starts = jax.tree.map(lambda leaf: leaf[0], second.timestep)
  run_helpers.assert_same(ends, starts)
  run_helpers.assert_same(
    jax.tree.map(lambda leaf: leaf[5:], whole.timestep), second.timestep
  )
  run_helpers.assert_same(first.recurrent_state, state.actor.recurrent_state)
  run_helpers.assert_same(second.recurrent_state, middle.actor.recurrent_state)
  assert run_helpers.differ(first.recurrent_state, second.recurrent_state)


def test_values_of_acting_are_those_of_learning_at_equal_parameters(key):
  environment = functional_fakes.make_matching(episode_length=3)
  vector, actor, variables, state = _start(environment, 2, key)
  step = _without_results(vector.step)
  roll = functools.partial(
    rollout.rollout, vector.spec, step, actor.select_action, variables
  )

  @jax.jit
  def play(state):
    return roll(roll(state, 2)[0], 5)[1]

  trajectory = play(state)

  class WithTargets(type(CONFIG)):
    targets_fn = property(lambda self: lambda transitions, _: transitions)

  config = WithTargets(**vars(CONFIG))
  objective = joint_loss.Objective(
    config.make_network(environment.spec), config
  )

  @jax.jit
  def make_targets(params, trajectory):
    return joint_loss.make_targets(
      objective, params, variables.hyperparameters, trajectory
    )

  kept = make_targets(variables.params, trajectory)
  learned = make_targets(variables.params, trajectory._replace(value=None))
  taken = kept.mask_tm1 != 0
  assert 0 < taken.sum() < taken.size  # Some timesteps are the last.
  for name in ('logits_tm1', 'v_tm1', 'v_t'):
    np.testing.assert_allclose(
      getattr(kept, name)[taken], getattr(learned, name)[taken], atol=1e-6
    )
  run_helpers.assert_same(kept.r_t, learned.r_t)
  # Nothing was computed again.
  others = jax.tree.map(jnp.zeros_like, variables.params)
  run_helpers.assert_same(kept, make_targets(others, trajectory))


@pytest.mark.slow
def test_statistics_of_catch(key):
  vector, actor, variables, state = _start(catch.make(rows=4), 3, key)
  _, _, episodes = rollout.rollout(
    vector.spec,
    _without_results(vector.step),
    actor.select_action,
    variables,
    state,
    12,
  )
  # Three transitions and a reset are an episode.
  np.testing.assert_array_equal(
    np.flatnonzero(np.asarray(episodes.ended)[:, 0]), [2, 6, 10]
  )
  ended = np.asarray(episodes.ended)
  assert set(np.asarray(episodes.returns)[ended]) <= {-1.0, 1.0}
  assert set(np.asarray(episodes.lengths)[ended]) == {3}
  assert np.asarray(episodes.moved).sum() == 3 * 9


# Iterations.


def _make_echo():
  """Makes a learner whose metrics are the rewards that it was given."""

  def update(state, batch):
    rewards = batch.trajectory.timestep.reward  # [T + 1, B]
    carried = batch.trajectory.recurrent_state  # [B]
    # The first of several updates changes the parameters that acted.
    assert (batch.trajectory.value is None) == (rewards.shape[1] < 4)
    return state._replace(skipped_in_a_row=state.skipped_in_a_row + 1), {
      'rewards': rewards,
      'carried': carried,
    }

  return types.LearnerCore(init=None, update=update)


@pytest.mark.parametrize(('num_rollouts', 'num_updates'), [(1, 2), (3, 1)])
def test_each_trajectory_is_learned_from_once(num_rollouts, num_updates):
  num_steps, num_rows = 3, 4
  shape = (num_rollouts, num_steps + 1, num_rows)
  stream = np.arange(num_rollouts * num_rows).reshape(num_rollouts, num_rows)
  rewards = np.arange(num_steps + 1)[:, None] + 10.0 * stream[:, None]
  assert rewards.shape == shape
  state = types.TrainingState(*[jnp.zeros((), jnp.int32)] * 8)
  trajectories = types.Trajectory(
    timestep=dm_env.TimeStep(None, jnp.asarray(rewards), None, None),
    previous_action=None,
    logits=None,
    recurrent_state=jnp.asarray(stream),
    value=jnp.asarray(rewards),
  )
  _, _, (metrics, skipped) = jax.jit(
    functools.partial(learning.learn, _make_echo(), None, num_updates)
  )(state, (), trajectories)
  np.testing.assert_array_equal(skipped, np.arange(num_updates) + 1)
  metrics = jax.tree.map(np.asarray, metrics)
  size = num_rollouts * num_rows // num_updates
  assert metrics['rewards'].shape == (num_updates, num_steps + 1, size)
  np.testing.assert_array_equal(
    metrics['carried'].reshape(-1), stream.reshape(-1)
  )
  np.testing.assert_array_equal(
    metrics['rewards'],
    np.arange(num_steps + 1)[:, None] + 10.0 * metrics['carried'][:, None],
  )


def test_sizes_of_an_iteration():
  few = sizes_lib.Sizes(5, num_rows=4, batch_size=8)
  assert (few.num_rollouts, few.num_updates) == (2, 1)
  many = sizes_lib.Sizes(5, num_rows=8, batch_size=4)
  assert (many.num_rollouts, many.num_updates) == (1, 2)
  assert few.steps_per_iteration == many.steps_per_iteration == 40
  other = sizes_lib.Sizes(5, num_rows=6, batch_size=4)
  assert (other.num_rollouts, other.num_updates) == (2, 3)


def test_calls_are_longer_on_accelerators(monkeypatch):
  sizes = sizes_lib.Sizes(5, num_rows=8, batch_size=8)
  assert sizes.iterations_per_call(200_000, 10**12) == 400
  monkeypatch.setattr('jax.default_backend', lambda: 'gpu')
  assert sizes.iterations_per_call(200_000, 10**12) == 3125


@pytest.mark.parametrize(
  ('num_members', 'steps_per_round', 'per_round', 'per_call'),
  [
    (1, 1000, 200, 200),  # All of a round in one call of 8,000 steps.
    (4, 1000, 200, 100),  # Calls of at most 102 iterations.
    (64, 50, 10, 5),  # At most 6 iterations; 5 of them divide the round.
    (99, 50, 10, 2),  # At most 4; 2 divide the round, 4 and 3 overshoot.
    (32, 65, 14, 7),  # At most 12; 13 iterations are rounded up to whole calls.
    (999, 50, 10, 1),
  ],
)
def test_a_round_is_a_whole_number_of_calls(
  num_members, steps_per_round, per_round, per_call
):
  sizes = sizes_lib.Sizes(5, 8, 8, num_members)
  assert sizes.iterations_per_round(steps_per_round) == per_round
  assert sizes.iterations_per_call(per_round, 10**9) == per_call
  short = sizes.iterations_per_call(per_round, 20 * sizes.steps_per_iteration)
  assert short == (1 if per_call == 1 else 2)


# The axis of members.


@pytest.mark.parametrize('in_turn', [False, True])
@pytest.mark.parametrize('num_members', [1, 3])
def test_members_are_mapped_over(num_members, in_turn):
  def function(x, pair):
    return {'sum': x + pair['a'], 'b': pair['b']}, x

  x = np.arange(2.0 * num_members).reshape(2, num_members)
  pair = {
    'a': np.float32(np.arange(num_members)),
    'b': np.ones((num_members, 4)),
  }
  mapped = sharding.over_members(
    function, num_members, (1, 0), ({'sum': 0, 'b': 1}, 1), in_turn
  )
  expected = jax.vmap(
    function, in_axes=(1, 0), out_axes=({'sum': 0, 'b': 1}, 1)
  )(x, pair)
  run_helpers.assert_same(mapped(x, pair), expected)


def test_a_single_member_skips_branches():
  def function(x):
    return jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x)

  def has_branches(num_members):
    mapped = sharding.over_members(function, num_members)
    return 'case' in jax.jit(mapped).lower(jnp.ones((num_members, 2))).as_text()

  assert has_branches(1) and not has_branches(2)
