"""Learning as pure functions: one joint loss, one optimizer step an update.

Nothing here closes over a hyperparameter: the optimizer is made anew inside
the traced update from those in the state, so changing one makes no new trace
and a population is `jax.vmap` of `init` and `update`.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ftwax import types
from ftwax.agents.actor_critic import acting
from ftwax.agents.actor_critic import config as config_lib
from ftwax.losses import policy_loss as policy_loss_lib


class _Static(NamedTuple):
  network: types.RecurrentNetwork
  policy_loss: policy_loss_lib.PolicyLoss
  config: config_lib.ActorCriticConfig


def make_learner_core(
  network: types.RecurrentNetwork,
  policy_loss: policy_loss_lib.PolicyLoss,
  config: config_lib.ActorCriticConfig,
) -> types.LearnerCore:
  """Makes the functions of a learner.

  Args:
    network: what learns.
    policy_loss: loss of one stream; see `losses.policy_loss`.
    config: sizes and priors.

  Returns:
    `init(key) -> state` and `update(state, batch) -> (state, metrics)`.
  """
  static = _Static(network, policy_loss, config)
  return types.LearnerCore(
    init=functools.partial(_init, static),
    update=functools.partial(_update, static),
  )


def make_optimizer(
  hyperparameters: types.Hyperparameters, decay: float
) -> optax.GradientTransformation:
  """Returns RMSProp without momentum, with the given values, traced or not."""
  return optax.chain(
    optax.clip_by_global_norm(hyperparameters.max_gradient_norm),
    optax.scale_by_rms(
      decay=decay, eps=hyperparameters.rms_prop_epsilon, eps_in_sqrt=True
    ),
    optax.scale_by_learning_rate(hyperparameters.learning_rate),
  )


def _init(static: _Static, key: types.Key) -> types.TrainingState:
  key, params_key, hyperparameters_key = jax.random.split(key, 3)
  params = static.network.init(params_key)
  hyperparameters = static.config.sample_hyperparameters(hyperparameters_key)
  optimizer = make_optimizer(hyperparameters, static.config.rms_prop_decay)
  zero = jnp.zeros((), jnp.int32)
  return types.TrainingState(
    params=params,
    opt_state=optimizer.init(params),
    hyperparameters=hyperparameters,
    key=key,
    steps=zero,
    skipped=zero,
    skipped_in_a_row=zero,
  )


def _update(
  static: _Static, state: types.TrainingState, batch: types.Trajectory
) -> tuple[types.TrainingState, types.Metrics]:
  key, loss_key = jax.random.split(state.key)
  gradients, metrics = jax.grad(functools.partial(_loss, static), has_aux=True)(
    state.params, state.hyperparameters, loss_key, batch
  )
  optimizer = make_optimizer(
    state.hyperparameters, static.config.rms_prop_decay
  )
  updates, opt_state = optimizer.update(gradients, state.opt_state)
  params = optax.apply_updates(state.params, updates)

  gradient_norm = optax.tree.norm(gradients)
  finite = jnp.isfinite(gradient_norm)
  params, opt_state = jax.tree.map(
    lambda new, old: jnp.where(finite, new, old),
    (params, opt_state),
    (state.params, state.opt_state),
  )
  skipped = jnp.where(finite, 0, 1)
  new_state = state._replace(
    params=params,
    opt_state=opt_state,
    key=key,
    steps=state.steps + 1,
    skipped=state.skipped + skipped,
    skipped_in_a_row=skipped * (state.skipped_in_a_row + 1),
  )
  metrics |= {
    'gradient_norm': gradient_norm,
    'skipped_updates': new_state.skipped,
  }
  return new_state, metrics


def _loss(
  static: _Static,
  params: types.Params,
  hyperparameters: types.Hyperparameters,
  key: types.Key,
  batch: types.Trajectory,
) -> tuple[types.Array, dict[str, Any]]:
  """Sums the losses over time and batch, as IMPALA and FTW do."""
  output, _ = static.network.unroll(
    params,
    hyperparameters,
    key,
    acting.make_network_input(batch.timestep, batch.previous_action),
    acting.is_first(batch.timestep),
    batch.recurrent_state,
  )
  time_axis = types.Trajectory(1, 1, 1, 0)  # Of the batch, for `vmap`.
  transitions = jax.vmap(
    policy_loss_lib.make_transitions, in_axes=(1, time_axis, None), out_axes=1
  )(output, batch, hyperparameters)
  losses = jax.vmap(static.policy_loss, in_axes=(1, None))(
    transitions, hyperparameters
  )
  policy, value, entropy = map(
    jnp.sum, (losses.policy, losses.value, losses.entropy)
  )
  loss = (
    policy
    + hyperparameters.baseline_cost * value
    - hyperparameters.entropy_cost * entropy
  )
  num_transitions = jnp.maximum(1.0, jnp.sum(transitions.mask_tm1))
  metrics = {
    'loss': loss,
    'policy_loss': policy / num_transitions,
    'value_loss': value / num_transitions,
    'entropy': entropy / num_transitions,
    'value': jnp.mean(output.value),
    **jax.tree.map(jnp.mean, dict(losses.metrics)),
  }
  return loss, metrics
