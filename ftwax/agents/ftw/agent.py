"""The For-The-Win agent: its network, losses and builder.

    observation -> torso -> core -> z -> policy, value, pixel control
                     |
                     `-> reward prediction

The core is a temporal hierarchy, with or without a shared memory, or a plain
LSTM; see `networks.rpth`. The agent minimizes

  L = L_V-trace policy + baseline_cost L_V-trace value - entropy_cost entropy
    + pixel_control_cost L_pixel control + reward_prediction_cost L_prediction
    + kl_posterior_prior_cost KL(Q || P) + kl_prior_fixed_cost KL(P || N(0, s))

(supplement, section "Agent objective"), summed over time and batch, with one
RMSProp step per update. This is the setting of `FTWConfig.paper`; the default
policy loss is PPO's. Rewards are the agent's own: a sum of the environment's
events weighted by its internal rewards. All costs, the slow core's period and
the internal rewards are data that a population evolves.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

from ftwax import types
from ftwax.agents.actor_critic import auxiliary, builder, standard, tasks
from ftwax.agents.ftw import ftw_config as config_lib
from ftwax.losses import clipped_surrogate, policy_loss, vtrace
from ftwax.networks import (
  cores,
  embeddings,
  heads,
  recurrent,
  recurrent_cores,
  rpth,
  torsos,
)


def make_builder(config: config_lib.FTWConfig) -> builder.ActorCriticBuilder:
  """Makes the agent's builder."""
  loss: policy_loss.PolicyLoss = vtrace.vtrace_loss
  make_targets: policy_loss.MakeTargets | None = None
  if config.policy_loss == 'ppo':
    loss = clipped_surrogate.ppo_loss
    make_targets = clipped_surrogate.make_targets
    if config.normalize_advantages is False:
      make_targets = clipped_surrogate.make_plain_targets
  elif config.normalize_advantages:
    loss = functools.partial(vtrace.vtrace_loss, normalize_advantages=True)
  return builder.ActorCriticBuilder(
    config, loss, make_auxiliary_tasks(config), make_targets
  )


def make_auxiliary_tasks(
  config: config_lib.FTWConfig,
) -> tuple[auxiliary.AuxiliaryTask, ...]:
  """Makes the tasks of the config and, for a hierarchy, its KL losses."""
  made = tasks.make_tasks(config)
  return made if config.core == 'lstm' else (tasks.latent_kl_task(), *made)


def make_network(
  environment_spec: types.EnvironmentSpec,
  config: config_lib.FTWConfig,
  *,
  make_torso: Callable[[], Callable[[Any], types.Array]] | None = None,
  make_core: Callable[[], cores.RecurrentCore] | None = None,
) -> types.RecurrentNetwork:
  """Makes the agent's network for an environment.

  Args:
    environment_spec: specs of observations and actions.
    config: chooses the parts and their sizes.
    make_torso: replaces the agent's torso; maps an observation, leaves
      [B, ...], to features [B, num_features]. The network appends the previous
      action and reward to these.
    make_core: replaces the core that the config names.

  Returns:
    The network.

  Raises:
    ValueError: if the frame does not suit pixel control, or the torso appends
      the previous action and reward itself.
  """
  network = recurrent.make_recurrent_network(
    environment_spec,
    make_torso=make_torso or (lambda: _torso(environment_spec, config)),
    make_core=make_core or (lambda: _core(config)),
    head_options=heads.HeadOptions(
      policy_hidden_sizes=(config.head_hidden_size,),
      value_hidden_sizes=(config.head_hidden_size,),
    ),
    auxiliary_heads=standard.make_heads(environment_spec, config),
    example_hyperparameters=config.sample_hyperparameters(
      jax.random.PRNGKey(0)
    ),
  )
  if make_torso is not None or make_core is not None:
    # Trace custom parts now, so that a mismatch raises here.
    jax.eval_shape(network.init, jax.random.PRNGKey(0))
  return network


def _torso(
  environment_spec: types.EnvironmentSpec, config: config_lib.FTWConfig
) -> embeddings.ObservationEmbedding:
  return embeddings.ObservationEmbedding(
    environment_spec.observations,
    make_image_torso=lambda: torsos.FTWTorso(config.embedding_size),
    make_vector_torso=lambda: torsos.MLPTorso(config.vector_hidden_sizes),
  )


def _core(config: config_lib.FTWConfig) -> cores.RecurrentCore:
  if config.core == 'lstm':
    return recurrent_cores.LSTM(
      config.hidden_size, config.level_options.forget_bias
    )
  return rpth.RPTH(
    rpth.RPTHConfig(
      hidden_sizes=(config.hidden_size,) * config.num_levels,
      latent_size=config.latent_size,
      memory=config.memory if config.core == 'rpth_dnc' else None,
      level_options=config.level_options,
    )
  )
