"""Losses of action values: double Q-learning by n-step returns, and Q(lambda).

The target of `q_learning_loss` is the n-step return, which bootstraps with the
value that the target network gives to the action that the learning network
prefers (van Hasselt et al., 2016, arXiv:1509.06461). Action values are those of
a rescaled return, h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x (Pohlen et
al., 2018, arXiv:1805.11593), as in R2D2 (Kapturowski et al., 2019, "Recurrent
experience replay in distributed reinforcement learning", section 2.3):

  y_t = h(sum_{k<n} gamma^k r_{t+k} + gamma^n h^{-1}(q'(x_{t+n}, a*)))

An action with several parts has the mean of its parts' values, each of which
learns towards the same target, as in branching Q-networks (Tavakoli et al.,
2018, arXiv:1711.08946).

The n-step return is not rlax's, for which n is static: here n is data, which a
population may change. Nor does `rlax.transformed_n_step_q_learning` bootstrap
at the end of a truncated episode.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ftwax import registry, shapes, types
from ftwax.losses import lazy_rlax, policy_loss, returns


class QTargets(NamedTuple):
  """What the targets are computed from, beside the learning network.

  Attributes:
    logits_t: action values of the target network after each action, float32
      [T, num_actions] for each part.
    weight: float32 [T], importance weights.
  """

  logits_t: types.ArrayTree
  weight: types.Array


@registry.register('loss.q_learning')
def q_learning_loss(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> policy_loss.PolicyLossOutput:
  """Computes the loss of n-step double Q-learning on one stream.

  Args:
    transitions: leaves [T, ...], with `QTargets`; without targets, those of the
      learning network itself, and weights of one.
    hyperparameters: the agent: `n_step`; `rescaling`, the epsilon of h, or
      None; `huber_delta`, the error beyond which the loss is linear; and the
      `max_error_share` of its replay, for the priority.

  Returns:
    The loss of the values, [T], and the stream's priority.
  """
  policy_loss.check_transitions(
    'q_learning_loss', transitions._replace(targets=None)
  )
  agent, mask = hyperparameters, transitions.mask_tm1 != 0
  targets = transitions.targets
  if targets is None:
    targets = QTargets(transitions.logits_t, jnp.ones_like(transitions.r_t))
  shapes.check(
    'q_learning_loss',
    **{
      'transitions.r_t': (transitions.r_t, 'T'),
      'targets.weight': (targets.weight, 'T'),
    },
  )
  v_t = double_q_values(transitions.logits_t, targets.logits_t)
  target_tm1 = rescale(
    n_step_returns(
      transitions.r_t,
      transitions.discount_t,
      unscale(v_t, agent.rescaling),
      transitions.mask_tm1,
      agent.n_step,
    ),
    agent.rescaling,
  )
  # Masked before the square: what is not finite would make its gradient NaN.
  errors = [
    jnp.where(mask, error, 0.0)
    for error in td_errors(
      transitions.logits_tm1,
      transitions.a_tm1,
      jax.lax.stop_gradient(target_tm1),
    )
  ]
  losses = [huber(error, agent.huber_delta) for error in errors]
  error = jax.lax.stop_gradient(_mean([jnp.abs(error) for error in errors]))
  num_actions = jnp.maximum(1, jnp.sum(mask))
  return policy_loss.PolicyLossOutput(
    policy=None,
    value=targets.weight * _mean(losses),
    entropy=None,
    metrics={'td_error': jnp.sum(error) / num_actions},
    priority=priority(error, mask, agent.replay.max_error_share),
  )


@registry.register('loss.q_lambda')
def q_lambda_loss(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> policy_loss.PolicyLossOutput:
  """Computes the squared error of action values on one stream.

  Args:
    transitions: leaves [T, ...], with the targets of `make_lambda_targets`, or
      without.
    hyperparameters: without targets, `q_lambda`.

  Returns:
    The loss of the values, [T].
  """
  policy_loss.check_transitions('q_lambda_loss', transitions)
  mask, targets = transitions.mask_tm1 != 0, transitions.targets
  if targets is None:
    targets = make_lambda_targets(transitions, hyperparameters)
  errors = [
    jnp.where(mask, error, 0.0)
    for error in td_errors(transitions.logits_tm1, transitions.a_tm1, targets)
  ]
  error = _mean([jnp.abs(error) for error in errors])
  return policy_loss.PolicyLossOutput(
    policy=None,
    value=_mean([0.5 * jnp.square(error) for error in errors]),
    entropy=None,
    metrics={'td_error': jnp.sum(error) / jnp.maximum(1, jnp.sum(mask))},
  )


def make_lambda_targets(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> types.Array:
  """Computes the targets of Q(lambda), float32 [T] or [T, B].

  They are lambda returns of the values of greedy actions (Peng and Williams,
  1996), whatever actions were taken, as in PQN (Gallici et al., 2024,
  arXiv:2407.04811, section 4).

  Args:
    transitions: leaves [T, ...] or [T, B, ...]; `v_t` are the values of the
      greedy actions.
    hyperparameters: only `q_lambda` is used.
  """
  targets: types.Array = jax.lax.stop_gradient(
    returns.lambda_returns(
      transitions.r_t,
      transitions.discount_t,
      transitions.v_t,
      transitions.mask_tm1,
      hyperparameters.q_lambda,
    )
  )
  return targets


def td_errors(
  logits_tm1: types.ArrayTree,
  a_tm1: types.ArrayTree,
  target_tm1: types.Array,
) -> list[types.Array]:
  """Returns the error of each part of the action, float32 [T] each.

  Args:
    logits_tm1: action values, float32 [T, num_actions] for each part.
    a_tm1: int32 [T] for each part.
    target_tm1: float32 [T], the target of all parts.
  """
  shapes.check('td_errors', target_tm1=(target_tm1, '...'))
  steps = jnp.shape(target_tm1)
  shapes.check_leaves('td_errors', 'logits_tm1', logits_tm1, steps, 1)
  shapes.check_leaves('td_errors', 'a_tm1', a_tm1, steps, 0)
  return [
    target_tm1 - _take(q_tm1, a)
    for q_tm1, a in zip(
      jax.tree.leaves(logits_tm1), jax.tree.leaves(a_tm1), strict=True
    )
  ]


def double_q_values(
  logits_t: types.ArrayTree, target_logits_t: types.ArrayTree
) -> types.Array:
  """Returns the target network's values of the preferred actions.

  Args:
    logits_t: action values of the learning network, float32 [..., num_actions]
      for each part; forbidden actions have a value that is never the largest.
    target_logits_t: those of the target network.

  Returns:
    float32 [...], the mean over parts.
  """
  parts = list(
    zip(
      jax.tree.leaves(logits_t), jax.tree.leaves(target_logits_t), strict=True
    )
  )
  steps = jnp.shape(parts[0][0])[:-1]
  for own, target in parts:
    shapes.check_leaves('double_q_values', 'logits_t', own, steps, 1)
    shapes.check(
      'double_q_values',
      logits_t=(own, '... num_actions'),
      target_logits_t=(target, '... num_actions'),
    )
  return _mean(
    [_take(target, jnp.argmax(own, axis=-1)) for own, target in parts]
  )


def n_step_returns(
  r_t: types.Array,
  discount_t: types.Array,
  v_t: types.Array,
  mask_tm1: types.Array,
  n: types.Array | int,
) -> types.Array:
  """Computes n-step returns of one stream, float32 [T].

  A return of fewer steps bootstraps at the end of its episode, whose discount
  is zero unless it was truncated, and at the end of the stream.

  Args:
    r_t: float32 [T], rewards.
    discount_t: float32 [T], discounts.
    v_t: float32 [T], values to bootstrap from.
    mask_tm1: float32 [T], zero where no action was taken; see
      `policy_loss.Transitions`.
    n: int32 [], at least 1; traced or not.

  Returns:
    The returns; meaningless where no action was taken.
  """
  shapes.check(
    'n_step_returns',
    r_t=(r_t, 'T'),
    discount_t=(discount_t, 'T'),
    v_t=(v_t, 'T'),
    mask_tm1=(mask_tm1, 'T'),
  )
  shapes.check_scalars('n_step_returns', n=n)
  length = len(r_t)
  # Followed by a step without an action; see `returns`.
  is_end = jnp.append(mask_tm1[1:] == 0, False)
  # Beyond the end of the stream, a step neither adds nor discounts anything.
  r_t, is_end = jnp.pad(r_t, (0, length)), jnp.pad(is_end, (0, length))
  discount_t = jnp.pad(discount_t, (0, length), constant_values=1.0)
  v_t = jnp.pad(v_t, (0, length), mode='edge')

  def window(leaf: types.Array, first: types.Array) -> types.Array:
    return jax.lax.dynamic_slice_in_dim(leaf, first, length)

  def step(index: types.Array, target: types.Array) -> types.Array:
    first = n - 1 - index
    after = jnp.where(window(is_end, first), window(v_t, first), target)
    return window(r_t, first) + window(discount_t, first) * after

  n = jnp.minimum(n, length)
  return jax.lax.fori_loop(0, n, step, window(v_t, n - 1))


def huber(error: types.Array, delta: types.Array | float) -> types.Array:
  """Returns half the squared error, linear beyond `delta`, which may be inf."""
  shapes.check_scalars('huber', delta=delta)
  size = jnp.abs(error)
  inside = jnp.minimum(size, delta)
  outside = size - inside
  # Not a product with an infinite delta, which would be NaN.
  slope = jnp.where(outside > 0, jnp.minimum(delta, size), 0.0)
  return 0.5 * jnp.square(inside) + jax.lax.stop_gradient(slope) * outside


def priority(
  error: types.Array, mask: types.Array, max_error_share: types.Array | float
) -> types.Array:
  """Returns eta max |error| + (1 - eta) mean |error| of a stream, float32 [].

  Kapturowski et al., 2019, section 2.3.

  Args:
    error: float32 [T], absolute errors, zero where no action was taken.
    mask: bool [T], whether an action was taken.
    max_error_share: eta.
  """
  shapes.check(
    'priority',
    error=(error, 'T'),
    mask=(mask, 'T'),
    max_error_share=(max_error_share, ''),
  )
  mean = jnp.sum(error) / jnp.maximum(1, jnp.sum(mask))
  return max_error_share * jnp.max(error) + (1.0 - max_error_share) * mean


def rescale(x: types.Array, epsilon: types.Array | float | None) -> types.Array:
  """Returns h(x); x itself without an epsilon."""
  if epsilon is None:
    return x
  shapes.check_scalars('rescale', epsilon=epsilon)
  rescaled: types.Array = lazy_rlax.load().signed_hyperbolic(x, epsilon)
  return rescaled


def unscale(x: types.Array, epsilon: types.Array | float | None) -> types.Array:
  """Returns the inverse of `rescale`."""
  if epsilon is None:
    return x
  shapes.check_scalars('unscale', epsilon=epsilon)
  unscaled: types.Array = lazy_rlax.load().signed_parabolic(x, epsilon)
  return unscaled


def _take(q: types.Array, action: types.Array) -> types.Array:
  """Returns the values of actions, [...] of [..., num_actions]."""
  # `NO_ACTION` counts as the first, where the mask is zero.
  index = jnp.maximum(action, 0)[..., None]
  return jnp.take_along_axis(q, index, axis=-1)[..., 0]


def _mean(parts: list[types.Array]) -> types.Array:
  return jnp.mean(jnp.stack(parts), axis=0) if len(parts) > 1 else parts[0]
