"""Returns and advantages of one stream that runs across ends of episodes.

At each step of a stream of `T` transitions three things may happen:

* the episode goes on, and so does the recursion;
* it terminates: `discount_t` is zero, and nothing that follows counts;
* it is truncated, the stream ends, or padding begins: what follows is not the
  same episode, and the step bootstraps from `v_t`, the value of the
  observation that it led to.

The last is told by `mask_tm1`: zero where no action was taken, which is the
step between the `LAST` timestep of an episode and the `FIRST` of the next, and
all padding. Results at such steps have no meaning and are zero.

Values may have more axes than time, [T, ...]; masks and discounts are [T].
"""

import chex
import jax
import jax.numpy as jnp

from ftwax import types


def lambda_returns(
  r_t: types.Array,
  discount_t: types.Array,
  v_t: types.Array,
  mask_tm1: types.Array,
  lambda_: types.Array | float = 1.0,
) -> types.Array:
  """Mixes returns of all lengths (Sutton and Barto, 2018, equation 12.18).

    G_{t-1} = r_t + discount_t ((1 - lambda) v_t + lambda G_t)

  Args:
    r_t: [T, ...], rewards.
    discount_t: [T], zero where an episode terminated.
    v_t: [T, ...], values after each action.
    mask_tm1: [T], 1 where an action was taken and 0 elsewhere.
    lambda_: 0 for one-step targets; 1 for what A3C calls n-step returns, which
      reach to the end of the stream.

  Returns:
    [T, ...], targets of the values before each action.
  """
  _check(r_t, discount_t, v_t, mask_tm1)

  def accumulate(return_t, inputs):
    r, discount, v, goes_on = inputs
    return_t = jnp.where(goes_on, return_t, v)
    return_tm1 = r + discount * ((1.0 - lambda_) * v + lambda_ * return_t)
    return return_tm1, return_tm1

  _, returns = jax.lax.scan(
    accumulate,
    v_t[-1],
    (r_t, discount_t, v_t, _goes_on(mask_tm1)),
    reverse=True,
  )
  return _masked(mask_tm1, returns)


def n_step_returns(
  r_t: types.Array,
  discount_t: types.Array,
  v_t: types.Array,
  mask_tm1: types.Array,
  n: types.Array | int,
) -> types.Array:
  """Sums `n` rewards and the value after them, fewer where a stream ends.

  Args:
    r_t: [T, ...], rewards.
    discount_t: [T], zero where an episode terminated.
    v_t: [T, ...], values after each action.
    mask_tm1: [T], 1 where an action was taken and 0 elsewhere.
    n: at least 1; it may be traced.

  Returns:
    [T, ...], targets of the values before each action, without a gradient.
  """
  _check(r_t, discount_t, v_t, mask_tm1)
  r_t, v_t = jax.lax.stop_gradient((r_t, v_t))
  discount_t, goes_on = (
    _append_axes(x, r_t) for x in (discount_t, _goes_on(mask_tm1))
  )

  def lengthen(_, returns):
    following = jnp.concatenate([returns[1:], v_t[-1:]])
    return r_t + discount_t * jnp.where(goes_on, following, v_t)

  # The return of no step is the value; that before the first is not read.
  values_tm1 = jnp.concatenate([v_t[:1], v_t[:-1]])
  returns = jax.lax.fori_loop(0, n, lengthen, values_tm1)
  return _masked(mask_tm1, returns)


def generalized_advantages(
  v_tm1: types.Array,
  v_t: types.Array,
  r_t: types.Array,
  discount_t: types.Array,
  mask_tm1: types.Array,
  lambda_: types.Array | float = 0.95,
) -> types.Array:
  """Sums errors, each further one less (Schulman et al., 2016, equation 16).

    delta_t = r_t + discount_t v_t - v_{t-1}
    A_{t-1} = delta_t + discount_t lambda A_t

  With `v_tm1` it adds up to `lambda_returns`.

  Args:
    v_tm1: [T, ...], values before each action.
    v_t: [T, ...], values after it.
    r_t: [T, ...], rewards.
    discount_t: [T], zero where an episode terminated.
    mask_tm1: [T], 1 where an action was taken and 0 elsewhere.
    lambda_: trades bias (0) for variance (1).

  Returns:
    [T, ...], advantages of the actions, zero where none was taken.
  """
  _check(r_t, discount_t, v_t, mask_tm1)
  chex.assert_equal_shape([v_tm1, v_t])
  delta_t = r_t + _append_axes(discount_t, r_t) * v_t - v_tm1

  def accumulate(advantage, inputs):
    delta, decay, mask = inputs
    advantage = jnp.where(mask, delta + decay * advantage, 0.0)
    return advantage, advantage

  _, advantages = jax.lax.scan(
    accumulate,
    jnp.zeros_like(v_t[0]),
    (delta_t, lambda_ * discount_t, mask_tm1 != 0),
    reverse=True,
  )
  return advantages


def _check(r_t, discount_t, v_t, mask_tm1):
  chex.assert_equal_shape([r_t, v_t])
  chex.assert_shape([discount_t, mask_tm1], r_t.shape[:1])


def _goes_on(mask_tm1: types.Array) -> types.Array:
  """Returns where the next step continues this one's episode, bool [T]."""
  return jnp.concatenate([mask_tm1[1:] != 0, jnp.zeros((1,), bool)])


def _append_axes(x: types.Array, like: types.Array) -> types.Array:
  return x.reshape(x.shape + (1,) * (like.ndim - x.ndim))


def _masked(mask_tm1: types.Array, x: types.Array) -> types.Array:
  return jnp.where(_append_axes(mask_tm1, x) != 0, x, 0.0)
