"""Shardings over a one-dimensional mesh of devices.

A function written for one device is compiled for all of them, and XLA inserts
their communication (GSPMD; Xu et al., 2021, arXiv:2105.04663). With replicated
parameters and a batch sharded over the devices, sums over the batch in the loss
and its gradients become sums over devices. The results equal those of one
device up to the order of summation.
"""

from collections.abc import Sequence

import jax
import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import batches

# Name of the device axis.
_AXIS = 'device'


def make_mesh(devices: Sequence[jax.Device] | None) -> jax.sharding.Mesh:
  """Returns a one-dimensional mesh; None means the first JAX device.

  Raises:
    ValueError: if there are no devices or duplicates.
  """
  if devices is None:
    devices = jax.devices()[:1]
  if not devices or len(set(devices)) < len(devices):
    raise ValueError(
      f'devices ({list(devices)}) must be one or more distinct devices; choose'
      ' jax.devices().'
    )
  return jax.sharding.Mesh(np.array(devices), (_AXIS,))


def check_divides(mesh: jax.sharding.Mesh, **counts: int) -> None:
  """Raises a ValueError unless each count divides by the number of devices.

  Args:
    mesh: the devices.
    **counts: sizes of axes to be sharded over the devices, by name.
  """
  for name, count in counts.items():
    rest = count % mesh.size
    if rest:
      raise ValueError(
        f'{name} ({count}) must divide by the number of devices ({mesh.size}),'
        f' over which it is split; choose {count + mesh.size - rest} or pass'
        ' other devices.'
      )


def replicated(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
  """Returns the sharding of arrays that are replicated on all devices."""
  return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def spread(
  mesh: jax.sharding.Mesh, axis: int = 0
) -> jax.sharding.NamedSharding:
  """Returns the sharding of arrays that are split along an axis."""
  spec = jax.sharding.PartitionSpec(*[None] * axis, _AXIS)
  return jax.sharding.NamedSharding(mesh, spec)


def place_learner_core(
  mesh: jax.sharding.Mesh, core: types.LearnerCore
) -> types.LearnerCore:
  """Returns a learner with a replicated state and sharded batches.

  Args:
    mesh: the devices.
    core: functions of a learner, not compiled yet.
  """
  whole = replicated(mesh)

  def place(axis: int, tree: types.ArrayTree) -> types.ArrayTree:
    sharding = whole if axis == batches.NO_AXIS else spread(mesh, axis)
    return jax.lax.with_sharding_constraint(tree, sharding)

  def init(key: types.Key) -> types.TrainingState:
    state: types.TrainingState = jax.lax.with_sharding_constraint(
      core.init(key), whole
    )
    return state

  def update(
    state: types.TrainingState, batch: types.LearnerBatch
  ) -> tuple[types.TrainingState, types.Metrics]:
    batch = jax.tree.map(place, batches.batch_axes(batch), batch)
    updated: tuple[types.TrainingState, types.Metrics] = (
      jax.lax.with_sharding_constraint(core.update(state, batch), whole)
    )
    return updated

  return types.LearnerCore(init, update)
