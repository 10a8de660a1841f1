"""Inputs and outputs of policy losses.

A policy loss is computed on one stream: `T` consecutive transitions, which may
run across the ends of episodes. All policy losses have the same signature, so
that an agent can use any of them.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import dm_env
import jax
import jax.numpy as jnp

from ftwax import distributions, types

# Name of the axis of streams, over which `normalize_advantages` adds up.
STREAMS = 'streams'

# Magnitude to which rewards that are scaled are clipped.
_MAX_SCALED_REWARD = 10.0

# Of the standard deviation of advantages, so that equal ones become zero.
_EPSILON = 1e-8


class Transitions(NamedTuple):
  """`T` transitions of one stream; leaves are [T, ...].

  Where no action was taken, between the `LAST` timestep of an episode and the
  `FIRST` of the next, `mask_tm1` is zero and nothing else has a meaning.

  Attributes:
    logits_tm1: of the policy that learns, [T, num_actions] for each part.
    behaviour_logits_tm1: of the policy that acted, likewise.
    a_tm1: int32 [T] for each part, the action taken.
    v_tm1: [T], value before the action.
    v_t: [T], value after it; of the last observation of an episode where one
      ended, so that a truncated episode bootstraps.
    r_t: [T], reward for the action.
    discount_t: [T], discount after it, the agent's times the environment's:
      zero where the episode terminated, not where it was truncated.
    mask_tm1: [T], 1 where an action was taken and 0 elsewhere.
    targets: made from the whole batch before the first of several gradient
      steps on it, leaves [T, ...]; None for losses without such targets.
  """

  logits_tm1: types.ArrayTree
  behaviour_logits_tm1: types.ArrayTree
  a_tm1: types.ArrayTree
  v_tm1: types.Array
  v_t: types.Array
  r_t: types.Array
  discount_t: types.Array
  mask_tm1: types.Array
  targets: types.ArrayTree = None


class PolicyLossOutput(NamedTuple):
  """Losses of one stream, each [T] and zero where no action was taken.

  Attributes:
    policy: its gradient improves the policy.
    value: half the squared error of the value.
    entropy: of the policy, in nats.
    metrics: scalars by name, for the log.
  """

  policy: types.Array
  value: types.Array
  entropy: types.Array
  metrics: Mapping[str, types.Array]


class PolicyLoss(Protocol):
  """A loss of the policy and the value over one stream.

  The streams of a batch are mapped over, the name of their axis is `STREAMS`.
  """

  def __call__(
    self, transitions: Transitions, hyperparameters: types.Hyperparameters
  ) -> PolicyLossOutput: ...


class MakeTargets(Protocol):
  """Makes `Transitions.targets` of a whole batch, leaves [T, B, ...].

  It is called once a batch, with the parameters before the first gradient step.
  """

  def __call__(
    self, transitions: Transitions, hyperparameters: types.Hyperparameters
  ) -> types.ArrayTree: ...


def make_transitions(
  output: types.NetworkOutput,
  trajectory: types.Trajectory,
  hyperparameters: types.Hyperparameters,
  return_scale: types.Array | None = None,
) -> Transitions:
  """Pairs the `T + 1` steps of one stream into `T` transitions.

  Args:
    output: of the network that learns, leaves [T + 1, ...].
    trajectory: of the behaviour policy, without a batch axis.
    hyperparameters: `discount` and `max_abs_reward` are read.
    return_scale: float32 [], by which rewards are divided after they are
      clipped to `max_abs_reward`, and then clipped to 10; None for neither.

  Returns:
    The transitions.
  """
  tm1, t = slice(None, -1), slice(1, None)
  timestep = trajectory.timestep
  limit = hyperparameters.max_abs_reward
  r_t = jnp.clip(timestep.reward[t], -limit, limit)
  if return_scale is not None:
    r_t = jnp.clip(r_t / return_scale, -_MAX_SCALED_REWARD, _MAX_SCALED_REWARD)
  return Transitions(
    logits_tm1=jax.tree.map(lambda leaf: leaf[tm1], output.logits),
    behaviour_logits_tm1=trajectory.logits,
    a_tm1=jax.tree.map(lambda leaf: leaf[t], trajectory.previous_action),
    v_tm1=output.value[tm1],
    v_t=output.value[t],
    r_t=r_t,
    discount_t=hyperparameters.discount * timestep.discount[t],
    mask_tm1=make_mask(timestep),
  )


def make_mask(timestep: dm_env.TimeStep) -> types.Array:
  """Returns 1 where an action was taken and 0 elsewhere, float32 [T].

  Args:
    timestep: of `T + 1` steps of one stream.
  """
  is_last = timestep.step_type[:-1] == types.LAST
  return jnp.where(is_last, 0.0, 1.0)


def log_prob_tm1(transitions: Transitions) -> types.Array:
  """Returns log pi(a) [T] under the policy that learns."""
  return distributions.log_prob(transitions.logits_tm1, transitions.a_tm1)


def normalize_advantages(
  advantages: types.Array, weights: types.Array, axis_name: str | None = None
) -> types.Array:
  """Brings advantages to mean 0 and variance 1, over all that have a weight.

  Args:
    advantages: any shape, times their weights.
    weights: of the same shape, such as importance ratios; 1 for none, and zero
      where an advantage has no meaning.
    axis_name: of an axis that is mapped over and also counts.

  Returns:
    The same shape, times the weights, zero where they are.
  """

  def total(x: types.Array) -> types.Array:
    summed = jnp.sum(x)
    return jax.lax.psum(summed, axis_name) if axis_name else summed

  is_live = weights != 0
  count = jnp.maximum(1.0, total(weights))
  mean = total(jnp.where(is_live, advantages, 0.0)) / count
  centred = jnp.where(is_live, advantages - weights * mean, 0.0)
  return centred / (jnp.sqrt(total(jnp.square(centred)) / count) + _EPSILON)
