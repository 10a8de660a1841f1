"""The actor's functions."""

import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import distributions, types
from ftwax.agents.actor_critic import acting

NUM_ENVIRONMENTS = 3


@pytest.fixture(scope='module')
def core(network, spec):
  return acting.make_actor_core(network, spec)


@pytest.fixture(scope='module')
def variables(network, config):
  key = jax.random.PRNGKey(1)
  return types.ActorVariables(
    network.init(key),
    config.sample_hyperparameters(key),
    jnp.ones((1,)),
    jnp.int32(0),
  )


def _timestep(step_types, seed=0):
  rng = np.random.default_rng(seed)
  return dm_env.TimeStep(
    step_type=np.array(step_types, np.int32),
    reward=rng.normal(size=NUM_ENVIRONMENTS).astype(np.float32),
    discount=np.ones(NUM_ENVIRONMENTS, np.float32),
    observation=rng.normal(size=(NUM_ENVIRONMENTS, 4)).astype(np.float32),
  )


def _hidden(state):
  return np.asarray(state.recurrent_state.hidden)


def test_first_rows_forget_and_the_others_do_not(core, variables, key):
  select = jax.jit(core.select_action)
  state = core.init(key, NUM_ENVIRONMENTS)
  _, state = select(variables, _timestep([0, 0, 0]), state)
  other = state._replace(
    recurrent_state=jax.tree.map(lambda x: x + 1.0, state.recurrent_state),
    action=(state.action + 1) % 3,
  )
  timestep = _timestep([0, 1, 2], seed=1)
  _, after = select(variables, timestep, state)
  _, after_other = select(variables, timestep, other)
  np.testing.assert_array_equal(after.logits[0], after_other.logits[0])
  np.testing.assert_array_equal(_hidden(after)[0], _hidden(after_other)[0])
  assert np.all(_hidden(after)[1:] != _hidden(after_other)[1:])


def test_acting_and_unrolling_say_the_same(core, variables, network, key):
  """Step by step with the actor; at once with the learner's unroll."""
  select = jax.jit(core.select_action)
  state = core.init(key, NUM_ENVIRONMENTS)
  timesteps = [
    _timestep(step_types, seed)
    for seed, step_types in enumerate([[0, 1, 0], [1, 2, 1], [1, 0, 2]])
  ]
  logits, actions = [], []
  for timestep in timesteps:
    actions.append(acting.previous_action_of(timestep, state.action))
    _, state = select(variables, timestep, state)
    logits.append(state.logits)
  stacked = jax.tree.map(lambda *x: jnp.stack(x), *timesteps)
  output, last_state = network.unroll(
    variables.params,
    variables.hyperparameters,
    None,
    acting.make_network_input(stacked, jnp.stack(actions)),
    acting.is_first(stacked),
    network.initial_state(NUM_ENVIRONMENTS),
  )
  np.testing.assert_allclose(output.logits, jnp.stack(logits), atol=1e-5)
  np.testing.assert_allclose(
    last_state.hidden, state.recurrent_state.hidden, atol=1e-5
  )


def test_extras_are_what_the_choice_was_made_from(core, variables, key):
  state = core.init(key, NUM_ENVIRONMENTS)
  action, state = core.select_action(variables, _timestep([0, 0, 0]), state)
  extras = core.get_extras(state)
  assert extras['logits'].shape == (NUM_ENVIRONMENTS, 3)
  np.testing.assert_array_equal(
    extras['recurrent_state'].hidden, _hidden(state)
  )
  np.testing.assert_array_equal(state.action, action)
  assert action.dtype == jnp.int32


def test_greedy_is_the_mode_and_sampling_is_not(network, spec, variables, key):
  batch_size = 200
  timestep = jax.tree.map(
    lambda x: np.repeat(x[:1], batch_size, axis=0), _timestep([0, 0, 0])
  )
  greedy = acting.make_actor_core(network, spec, greedy=True)
  chosen, state = greedy.select_action(
    variables, timestep, greedy.init(key, batch_size)
  )
  assert np.all(chosen == np.argmax(state.logits, axis=-1))
  sampled = acting.make_actor_core(network, spec)
  chosen, _ = sampled.select_action(
    variables, timestep, sampled.init(key, batch_size)
  )
  assert set(np.asarray(chosen)) == {0, 1, 2}


def test_previous_action_is_none_at_the_first_step():
  action = {'a': jnp.array([2, 2, 2]), 'b': jnp.array([1, 1, 1])}
  previous = acting.previous_action_of(_timestep([0, 1, 2]), action)
  np.testing.assert_array_equal(previous['a'], [types.NO_ACTION, 2, 2])
  np.testing.assert_array_equal(previous['b'], [types.NO_ACTION, 1, 1])


def test_an_action_that_was_not_chosen_can_be_taken(key):
  """Sent actions keep the draw behind them; others are sent as they are."""
  spec = fakes.make_continuous_spec().actions
  rng = np.random.default_rng(0)
  drawn = distributions.sample(key, distributions.zero_logits(spec, (2,)))
  drawn['arm']['torque'] = jnp.array([[3.0, -0.5], [0.1, 0.2]])  # 3 is cut off.
  state = types.ActorState(key, (), drawn, (), (), ())
  sent = distributions.to_environment(spec, drawn)
  same = acting._replace_action(spec, state, jax.tree.map(np.asarray, sent))
  jax.tree.map(np.testing.assert_array_equal, same.action, drawn)

  given = {
    'mode': np.array([2, 0]),
    'arm': {
      'torque': rng.uniform([-2, 0], 2, (2, 2)).astype(np.float32),
      'force': rng.normal(size=(2, 1)).astype(np.float32),
    },
    'shares': rng.dirichlet(np.ones(3), 2).astype(np.float32),
  }
  other = acting._replace_action(spec, state, given)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6),
    distributions.to_environment(spec, other.action),
    given,
  )
  dtypes = [
    jax.tree.map(lambda x: x.dtype, tree) for tree in (other.action, drawn)
  ]
  assert dtypes[0] == dtypes[1]


def test_an_action_of_other_shapes_is_refused(core, key):
  state = core.init(key, NUM_ENVIRONMENTS)
  with pytest.raises(ValueError, match=r'action \(shapes \(\)\) must have'):
    core.replace_action(state, 1)
