"""A2C as one writes it by hand for one task, in the style of PureJaxRL.

One file, one network, plain dicts of weights: no core, no extras, no episode
statistics but the mean return, resets by `where` at every step. It is what
`device.py` measures the device runtime against; the network and the optimizer
are those that the agent has there.
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

_DISCOUNT = 0.99
_ENTROPY_COST = 0.01
_BASELINE_COST = 0.5

_OPTIMIZER = optax.chain(
  optax.clip_by_global_norm(40.0),
  optax.scale_by_rms(decay=0.99, eps=1e-3, eps_in_sqrt=True),
  optax.scale(-1e-3),
)


class State(NamedTuple):
  """All that changes."""

  params: Any
  opt_state: Any
  environment: Any
  observation: Any
  key: Any


def _dense(params, inputs):
  return inputs @ params['w'] + params['b']


def _network(params, observation):
  hidden = observation.reshape(*observation.shape[:-2], -1)
  for layer in params['hidden']:
    hidden = jax.nn.relu(_dense(layer, hidden))
  return _dense(params['policy'], hidden), _dense(params['value'], hidden)[
    ..., 0
  ]


def _init_params(key, sizes, num_actions):
  keys = jax.random.split(key, len(sizes) + 1)

  def dense(key, num_inputs, num_outputs):
    scale = num_inputs**-0.5
    return {
      'w': scale * jax.random.normal(key, (num_inputs, num_outputs)),
      'b': jnp.zeros(num_outputs),
    }

  pairs = itertools.pairwise(sizes)
  hidden = [dense(k, *s) for k, s in zip(keys[:-2], pairs, strict=True)]
  return {
    'hidden': hidden,
    'policy': dense(keys[-2], sizes[-1], num_actions),
    'value': dense(keys[-1], sizes[-1], 1),
  }


def make(
  environment, hidden_sizes, num_environments, num_steps, num_iterations
):
  """Returns `init(key)` and `call(state) -> (state, mean return)`."""
  num_actions = environment.spec.actions.num_values
  num_inputs = 1
  for size in environment.spec.observations.shape:
    num_inputs *= size

  def reset(key):
    state, timestep = environment.reset(key)
    return state, timestep.observation

  def step(key, state, action):
    """Takes a step, and starts anew where it ended the episode."""
    state, timestep = environment.step(state, action)
    done = timestep.step_type == 2
    new_state, new_observation = reset(key)
    state, observation = jax.tree.map(
      lambda new, old: jnp.where(done, new, old),
      (new_state, new_observation),
      (state, timestep.observation),
    )
    return state, observation, timestep.reward, timestep.discount, done

  def init(key):
    params_key, reset_key, key = jax.random.split(key, 3)
    params = _init_params(params_key, (num_inputs, *hidden_sizes), num_actions)
    environment_state, observation = jax.vmap(reset)(
      jax.random.split(reset_key, num_environments)
    )
    return State(
      params, _OPTIMIZER.init(params), environment_state, observation, key
    )

  def act(carry, _):
    params, environment_state, observation, key = carry
    key, action_key, reset_key = jax.random.split(key, 3)
    logits, _ = _network(params, observation)
    action = jax.random.categorical(action_key, logits)
    environment_state, next_observation, reward, discount, done = jax.vmap(
      step
    )(jax.random.split(reset_key, num_environments), environment_state, action)
    row = observation, action, reward, discount, done
    return (params, environment_state, next_observation, key), row

  def loss_fn(params, rows, last_observation):
    observation, action, reward, discount, _ = rows
    logits, value = _network(params, observation)
    _, bootstrap = _network(params, last_observation)

    def accumulate(target, inputs):
      reward, discount = inputs
      target = reward + _DISCOUNT * discount * target
      return target, target

    _, target = jax.lax.scan(
      accumulate, bootstrap, (reward, discount), reverse=True
    )
    advantage = jax.lax.stop_gradient(target) - value
    log_probs = jax.nn.log_softmax(logits)
    taken = jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]
    entropy = -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
    return jnp.sum(
      -jax.lax.stop_gradient(advantage) * taken
      + _BASELINE_COST * 0.5 * jnp.square(advantage)
      - _ENTROPY_COST * entropy
    )

  def iterate(state, _):
    carry = state.params, state.environment, state.observation, state.key
    (_, environment_state, observation, key), rows = jax.lax.scan(
      act, carry, length=num_steps
    )
    gradients = jax.grad(loss_fn)(state.params, rows, observation)
    updates, opt_state = _OPTIMIZER.update(gradients, state.opt_state)
    params = optax.apply_updates(state.params, updates)
    # Catch pays in an episode's last step alone.
    mean_return = jnp.sum(rows[2]) / jnp.maximum(1, jnp.sum(rows[4]))
    return State(params, opt_state, environment_state, observation, key), (
      mean_return
    )

  def call(state):
    state, returns = jax.lax.scan(iterate, state, length=num_iterations)
    return state, jnp.mean(returns)

  return init, call
