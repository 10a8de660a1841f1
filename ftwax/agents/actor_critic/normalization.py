"""Running statistics that normalize observations and scale rewards.

They are arrays in the training state: checkpoints hold them, actors receive
them with the parameters, and an exploit copies them from parent to child. Each
kind is `()` where an agent does not use it.

The mean and variance of observations cover all timesteps learned from so far,
merged batch by batch (Chan et al., 1979, STAN-CS-79-773). An update normalizes
by the statistics from before the update, so that parameters learn with the same
statistics that they acted with, and then merges its own batch for the next one.

The scale of returns is their root mean square, so that population members whose
internal rewards differ in scale have losses of the same scale; see
`return_scale`. Only the losses divide rewards by it, never the policy's input,
so each update can merge its own batch first.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp

from ftwax import encodings, trees, types
from ftwax.losses import policy_loss, returns

# Observations are clipped to this many standard deviations from the mean.
_MAX_DEVIATIONS = 10.0

# Added to the variance of observations, inside the square root.
_EPSILON = 1e-8

# Minimum weight of an update in the moments of returns. Returns change with
# policies and internal rewards, so only the last thousand or so updates count.
_MIN_WEIGHT = 1e-3

# Lower bound on 1 - E[D] in `return_scale`: without discounting, nothing else
# bounds the mean return.
_MIN_INSIDE = 1e-4


class ObservationStatistics(NamedTuple):
  """Statistics of each observation entry that is normalized.

  Attributes:
    num_timesteps: float32 [].
    mean: float32, of the shape of an entry, by path such as 'arm/angles'.
    variance: float32, of the shape of an entry, by path.
  """

  num_timesteps: types.Array
  mean: dict[str, types.Array]
  variance: dict[str, types.Array]


class ReturnStatistics(NamedTuple):
  """Moments of returns within trajectories; see `return_scale`.

  Attributes:
    num_transitions: float32 [].
    moments: float32 [5], means of R, D, R^2, R D and D^2.
  """

  num_transitions: types.Array
  moments: types.Array


def find_entries(
  observation_spec: types.SpecTree, frame_entries: Collection[str] = ()
) -> dict[str, tuple[int, ...]]:
  """Finds the entries to normalize and returns their shapes, by path.

  Args:
    observation_spec: specs of the observation.
    frame_entries: paths of the entries that pixel control acts on.

  Returns:
    The shapes of all float entries except for images, which torsos scale by
    their bounds, the action mask, and the entry of pixel control.

  Raises:
    ValueError: if there is no such entry.
  """
  shapes = {}
  for path, spec in jax.tree.leaves_with_path(observation_spec):
    name = _name(path)
    is_kept = (
      not jnp.issubdtype(spec.dtype, jnp.floating)
      or encodings.is_image(spec)
      or name.split('/')[0] == types.ACTION_MASK
      or name in frame_entries
    )
    if not is_kept:
      shapes[name] = tuple(spec.shape)
  if not shapes:
    raise ValueError(
      'normalize_observations (True) needs a float entry in the observation'
      ' besides images and the frame of pixel control, and'
      f' {observation_spec!r} has none; choose False.'
    )
  return shapes


def init_observations(
  entries: dict[str, tuple[int, ...]],
) -> ObservationStatistics | tuple[()]:
  """Returns initial statistics, with mean 0 and variance 1.

  Args:
    entries: see `find_entries`; if empty, there are no statistics.
  """
  if not entries:
    return ()
  return ObservationStatistics(
    num_timesteps=jnp.zeros(()),
    mean={name: jnp.zeros(shape) for name, shape in entries.items()},
    variance={name: jnp.ones(shape) for name, shape in entries.items()},
  )


def normalize(statistics: Any, observation: types.ArrayTree) -> types.ArrayTree:
  """Normalizes entries to mean 0 and variance 1, clipped to 10 deviations.

  An entry that has never changed is only shifted by its mean.

  Args:
    statistics: `ObservationStatistics`, or `()` for no change.
    observation: leaves [..., *shape].

  Returns:
    The observation, its normalized entries float32.
  """
  if not statistics:
    return observation

  def normalize_entry(path: Any, leaf: types.Array) -> types.Array:
    name = _name(path)
    if name not in statistics.mean:
      return leaf
    variance = statistics.variance[name]
    # For an entry that has been constant, dividing by the root of epsilon would
    # blow up its first change.
    deviation = jnp.where(variance > 0.0, jnp.sqrt(variance + _EPSILON), 1.0)
    mean, deviation = (
      jnp.broadcast_to(x, leaf.shape)
      for x in (statistics.mean[name], deviation)
    )
    return jnp.clip(
      (jnp.asarray(leaf, jnp.float32) - mean) / deviation,
      -_MAX_DEVIATIONS,
      _MAX_DEVIATIONS,
    )

  return jax.tree_util.tree_map_with_path(normalize_entry, observation)


def with_normalized_observation(
  statistics: Any, timestep: dm_env.TimeStep
) -> dm_env.TimeStep:
  """Normalizes the observation of a timestep."""
  return timestep._replace(
    observation=normalize(statistics, timestep.observation)
  )


def update_observations(
  statistics: Any, timestep: dm_env.TimeStep
) -> ObservationStatistics | tuple[()]:
  """Merges the observations of a batch into the statistics.

  Args:
    statistics: `ObservationStatistics` or `()`.
    timestep: leaves [T + 1, B, ...], not normalized. The last one is left out,
      since it is the first of the next trajectory.

  Returns:
    The new statistics; the old ones if an entry is not finite, or so large that
    its square is not.
  """
  if not statistics:
    return ()
  leaves = {
    _name(path): leaf[:-1]
    for path, leaf in jax.tree.leaves_with_path(timestep.observation)
  }
  counts = policy_loss.is_timestep(timestep.step_type)[:-1].reshape(-1)
  merged = {
    name: _merge(
      statistics.num_timesteps,
      mean,
      statistics.variance[name],
      leaves[name],
      counts,
    )
    for name, mean in statistics.mean.items()
  }
  new = ObservationStatistics(
    num_timesteps=statistics.num_timesteps + jnp.sum(counts),
    mean={name: mean for name, (mean, _) in merged.items()},
    variance={name: variance for name, (_, variance) in merged.items()},
  )
  return _if_finite(new, statistics)


def init_returns() -> ReturnStatistics:
  """Returns initial statistics, whose scale is 1."""
  return ReturnStatistics(
    num_transitions=jnp.zeros(()), moments=jnp.zeros((5,))
  )


def update_returns(
  statistics: Any,
  trajectory: types.Trajectory,
  hyperparameters: types.Hyperparameters,
) -> ReturnStatistics | tuple[()]:
  """Merges the returns of a batch into the statistics.

  Args:
    statistics: `ReturnStatistics` or `()`.
    trajectory: leaves [T + 1 or T, B, ...], its rewards the agent's own.
    hyperparameters: only `discount` and `max_abs_reward` are used.

  Returns:
    The new statistics; the old ones if a reward is not finite or the batch has
    no valid transition.
  """
  if not statistics:
    return ()
  timestep = trajectory.timestep
  limit = hyperparameters.max_abs_reward
  r_t = jnp.clip(timestep.reward[1:], -limit, limit)
  mask = policy_loss.make_mask(timestep)
  zeros = jnp.zeros_like(r_t)
  # Two returns at once: of the rewards with a bootstrap value of 0 (R), and of
  # zero rewards with a bootstrap value of 1 (D).
  parts = returns.lambda_returns(
    jnp.stack([r_t, zeros], axis=-1),
    hyperparameters.discount * timestep.discount[1:],
    jnp.stack([zeros, zeros + 1.0], axis=-1),
    mask,
  )
  inside, beyond = parts[..., 0], parts[..., 1]
  count = jnp.sum(mask)
  moments = jnp.stack(
    [
      jnp.sum(moment) / count
      for moment in (
        inside, beyond, inside**2, inside * beyond, beyond**2
      )
    ]
  )  # fmt: skip
  num_transitions = statistics.num_transitions + count
  # A mean of all updates at first, then a moving one.
  weight = jnp.maximum(count / num_transitions, _MIN_WEIGHT)
  new = ReturnStatistics(
    num_transitions=num_transitions,
    moments=statistics.moments + weight * (moments - statistics.moments),
  )
  return _if_finite(new, statistics)


def return_scale(statistics: Any) -> types.Array | None:
  """Returns the root mean square of returns, float32 []; None for `()`.

  The return of a step is R + D m: the discounted rewards R within the rest of
  its trajectory, plus the mean return m beyond it, discounted by D. The
  network's value could not replace m, since it would follow the scale that it
  defines. Instead m solves m = E[R] + E[D] m.

  The scale is 1 if all rewards so far were zero.
  """
  if not statistics:
    return None
  inside, beyond, inside_2, product, beyond_2 = statistics.moments
  mean = inside / jnp.maximum(1.0 - beyond, _MIN_INSIDE)
  # E[(R + D m)^2]; rounding may make it negative.
  square = inside_2 + 2.0 * mean * product + mean**2 * beyond_2
  return jnp.where(square > 0.0, jnp.sqrt(jnp.maximum(square, 0.0)), 1.0)


def _merge(
  count: types.Array,
  mean: types.Array,
  variance: types.Array,
  x: types.Array,
  counts: types.Array,
) -> tuple[types.Array, types.Array]:
  """Merges the moments of `count` values with those of `x`, [T, B, ...].

  Only the values whose entry in `counts`, bool [T * B], is true count.
  """
  x = x.astype(jnp.float32).reshape(-1, *mean.shape)
  # Shift by the first value, so that equal values have a variance of exactly 0.
  origin, number = x[:1], jnp.sum(counts)

  def average(values: types.Array) -> types.Array:
    kept = jnp.where(trees.align(counts, values), values, 0.0)
    return jnp.sum(kept, axis=0) / number

  own_mean = x[0] + average(x - origin)
  own_variance = average(jnp.square(x - own_mean[None]))
  # Chan et al. (1979), in terms of the share of the new values.
  weight = number / (count + number)
  change = own_mean - mean
  rest = (1.0 - weight) * (variance + weight * jnp.square(change))
  return mean + weight * change, rest + weight * own_variance


def _if_finite(new: Any, old: Any) -> Any:
  """Returns `new` if all of its elements are finite, otherwise `old`."""
  leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(new)]
  is_finite = jnp.all(jnp.stack(leaves))
  return jax.tree.map(lambda x, y: jnp.where(is_finite, x, y), new, old)


def _name(path: Any) -> str:
  """Returns the path of an entry in the format of `embeddings.named_leaves`."""
  return jax.tree_util.keystr(path, simple=True, separator='/')
