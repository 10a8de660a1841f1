"""Inputs and outputs of policy losses.

A policy loss is computed on one stream: `T` consecutive transitions, which may
cross episode boundaries. All policy losses have the same signature, so that an
agent can use any of them.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import dm_env
import jax
import jax.numpy as jnp

from ftwax import distributions, shapes, trees, types

# Name of the mapped axis of streams, over which `normalize_advantages` sums.
STREAMS = 'streams'

# Magnitude to which scaled rewards are clipped.
_MAX_SCALED_REWARD = 10.0

# Added to the standard deviation of advantages; equal advantages become zero.
_EPSILON = 1e-8


class Transitions(NamedTuple):
  """`T` transitions of one stream; leaves are [T, ...].

  `mask_tm1` is zero where no action was taken, between the `LAST` timestep of
  an episode and the `FIRST` of the next. The other fields are meaningless
  there.

  Attributes:
    logits_tm1: logits of the learner's policy, float32 [T, num_actions] for
      each discrete part; see `distributions`.
    behaviour_logits_tm1: logits of the behaviour policy, of the same shapes.
    a_tm1: int32 [T] or float32 [T, n] for each part, the action taken.
    v_tm1: float32 [T], value before the action.
    v_t: float32 [T], value after the action; at the end of an episode, that of
      its last observation, so that a truncated episode bootstraps.
    r_t: float32 [T], reward for the action.
    discount_t: float32 [T], discount after the action, the agent's times the
      environment's: zero where the episode terminated, not where it was
      truncated.
    mask_tm1: float32 [T], 1 where an action was taken and 0 elsewhere.
    targets: computed on the whole batch before the first of several gradient
      steps on it, leaves [T, ...]; None for losses without such targets.
    logits_t: those of the learner after the action, of the shapes of
      `logits_tm1`, for losses of action values; None where there is no step
      after an action.
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
  logits_t: types.ArrayTree = None


class PolicyLossOutput(NamedTuple):
  """Losses of one stream, each [T] and zero where no action was taken.

  Attributes:
    policy: float32 [T], loss whose gradient is the negative policy gradient;
      None for action values, whose agents have no policy beside them.
    value: float32 [T], half the squared error of the value.
    entropy: float32 [T], entropy of the policy in nats; None likewise.
    metrics: scalars by name, for the log.
    priority: float32 [], of the stream in a prioritized replay; None for losses
      without.
  """

  policy: types.Array | None
  value: types.Array
  entropy: types.Array | None
  metrics: Mapping[str, types.Array]
  priority: types.Array | None = None


class PolicyLoss(Protocol):
  """Computes the loss of policy and value on one stream.

  A batch is mapped over its streams, with the axis name `STREAMS`.
  """

  def __call__(
    self, transitions: Transitions, hyperparameters: types.Hyperparameters
  ) -> PolicyLossOutput: ...


class MakeTargets(Protocol):
  """Computes `Transitions.targets` of a whole batch, leaves [T, B, ...].

  It is called once per batch, with the parameters before the first gradient
  step.
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
  """Converts the `T + 1` steps of one or more streams to `T` transitions.

  Args:
    output: output of the learner's network, leaves [T + 1, ...].
    trajectory: trajectory of the behaviour policy, leaves [T + 1 or T, ...].
    hyperparameters: only `discount` and `max_abs_reward` are used.
    return_scale: see `clip_reward`.

  Returns:
    The transitions.

  Raises:
    ValueError: if value, reward, discount and step type differ in shape.
  """
  shapes.check(
    'make_transitions',
    **{
      'output.value': (output.value, 'T+1 ...'),
      'trajectory.timestep.reward': (trajectory.timestep.reward, 'T+1 ...'),
      'trajectory.timestep.discount': (
        trajectory.timestep.discount,
        'T+1 ...',
      ),
      'trajectory.timestep.step_type': (
        trajectory.timestep.step_type,
        'T+1 ...',
      ),
    },
  )
  tm1, t = slice(None, -1), slice(1, None)
  timestep = trajectory.timestep
  return Transitions(
    logits_tm1=trees.take(output.logits, tm1),
    # [T] already: the action at the last step is in the next trajectory.
    behaviour_logits_tm1=trajectory.logits,
    a_tm1=trees.take(trajectory.previous_action, t),
    v_tm1=output.value[tm1],
    v_t=output.value[t],
    r_t=clip_reward(timestep.reward[t], hyperparameters, return_scale),
    discount_t=hyperparameters.discount * timestep.discount[t],
    mask_tm1=make_mask(timestep),
    logits_t=trees.take(output.logits, t),
  )


def check_transitions(
  function: str, transitions: Transitions, shape: str = 'T'
) -> None:
  """Checks the shapes of transitions; see `shapes.check`.

  Args:
    function: name of the loss, for the message.
    transitions: leaves [*shape, ...].
    shape: of values, rewards, discounts and mask.

  Raises:
    ValueError: naming the field that differs.
  """
  fields = ('v_tm1', 'v_t', 'r_t', 'discount_t', 'mask_tm1')
  shapes.check(
    function,
    **{
      f'transitions.{name}': (getattr(transitions, name), shape)
      for name in fields
    },
  )
  steps = jnp.shape(transitions.r_t)
  for name in ('logits_tm1', 'behaviour_logits_tm1', 'logits_t'):
    tree = getattr(transitions, name)
    shapes.check_leaves(function, f'transitions.{name}', tree, steps, 1)
  for path, part in jax.tree.leaves_with_path(transitions.a_tm1):
    name = f'transitions.a_tm1{jax.tree_util.keystr(path)}'
    is_discrete = jnp.issubdtype(jnp.result_type(part), jnp.integer)
    shapes.check_leaves(function, name, part, steps, 0 if is_discrete else 1)
  shapes.check_leaves(
    function, 'transitions.targets', transitions.targets, steps
  )


def clip_reward(
  reward: types.Array,
  hyperparameters: types.Hyperparameters,
  return_scale: types.Array | None = None,
) -> types.Array:
  """Returns the reward that an agent learns from.

  Args:
    reward: float32, of any shape.
    hyperparameters: only `max_abs_reward` is used.
    return_scale: float32 []; rewards, clipped to `max_abs_reward`, are divided
      by it and then clipped to 10. None for no scaling.
  """
  shapes.check_scalars(
    'clip_reward',
    return_scale=1.0 if return_scale is None else return_scale,
  )
  limit = hyperparameters.max_abs_reward
  reward = jnp.clip(reward, -limit, limit)
  if return_scale is None:
    return reward
  return jnp.clip(
    reward / return_scale, -_MAX_SCALED_REWARD, _MAX_SCALED_REWARD
  )


def make_mask(timestep: dm_env.TimeStep) -> types.Array:
  """Returns 1 where an action was taken and 0 elsewhere, float32 [T].

  Args:
    timestep: `T + 1` steps of one stream.
  """
  is_last = timestep.step_type[:-1] == types.LAST
  return jnp.where(is_last, 0.0, 1.0)


def is_timestep(step_type: types.Array) -> types.Array:
  """Returns whether each step is one of an episode and no filling, bool.

  Args:
    step_type: int32 [T + 1, ...]; `LAST` beside `LAST` fills the end of a
      trajectory; see `types.Trajectory`.
  """
  is_last = step_type == types.LAST
  widths = [(1, 1), *[(0, 0)] * (is_last.ndim - 1)]
  beside = jnp.pad(is_last, widths)  # [T + 3, ...]
  return ~(is_last & (beside[:-2] | beside[2:]))


def log_prob_tm1(transitions: Transitions) -> types.Array:
  """Returns log pi(a) [T] under the learner's policy."""
  return distributions.log_prob(transitions.logits_tm1, transitions.a_tm1)


def normalize_advantages(
  advantages: types.Array, weights: types.Array, axis_name: str | None = None
) -> types.Array:
  """Normalizes advantages to weighted mean 0, and products to unit variance.

  Products are the advantages multiplied by their weights; their squares are
  averaged over the sum of the weights. With weights of 0 and 1 this is the
  variance of the advantages that have weight 1.

  Args:
    advantages: any shape, already multiplied by their weights.
    weights: of the same shape, such as importance ratios; ones for no
      weighting, zero where an advantage is meaningless.
    axis_name: name of a mapped axis to normalize over as well.

  Returns:
    Advantages of the same shape, multiplied by the weights; zero where these
    are.

  Raises:
    ValueError: if advantages and weights differ in shape.
  """
  shapes.check(
    'normalize_advantages',
    advantages=(advantages, '...'),
    weights=(weights, '...'),
  )

  def total(x: types.Array) -> types.Array:
    x = jnp.sum(x)
    return jax.lax.psum(x, axis_name) if axis_name else x

  is_nonzero = weights != 0
  count = jnp.maximum(1.0, total(weights))
  mean = total(jnp.where(is_nonzero, advantages, 0.0)) / count
  # w (A - mean), since `advantages` are w A.
  centred = jnp.where(is_nonzero, advantages - weights * mean, 0.0)
  return centred / (jnp.sqrt(total(jnp.square(centred)) / count) + _EPSILON)
