"""Optimizers and schedules whose numbers are data.

They are made anew inside the traced update from the hyperparameters in the
state, so that changing one makes no new trace.
"""

import jax.numpy as jnp
import optax

from ftwax import types
from ftwax.agents.actor_critic import actor_critic_config as config_lib

# Adam's, as implementations of A2C and PPO have it.
_ADAM_EPSILON = 1e-5


def make_optimizer(
  config: config_lib.ActorCriticConfig, hyperparameters: types.Hyperparameters
) -> optax.GradientTransformation:
  """Returns the config's optimizer, with the given values, traced or not.

  Its learning rate is one: the caller scales what it returns.
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

  Those of `config.decayed_hyperparameters` fall to zero, linearly, in
  `learning_rate_decay_steps` updates; the others stay.
  """
  fraction = steps / hyperparameters.learning_rate_decay_steps
  rest = jnp.maximum(0.0, 1.0 - fraction)
  return hyperparameters._replace(
    **{
      name: getattr(hyperparameters, name) * rest
      for name in config.decayed_hyperparameters
    }
  )
