"""Updates written by hand with rlax, for comparison in `family.py`.

One loss function per algorithm, plain Haiku networks with the sizes of the
agents, one optimizer. Other features of the agents are left out: parts of
actions, action masks, hyperparameters as data, skipped updates.
"""

from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import optax
import rlax

from ftwax.networks import auxiliary_heads, entry_torsos

_DISCOUNT = 0.99
_BASELINE_COST = 0.5
_CELL_SIZE = 4
_LAST = 2


class Sizes(NamedTuple):
  """Sizes of the network.

  Attributes:
    num_actions: number of actions of the policy.
    hidden_size: size of the core.
    is_recurrent: whether the core is an LSTM instead of a layer.
    is_image: whether the torso is for images instead of an MLP.
  """

  num_actions: int
  hidden_size: int
  is_recurrent: bool
  is_image: bool = False


class Stream(NamedTuple):
  """Inputs of losses: leaves [T], [T, A] for logits, after `vmap` over the
  batch.
  """

  logits_tm1: Any
  value: Any  # [T + 1].
  behaviour_logits_tm1: Any
  a_tm1: Any
  r_t: Any
  discount_t: Any
  mask_tm1: Any


class Network(hk.Module):
  """Torso, core, policy and value; two more heads for UNREAL."""

  def __init__(self, sizes, name=None):
    super().__init__(name)
    self._sizes = sizes
    if sizes.is_image:
      self._torso = entry_torsos.ShallowTorso()
    else:
      self._torso = hk.Sequential([hk.Flatten(), hk.Linear(64), jax.nn.relu])
    if sizes.is_recurrent:
      self._core = hk.ResetCore(hk.LSTM(sizes.hidden_size))

  def __call__(self, trajectory):
    """Maps a trajectory to features, logits and values, [T + 1, B, ...]."""
    timestep = trajectory.timestep
    x = hk.BatchApply(self._torso)(timestep.observation)
    if self._sizes.is_recurrent:
      # Without memory, agents do not read what led to a step either.
      action = trajectory.previous_action
      x = jnp.concatenate(
        [
          x,
          jax.nn.one_hot(action, self._sizes.num_actions),
          jnp.tanh(timestep.reward)[..., None],
        ],
        axis=-1,
      )
      state = hk.LSTMState(*trajectory.recurrent_state)
      x, _ = hk.dynamic_unroll(self._core, (x, timestep.step_type == 0), state)
    else:
      x = jax.nn.relu(hk.Linear(self._sizes.hidden_size)(x))
    logits = hk.Linear(self._sizes.num_actions)(x)
    return x, logits, jnp.squeeze(hk.Linear(1)(x), -1)

  def predict(self, observation):
    """Predicts the sign of the reward that follows frames [3, B, ...]."""
    embedding = hk.BatchApply(self._torso)(observation)
    return auxiliary_heads.RewardPredictionHead()(embedding)


def make_network(sizes, frame_shape=None):
  """Returns the transform of `(batch) -> outputs` for the losses."""

  def apply(batch):
    network = Network(sizes)
    outputs = [network(batch.trajectory)]
    if batch.replay is None:
      return outputs
    replayed = network(batch.replay.trajectory)
    grid = tuple(side // _CELL_SIZE for side in frame_shape[:2])
    head = auxiliary_heads.PixelControlHead(sizes.num_actions, grid)
    return [
      *outputs,
      replayed,
      hk.BatchApply(head)(replayed[0]),
      network.predict(batch.reward_prediction.observation),
    ]

  return hk.without_apply_rng(hk.transform(apply))


def _make_streams(output, trajectory):
  """Pairs consecutive timesteps, leaves [T, B]."""
  _, logits, value = output
  timestep = trajectory.timestep
  return Stream(
    logits_tm1=logits[:-1],
    value=value,
    behaviour_logits_tm1=trajectory.logits,
    a_tm1=jnp.maximum(trajectory.previous_action[1:], 0),
    r_t=timestep.reward[1:],
    discount_t=_DISCOUNT * timestep.discount[1:],
    mask_tm1=jnp.where(timestep.step_type[:-1] == _LAST, 0.0, 1.0),
  )


def _over_batch(loss, streams, *others):
  """Sums the loss over the streams of a batch."""
  return jnp.sum(jax.vmap(loss, in_axes=1)(streams, *others))


def _actor_critic(stream, advantages, errors, entropy_cost):
  """Returns the weighted sum of policy, value and entropy losses."""
  mask, length = stream.mask_tm1, len(stream.mask_tm1)
  policy = length * rlax.policy_gradient_loss(
    stream.logits_tm1, stream.a_tm1, advantages, mask
  )
  entropy = -length * rlax.entropy_loss(stream.logits_tm1, mask)
  value = 0.5 * jnp.sum(mask * jnp.square(errors))
  return policy + _BASELINE_COST * value - entropy_cost * entropy


def a2c_loss(entropy_cost, gae_lambda=1.0):
  """Returns the loss of A2C."""

  def stream_loss(stream):
    value = jax.lax.stop_gradient(stream.value)
    advantages = rlax.truncated_generalized_advantage_estimation(
      stream.r_t, stream.discount_t, gae_lambda, value
    )
    errors = advantages + value[:-1] - stream.value[:-1]
    return _actor_critic(stream, advantages, errors, entropy_cost)

  def loss(outputs, batch):
    return _over_batch(stream_loss, _make_streams(outputs[0], batch.trajectory))

  return loss


def impala_loss(entropy_cost):
  """Returns the loss of IMPALA."""

  def stream_loss(stream):
    rhos = rlax.categorical_importance_sampling_ratios(
      stream.logits_tm1, stream.behaviour_logits_tm1, stream.a_tm1
    )
    found = rlax.vtrace_td_error_and_advantage(
      stream.value[:-1],
      stream.value[1:],
      stream.r_t,
      stream.discount_t,
      jax.lax.stop_gradient(rhos),
    )
    return _actor_critic(stream, found.pg_advantage, found.errors, entropy_cost)

  def loss(outputs, batch):
    return _over_batch(stream_loss, _make_streams(outputs[0], batch.trajectory))

  return loss


def unreal_loss(entropy_cost, pixel_control_cost):
  """Returns the loss of UNREAL with its three auxiliary tasks."""
  actor_critic = a2c_loss(entropy_cost)

  def pixel_loss(stream, frames, values):
    losses = rlax.pixel_control_loss(
      frames[..., None], stream.a_tm1, values, 0.9, _CELL_SIZE
    )
    return jnp.sum(stream.mask_tm1[:, None, None] * losses)

  def value_loss(stream):
    target = rlax.lambda_returns(
      stream.r_t, stream.discount_t, stream.value[1:], 1.0, True
    )
    errors = stream.mask_tm1 * (target - stream.value[:-1])
    return 0.5 * jnp.sum(jnp.square(errors))

  def loss(outputs, batch):
    _, replayed, values, logits = outputs
    streams = _make_streams(replayed, batch.replay.trajectory)
    frames = batch.replay.trajectory.timestep.observation
    label = jnp.sign(batch.reward_prediction.reward).astype(jnp.int32) % 3
    prediction = optax.softmax_cross_entropy_with_integer_labels(logits, label)
    return (
      actor_critic(outputs, batch)
      + pixel_control_cost * _over_batch(pixel_loss, streams, frames, values)
      + _over_batch(value_loss, streams)
      + jnp.sum(prediction)
    )

  return loss


def make_update(network, loss, optimizer):
  """Returns `update(params, opt_state, key, batch)` of one optimizer step.

  The key is only used by updates that draw random numbers.
  """

  def update(params, opt_state, key, batch):
    def of_params(params):
      return loss(network.apply(params, batch), batch)

    value, gradients = jax.value_and_grad(of_params)(params)
    updates, opt_state = optimizer.update(gradients, opt_state)
    return optax.apply_updates(params, updates), opt_state, key, value

  return update


def make_ppo_update(network, optimizer, config, entropy_cost):
  """Returns `update(params, opt_state, key, batch)` of several epochs."""

  def targets_of(stream):
    advantages = rlax.truncated_generalized_advantage_estimation(
      stream.r_t, stream.discount_t, 0.95, stream.value
    )
    return advantages, advantages + stream.value[:-1]

  def stream_loss(stream, advantages, returns):
    mask, length = stream.mask_tm1, len(stream.mask_tm1)
    ratios = rlax.categorical_importance_sampling_ratios(
      stream.logits_tm1, stream.behaviour_logits_tm1, stream.a_tm1
    )
    policy = length * rlax.clipped_surrogate_pg_loss(ratios, advantages, 0.1)
    value = 0.5 * jnp.sum(mask * jnp.square(returns - stream.value[:-1]))
    entropy = -length * rlax.entropy_loss(stream.logits_tm1, mask)
    return policy + _BASELINE_COST * value - entropy_cost * entropy

  def loss(params, batch, advantages, returns):
    (output,) = network.apply(params, batch)
    streams = _make_streams(output, batch.trajectory)
    total = _over_batch(stream_loss, streams, advantages, returns)
    return total / jnp.sum(streams.mask_tm1)

  def update(params, opt_state, key, batch):
    key, order_key = jax.random.split(key)
    (output,) = network.apply(params, batch)
    streams = _make_streams(output, batch.trajectory)
    advantages, returns = jax.vmap(targets_of, 1, 1)(streams)
    mask = streams.mask_tm1
    mean = jnp.sum(mask * advantages) / jnp.sum(mask)
    advantages = mask * (advantages - mean)
    advantages /= jnp.sqrt(jnp.sum(advantages**2) / jnp.sum(mask)) + 1e-8
    keys = jax.random.split(order_key, config.num_epochs)
    order = jax.vmap(jax.random.permutation, (0, None))(keys, mask.shape[1])

    def step(carry, columns):
      params, opt_state = carry
      trajectory = batch.trajectory
      state = jax.tree.map(lambda x: x[columns], trajectory.recurrent_state)
      part = jax.tree.map(
        lambda x: x[:, columns], trajectory._replace(recurrent_state=())
      )
      value, gradients = jax.value_and_grad(loss)(
        params,
        batch._replace(trajectory=part._replace(recurrent_state=state)),
        advantages[:, columns],
        returns[:, columns],
      )
      updates, opt_state = optimizer.update(gradients, opt_state)
      return (optax.apply_updates(params, updates), opt_state), value

    num_steps = config.num_epochs * config.num_minibatches
    (params, opt_state), values = jax.lax.scan(
      step, (params, opt_state), order.reshape(num_steps, -1)
    )
    return params, opt_state, key, jnp.mean(values)

  return update
