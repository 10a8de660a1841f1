"""Optimizers and schedules whose hyperparameters are data.

Each traced update makes its optimizer from the hyperparameters in the state, so
that changing one does not trigger a recompilation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
import optax

from ftwax import types

if TYPE_CHECKING:
  from ftwax.agents.actor_critic import actor_critic_config as config_lib

# Adam's epsilon in common implementations of A2C and PPO.
_ADAM_EPSILON = 1e-5


def make_optimizer(
  config: config_lib.ActorCriticConfig, hyperparameters: types.Hyperparameters
) -> optax.GradientTransformation:
  """Makes the optimizer that the config names, with a learning rate of one.

  The caller scales the updates by the learning rate. Gradients are clipped by
  their global norm before the optimizer sees them; the optimizer's updates are
  not clipped.

  Args:
    config: names the optimizer.
    hyperparameters: numbers of the optimizer, traced or not.
  """
  if config.optimizer == 'adam':
    scale = optax.scale_by_adam(eps=_ADAM_EPSILON)
  else:
    scale = optax.scale_by_rms(
      decay=config.rms_prop_decay,
      eps=hyperparameters.rms_prop_epsilon,
      eps_in_sqrt=True,
    )
  return optax.chain(
    optax.clip_by_global_norm(hyperparameters.max_gradient_norm),
    scale,
    optax.scale(-1.0),
  )


def decay(
  config: config_lib.ActorCriticConfig,
  hyperparameters: types.Hyperparameters,
  steps: types.Array,
) -> types.Hyperparameters:
  """Returns the hyperparameters after `steps` updates.

  Those named in `config.decayed_hyperparameters` are annealed linearly to the
  share `config.decayed_to` of their values over `learning_rate_decay_steps`
  updates; the others stay constant.

  Args:
    config: names the hyperparameters to anneal.
    hyperparameters: values at the first update.
    steps: int32 [], updates done.
  """
  # Zero if the number of steps is infinite.
  fraction = steps / hyperparameters.learning_rate_decay_steps
  rest = 1.0 - (1.0 - config.decayed_to) * jnp.minimum(fraction, 1.0)
  return hyperparameters._replace(
    **{
      name: getattr(hyperparameters, name) * rest
      for name in config.decayed_hyperparameters
    }
  )
