"""Checks timesteps inside the compiled loop.

JAX environments must meet the same demands as `environments.validation` checks
for Python environments. Compiled code cannot raise: a rollout returns flags for
each of its steps and each demand, and the host reads them once per call.
"""

from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import validation


class Demand(NamedTuple):
  """The words of an error message; see `validation.fail`."""

  field: str
  demand: str
  remedy: str


def demands(spec: types.EnvironmentSpec) -> list[Demand]:
  """Returns the demands, in the order of the flags."""
  found = [
    Demand('step_type', *validation.ORDER),
    Demand('reward', *validation.IS_FINITE),
    Demand('discount', *validation.IS_DISCOUNT),
  ]
  for leaf in validation.observation_leaves(spec):
    if leaf.is_float:
      found.append(Demand(leaf.name, *validation.IS_FINITE))
    if _has_bounds(leaf.spec):
      words = validation.in_bounds(leaf), validation.CHANGE_SPEC
      found.append(Demand(leaf.name, *words))
  return found


def find_faults(
  spec: types.EnvironmentSpec, timesteps: dm_env.TimeStep
) -> types.Array:
  """Returns for each step and demand whether any row violates it.

  Args:
    spec: spec of one environment.
    timesteps: consecutive timesteps, leaves [T + 1, B, ...]; `B` may be several
      axes. The first was checked before, as the last of the steps before it.

  Returns:
    Flags, bool [T, num_demands].
  """
  before = jax.tree.map(lambda leaf: leaf[:-1], timesteps)
  timestep = jax.tree.map(lambda leaf: leaf[1:], timesteps)
  step_type, discount = timestep.step_type, timestep.discount
  is_first = step_type == types.FIRST
  must_be_first = before.step_type == types.LAST
  flags = [
    (is_first != must_be_first) | (step_type < 0) | (step_type > types.LAST),
    ~jnp.isfinite(timestep.reward),
    # Negated, so that NaN is a fault.
    ~((discount >= 0.0) & (discount <= 1.0)),
  ]
  rows = jax.tree.leaves(timestep.observation)
  for leaf, value in zip(
    validation.observation_leaves(spec), rows, strict=True
  ):
    if leaf.is_float:
      flags.append(~jnp.isfinite(value))
    if _has_bounds(leaf.spec):
      inside = (value >= leaf.spec.minimum) & (value <= leaf.spec.maximum)
      axes = tuple(range(step_type.ndim, value.ndim))
      # As for Python environments, bounds are checked where episodes start.
      flags.append(is_first & ~jnp.all(inside, axes))
  return jnp.stack(
    [jnp.any(flag, tuple(range(1, flag.ndim))) for flag in flags], axis=1
  )


def _has_bounds(spec: Any) -> bool:
  """Returns whether a value of the spec's dtype can be out of bounds."""
  if not isinstance(spec, specs.BoundedArray):
    return False
  if spec.dtype.kind in 'iu':
    info = np.iinfo(spec.dtype)
    return bool(
      np.any(spec.minimum > info.min) or np.any(spec.maximum < info.max)
    )
  return spec.dtype.kind == 'f' and bool(
    np.any(np.isfinite(spec.minimum)) or np.any(np.isfinite(spec.maximum))
  )
