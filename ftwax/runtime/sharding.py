"""Several devices in a row: what is spread over them, and what lies on each.

What is compiled for one device is compiled for all of them, and XLA puts in
what they must tell each other (GSPMD; Xu et al., 2021, arXiv:2105.04663). With
parameters on every device and a batch spread over them, the sums of a loss over
its batch, and with them the gradients, become sums over devices; the numbers
are those of one device, but for the order in which sums are taken.
"""

from collections.abc import Sequence

import jax
import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import batches

# The one axis of devices.
_AXIS = 'device'


def make_mesh(devices: Sequence[jax.Device] | None) -> jax.sharding.Mesh:
  """Returns the devices of a run in a row, JAX's first one for None.

  Raises:
    ValueError: if there is none, or one twice.
  """
  if devices is None:
    devices = jax.devices()[:1]
  if not devices or len(set(devices)) < len(devices):
    raise ValueError(
      f'devices ({list(devices)}) must be one or more, each once; choose'
      ' jax.devices().'
    )
  return jax.sharding.Mesh(np.array(devices), (_AXIS,))


def check_divides(mesh: jax.sharding.Mesh, **counts: int) -> None:
  """Raises a ValueError unless each count can be shared out evenly.

  Args:
    mesh: the devices.
    **counts: of what is shared out, by name.
  """
  for name, count in counts.items():
    rest = count % mesh.size
    if rest:
      raise ValueError(
        f'{name} ({count}) must divide by the number of devices ({mesh.size}),'
        f' over which it is spread; choose {count + mesh.size - rest} or pass'
        ' other devices.'
      )


def everywhere(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
  """Returns the sharding of what lies on each device, whole."""
  return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def spread(
  mesh: jax.sharding.Mesh, axis: int = 0
) -> jax.sharding.NamedSharding:
  """Returns the sharding of what is spread over the devices by an axis."""
  spec = jax.sharding.PartitionSpec(*[None] * axis, _AXIS)
  return jax.sharding.NamedSharding(mesh, spec)


def place_learner_core(
  mesh: jax.sharding.Mesh, core: types.LearnerCore
) -> types.LearnerCore:
  """Returns functions with the state on every device and the batch spread.

  Args:
    mesh: the devices.
    core: functions of a learner, to be compiled afterwards.
  """
  whole = everywhere(mesh)

  def place(axis, tree):
    sharding = whole if axis == batches.NO_AXIS else spread(mesh, axis)
    return jax.lax.with_sharding_constraint(tree, sharding)

  def init(key):
    return jax.lax.with_sharding_constraint(core.init(key), whole)

  def update(state, batch):
    batch = jax.tree.map(place, batches.batch_axes(batch), batch)
    return jax.lax.with_sharding_constraint(core.update(state, batch), whole)

  return types.LearnerCore(init, update)
