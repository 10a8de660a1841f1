"""PPO written by hand for a single task, in the style of PureJaxRL.

One file, one network, plain dicts of weights: no core, no extras, no episode
statistics except the mean return, and resets by `where` at every step.
`device.py` compares the device runtime with it; network and optimizer equal
those of the agent there.
"""

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

_DISCOUNT = 0.99
_LAMBDA = 0.95
_CLIP_EPSILON = 0.1
_ENTROPY_COST = 0.01
_BASELINE_COST = 0.5

_OPTIMIZER = optax.chain(
  optax.clip_by_global_norm(0.5),
  optax.scale_by_adam(eps=1e-5),
  optax.scale(-2.5e-4),
)


class Sizes(NamedTuple):
  """Sizes of an iteration; see `PPOConfig` for epochs and minibatches."""

  num_environments: int
  num_steps: int
  num_epochs: int
  num_minibatches: int


class State(NamedTuple):
  """The complete mutable state.

  Attributes:
    params: weights of the network.
    opt_state: state of the optimizer.
    environment: states of the environments, leaves [E, ...].
    observation: last observations, [E, ...].
    key: random key.
  """

  params: Any
  opt_state: Any
  environment: Any
  observation: Any
  key: Any


def _dense(params, inputs):
  return inputs @ params['w'] + params['b']


def _network(params, observation):
  hidden = observation.reshape(len(observation), -1).astype(jnp.float32)
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


def _taken(logits, action):
  """Returns the log-probabilities of the actions, and the entropies."""
  log_probs = jax.nn.log_softmax(logits)
  taken = jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]
  return taken, -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def _loss(params, batch):
  observation, action, old_log_prob, advantage, target = batch
  logits, value = _network(params, observation)
  log_prob, entropy = _taken(logits, action)
  ratio = jnp.exp(log_prob - old_log_prob)
  clipped = jnp.clip(ratio, 1.0 - _CLIP_EPSILON, 1.0 + _CLIP_EPSILON)
  return jnp.mean(
    -jnp.minimum(ratio * advantage, clipped * advantage)
    + _BASELINE_COST * 0.5 * jnp.square(target - value)
    - _ENTROPY_COST * entropy
  )


def _advantages(reward, discount, value, bootstrap):
  """Returns generalized advantage estimates [T, E]."""

  def accumulate(carry, inputs):
    advantage, next_value = carry
    reward, discount, value = inputs
    delta = reward + _DISCOUNT * discount * next_value - value
    advantage = delta + _DISCOUNT * _LAMBDA * discount * advantage
    return (advantage, value), advantage

  carry = jnp.zeros_like(bootstrap), bootstrap
  _, advantages = jax.lax.scan(
    accumulate, carry, (reward, discount, value), reverse=True
  )
  return advantages


def _learn(sizes, learned, key, batch):
  """Runs all optimizer steps on a batch, leaves [T * E, ...]."""

  def step(learned, minibatch):
    params, opt_state = learned
    gradients = jax.grad(_loss)(params, minibatch)
    updates, opt_state = _OPTIMIZER.update(gradients, opt_state)
    return (optax.apply_updates(params, updates), opt_state), None

  def epoch(learned, key):
    order = jax.random.permutation(key, batch[0].shape[0])
    order = order.reshape(sizes.num_minibatches, -1)
    minibatches = jax.tree.map(lambda leaf: leaf[order], batch)
    return jax.lax.scan(step, learned, minibatches)

  keys = jax.random.split(key, sizes.num_epochs)
  return jax.lax.scan(epoch, learned, keys)[0]


def _make_functions(environment):
  """Returns `reset(key)` and `step(key, state, action)` of an environment."""

  def reset(key):
    state, timestep = environment.reset(key)
    return state, timestep.observation

  def step(key, state, action):
    """Steps the environment, and resets it if the episode has ended."""
    state, timestep = environment.step(state, action)
    done = timestep.step_type == 2
    state, observation = jax.tree.map(
      lambda new, old: jnp.where(done, new, old),
      reset(key),
      (state, timestep.observation),
    )
    return state, observation, timestep.reward, timestep.discount, done

  return reset, step


def make(environment, hidden_sizes, sizes, num_iterations):
  """Returns `init(key)` and `call(state) -> (state, mean return)`."""
  num_actions = environment.spec.actions.num_values
  num_inputs = math.prod(environment.spec.observations.shape)
  reset, step = _make_functions(environment)

  def init(key):
    params_key, reset_key, key = jax.random.split(key, 3)
    params = _init_params(params_key, (num_inputs, *hidden_sizes), num_actions)
    environment_state, observation = jax.vmap(reset)(
      jax.random.split(reset_key, sizes.num_environments)
    )
    opt_state = _OPTIMIZER.init(params)
    return State(params, opt_state, environment_state, observation, key)

  def act(params, carry, _):
    state, observation, key = carry
    key, action_key, reset_key = jax.random.split(key, 3)
    logits, value = _network(params, observation)
    action = jax.random.categorical(action_key, logits)
    log_prob, _ = _taken(logits, action)
    reset_keys = jax.random.split(reset_key, sizes.num_environments)
    state, next_observation, *outcome = jax.vmap(step)(
      reset_keys, state, action
    )
    row = (observation, action, log_prob, value), outcome
    return (state, next_observation, key), row

  def iterate(state, _):
    carry = state.environment, state.observation, state.key
    (environment_state, last_observation, key), rows = jax.lax.scan(
      functools.partial(act, state.params), carry, length=sizes.num_steps
    )
    (observation, action, log_prob, value), (reward, discount, done) = rows
    _, bootstrap = _network(state.params, last_observation)
    advantage = _advantages(reward, discount, value, bootstrap)
    target = advantage + value
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    batch = jax.tree.map(
      lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
      (observation, action, log_prob, advantage, target),
    )
    key, learn_key = jax.random.split(key)
    learned = _learn(sizes, (state.params, state.opt_state), learn_key, batch)
    # Catch is only rewarded in the last step of an episode.
    mean_return = jnp.sum(reward) / jnp.maximum(1, jnp.sum(done))
    state = State(*learned, environment_state, last_observation, key)
    return state, mean_return

  def call(state):
    state, returns = jax.lax.scan(iterate, state, length=num_iterations)
    return state, returns[-1]

  return init, call
