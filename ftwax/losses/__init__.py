"""Losses on one stream of steps; use `vmap` for batches and populations."""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.losses.advantage_actor_critic import advantage_actor_critic_loss
from ftwax.losses.clipped_surrogate import ppo_loss
from ftwax.losses.cloning import cloning_loss
from ftwax.losses.latent_kl import normal_kl
from ftwax.losses.pixel_control import pixel_control_loss
from ftwax.losses.policy_loss import (
  PolicyLoss,
  PolicyLossOutput,
  Transitions,
  log_prob_tm1,
)
from ftwax.losses.q_learning import (
  n_step_returns,
  q_lambda_loss,
  q_learning_loss,
)
from ftwax.losses.returns import (
  generalized_advantages,
  lambda_returns,
)
from ftwax.losses.reward_prediction import reward_prediction_loss
from ftwax.losses.v_trace import VTraceReturns, vtrace, vtrace_loss
from ftwax.losses.value_replay import value_replay_loss

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = (
  'PolicyLoss',
  'PolicyLossOutput',
  'Transitions',
  'VTraceReturns',
  'advantage_actor_critic_loss',
  'cloning_loss',
  'generalized_advantages',
  'lambda_returns',
  'log_prob_tm1',
  'n_step_returns',
  'normal_kl',
  'pixel_control_loss',
  'ppo_loss',
  'q_lambda_loss',
  'q_learning_loss',
  'reward_prediction_loss',
  'value_replay_loss',
  'vtrace',
  'vtrace_loss',
)
