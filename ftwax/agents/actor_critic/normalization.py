"""Running statistics by which observations are normalized and rewards scaled.

They are arrays in the training state: a checkpoint holds them, actors get them
with the parameters, and a member that copies another takes them along. Both
kinds are `()` where an agent does not use them.

The mean and variance of observations are those of all timesteps that were
learned from, merged batch by batch (Chan et al., 1979, STAN-CS-79-773). An
update normalizes by the statistics that it begins with, so that parameters and
statistics which acted together learn together, and takes its own batch in for
the next one.

The scale of returns is their root mean square, so that members of a population
whose internal rewards differ in scale have losses of one scale; see
`return_scale`. Rewards are divided by it in the losses alone, which no policy
has seen, so that each update takes its own batch in first.
"""

from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.losses import policy_loss, returns
from ftwax.networks import embeddings

# Beyond these deviations from the mean an observation is clipped.
_MAX_DEVIATIONS = 10.0

# Of the variance of observations, under the root.
_EPSILON = 1e-8

# Least weight of an update in the moments of returns, which change as policies
# and internal rewards do: about the last thousand updates count.
_MIN_WEIGHT = 1e-3

# Least share of a return that lies inside of a trajectory: a mean return that
# is not discounted has no other bound.
_MIN_INSIDE = 1e-4


class ObservationStatistics(NamedTuple):
  """Statistics of each entry of the observation that is normalized.

  Attributes:
    num_timesteps: float32 [].
    mean: float32, of the shape of an entry, by its path such as 'arm/angles'.
    variance: likewise.
  """

  num_timesteps: types.Array
  mean: dict[str, types.Array]
  variance: dict[str, types.Array]


class ReturnStatistics(NamedTuple):
  """Moments of returns inside of trajectories; see `return_scale`.

  Attributes:
    num_transitions: float32 [].
    moments: float32 [5], means of R, D, R^2, R D and D^2.
  """

  num_transitions: types.Array
  moments: types.Array


def find_entries(
  observation_spec: types.SpecTree, frame_entry: str | None = None
) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of the entries that are normalized, by path.

  Args:
    observation_spec: specs of the observation.
    frame_entry: path of the entry that pixel control is of; None for none.

  Returns:
    Those of all entries of floats but images, which torsos scale by their
    bounds, the mask of actions, and what pixel control is of.

  Raises:
    ValueError: if there is none.
  """
  shapes = {}
  for path, spec in jax.tree.leaves_with_path(observation_spec):
    name = _name(path)
    is_kept = (
      not jnp.issubdtype(spec.dtype, jnp.floating)
      or embeddings.is_image(spec)
      or name.split('/')[0] == types.ACTION_MASK
      or name == frame_entry
    )
    if not is_kept:
      shapes[name] = tuple(spec.shape)
  if not shapes:
    raise ValueError(
      'normalize_observations (True) must have an entry of floats that is'
      ' neither an image nor the frame of pixel control, and the observation'
      f' ({observation_spec!r}) has none; choose False.'
    )
  return shapes


def init_observations(
  entries: dict[str, tuple[int, ...]],
) -> ObservationStatistics | tuple[()]:
  """Returns the statistics of no observation: mean 0 and variance 1.

  Args:
    entries: see `find_entries`; without any there are no statistics.
  """
  if not entries:
    return ()
  return ObservationStatistics(
    num_timesteps=jnp.zeros(()),
    mean={name: jnp.zeros(shape) for name, shape in entries.items()},
    variance={name: jnp.ones(shape) for name, shape in entries.items()},
  )


def normalize(statistics: Any, observation: types.ArrayTree) -> types.ArrayTree:
  """Brings entries to mean 0 and variance 1, clipped to 10 deviations.

  An entry that never changed is 0, and 0 plus its change when it does.

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
  """Puts the normalized observation in place of the environment's."""
  return timestep._replace(
    observation=normalize(statistics, timestep.observation)
  )


def update_observations(
  statistics: Any, timestep: dm_env.TimeStep
) -> ObservationStatistics | tuple[()]:
  """Takes in the observations of a batch.

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
  merged = {
    name: _merge(
      statistics.num_timesteps, mean, statistics.variance[name], leaves[name]
    )
    for name, mean in statistics.mean.items()
  }
  new = ObservationStatistics(
    num_timesteps=statistics.num_timesteps + timestep.step_type[:-1].size,
    mean={name: mean for name, (mean, _) in merged.items()},
    variance={name: variance for name, (_, variance) in merged.items()},
  )
  return _if_finite(new, statistics)


def init_returns() -> ReturnStatistics:
  """Returns the statistics of no return, whose scale is 1."""
  return ReturnStatistics(
    num_transitions=jnp.zeros(()), moments=jnp.zeros((5,))
  )


def update_returns(
  statistics: Any,
  trajectory: types.Trajectory,
  hyperparameters: types.Hyperparameters,
) -> ReturnStatistics | tuple[()]:
  """Takes in the returns of a batch.

  Args:
    statistics: `ReturnStatistics` or `()`.
    trajectory: leaves [T + 1 or T, B, ...], its rewards the agent's own.
    hyperparameters: `discount` and `max_abs_reward` are read.

  Returns:
    The new statistics; the old ones if a reward is not finite, or no action was
    taken.
  """
  if not statistics:
    return ()
  timestep = trajectory.timestep
  limit = hyperparameters.max_abs_reward
  r_t = jnp.clip(timestep.reward[1:], -limit, limit)
  mask = policy_loss.make_mask(timestep)
  zeros = jnp.zeros_like(r_t)
  # Of the rewards without a value after them, and of a value without rewards.
  parts = jax.vmap(returns.lambda_returns, in_axes=1, out_axes=1)(
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
  weight = jnp.maximum(count / num_transitions, _MIN_WEIGHT)
  new = ReturnStatistics(
    num_transitions=num_transitions,
    moments=statistics.moments + weight * (moments - statistics.moments),
  )
  return _if_finite(new, statistics)


def return_scale(statistics: Any) -> types.Array | None:
  """Returns the root mean square of returns, float32 []; None of `()`.

  The return of a step is R + D m: the discounted rewards R in the rest of its
  trajectory and, discounted by D, what comes after. That is told by no value
  of the network, whose own scale it would follow, but by the mean return,
  m = E[R] + E[D] m.

  It is 1 where all rewards were zero.
  """
  if not statistics:
    return None
  inside, beyond, inside_2, product, beyond_2 = statistics.moments
  mean = inside / jnp.maximum(1.0 - beyond, _MIN_INSIDE)
  square = inside_2 + 2.0 * mean * product + mean**2 * beyond_2
  return jnp.where(square > 0.0, jnp.sqrt(jnp.maximum(square, 0.0)), 1.0)


def _merge(
  count: types.Array, mean: types.Array, variance: types.Array, x: types.Array
) -> tuple[types.Array, types.Array]:
  """Merges `count` values with those of `x`, [T, B, ...]."""
  x = x.astype(jnp.float32).reshape(-1, *mean.shape)
  # From the first value on, so that equal ones have no variance at all.
  origin = x[:1]
  own_mean = x[0] + jnp.mean(x - origin, axis=0)
  own_variance = jnp.mean(jnp.square(x - own_mean[None]), axis=0)
  weight = x.shape[0] / (count + x.shape[0])
  change = own_mean - mean
  rest = (1.0 - weight) * (variance + weight * jnp.square(change))
  return mean + weight * change, rest + weight * own_variance


def _if_finite(new: Any, old: Any) -> Any:
  """Returns `new` if all of its numbers are finite, or else `old`."""
  leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(new)]
  is_finite = jnp.all(jnp.stack(leaves))
  return jax.tree.map(lambda x, y: jnp.where(is_finite, x, y), new, old)


def _name(path: Any) -> str:
  """Returns the path of an entry as `embeddings.named_leaves` has it."""
  name: str = jax.tree_util.keystr(path, simple=True, separator='/')
  return name
