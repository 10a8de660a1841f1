"""Returns and advantages of a stream that crosses episode boundaries.

A step in a stream of `T` transitions is one of three kinds:

* the episode continues, and so does the recursion;
* the episode terminates: `discount_t` is zero, so nothing that follows counts;
* the episode is truncated, the stream ends, or padding begins: the next step
  belongs to another episode, and this one bootstraps from `v_t`, the value of
  the observation that it led to.

The third kind is followed by a zero of `mask_tm1`, or is the last step.
`mask_tm1` is zero where no action was taken: between the `LAST` timestep of an
episode and the `FIRST` of the next, and in padding. Results are zero there.

Values may have more axes than masks and discounts, whose first is time.
"""

import jax
import jax.numpy as jnp

from ftwax import scans, shapes, trees, types


def lambda_returns(
  r_t: types.Array,
  discount_t: types.Array,
  v_t: types.Array,
  mask_tm1: types.Array,
  lambda_: types.Array | float = 1.0,
) -> types.Array:
  """Computes lambda returns (Sutton and Barto, 2018, equation 12.18).

    G_{t-1} = r_t + discount_t ((1 - lambda) v_t + lambda G_t)

  Args:
    r_t: [T, ...], rewards.
    discount_t: [T] or more, zero where an episode terminated.
    v_t: [T, ...], values after each action.
    mask_tm1: as `discount_t`, 1 where an action was taken and 0 elsewhere.
    lambda_: 0 for one-step targets; 1 for the n-step returns of A3C, which
      bootstrap at the end of the stream.

  Returns:
    [T, ...], targets of the values before each action.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  shapes.check('lambda_returns', r_t=(r_t, 'T ...'), v_t=(v_t, 'T ...'))
  shapes.check(
    'lambda_returns',
    discount_t=(discount_t, 'T ...'),
    mask_tm1=(mask_tm1, 'T ...'),
    lambda_=(lambda_, ''),
  )
  shapes.check_leaves('lambda_returns', 'r_t', r_t, mask_tm1.shape)
  # With lambda 0 a return bootstraps from `v_t`, whatever comes next.
  continues = jnp.concatenate([mask_tm1[1:], jnp.zeros_like(mask_tm1[:1])]) != 0
  lambda_t = jnp.where(continues, lambda_, 0.0)
  # Masked entries may be infinite or NaN, which a product with 0 would keep.
  r_t, v_t = (_masked(mask_tm1, x) for x in (r_t, v_t))
  share_t, factor_t = (
    trees.align(discount_t * x, r_t) for x in (1 - lambda_t, lambda_t)
  )
  return _masked(mask_tm1, accumulate(r_t + share_t * v_t, factor_t))


def accumulate(offset_t: types.Array, factor_t: types.Array) -> types.Array:
  """Computes y_{t-1} = offset_t + factor_t y_t backward in time.

  Args:
    offset_t: [T, ...].
    factor_t: with the same axes, each of the same size or of size 1.

  Returns:
    y before each step, [T, ...]; y after the last step is zero.

  Raises:
    ValueError: if the factor has other axes.
  """
  shapes.check(
    'accumulate',
    offset_t=(offset_t, 'T ...'),
    factor_t=(factor_t, 'T' + ' _' * (offset_t.ndim - 1)),
  )

  def step(
    y_t: types.Array, step: tuple[types.Array, types.Array]
  ) -> tuple[types.Array, types.Array]:
    offset_t, factor_t = step
    y_tm1 = offset_t + factor_t * y_t
    return y_tm1, y_tm1

  # Each step is a few operations: on a GPU sixteen at once are one kernel.
  unroll = 16 if scans.counts_launches() else 1
  _, ys = jax.lax.scan(
    step,
    jnp.zeros_like(offset_t[0]),
    (offset_t, factor_t),
    reverse=True,
    unroll=unroll,
  )
  return ys


def generalized_advantages(
  v_tm1: types.Array,
  v_t: types.Array,
  r_t: types.Array,
  discount_t: types.Array,
  mask_tm1: types.Array,
  lambda_: types.Array | float = 0.95,
) -> types.Array:
  """Computes generalized advantages (Schulman et al., 2016, equation 16).

    delta_t = r_t + discount_t v_t - v_{t-1}
    A_{t-1} = delta_t + discount_t lambda A_t

  Added to `v_tm1` they equal `lambda_returns`.

  Args:
    v_tm1: [T, ...], values before each action.
    v_t: [T, ...], values after each action.
    r_t: [T, ...], rewards.
    discount_t: [T] or more, zero where an episode terminated.
    mask_tm1: as `discount_t`, 1 where an action was taken and 0 elsewhere.
    lambda_: trades bias (0) for variance (1).

  Returns:
    [T, ...], advantages of the actions, zero where none was taken.
  """
  shapes.check(
    'generalized_advantages',
    v_tm1=(v_tm1, 'T ...'),
    v_t=(v_t, 'T ...'),
    r_t=(r_t, 'T ...'),
  )
  # The sum of errors equals the lambda return minus the value. With the direct
  # sum, A2C's loss takes 1.3 to 1.5 times as long (T = 128, B = 8).
  return _masked(
    mask_tm1,
    lambda_returns(r_t, discount_t, v_t, mask_tm1, lambda_) - v_tm1,
  )


def _masked(mask_tm1: types.Array, x: types.Array) -> types.Array:
  return trees.where_rows(mask_tm1 != 0, x, jnp.zeros_like(x))
