"""Functions of one member on one device, for all members and devices.

A function written for one device is compiled for all of them, and XLA inserts
their communication (GSPMD; Xu et al., 2021, arXiv:2105.04663). With replicated
parameters and a batch sharded over the devices, sums over the batch in the loss
and its gradients become sums over devices. The results equal those of one
device up to the order of summation.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import trees, types
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
    return jax.lax.with_sharding_constraint(core.init(key), whole)

  def update(
    state: types.TrainingState, batch: types.LearnerBatch
  ) -> tuple[types.TrainingState, types.Metrics]:
    batch = jax.tree.map(place, batches.batch_axes(batch), batch)
    return jax.lax.with_sharding_constraint(core.update(state, batch), whole)

  return types.LearnerCore(init, update)


def takes_turns(mesh: jax.sharding.Mesh) -> bool:
  """Returns whether members are updated one after another: on one CPU.

  There, updating members at once takes up to half as long again, with JAX 0.12
  a tenth in the main experiment: `vmap` turns matrix products and convolutions
  into batches of small ones.
  """
  return mesh.size == 1 and jax.default_backend() == 'cpu'


def over_members(
  function: Callable[..., Any],
  num_members: int,
  in_axes: Any = 0,
  out_axes: Any = 0,
  in_turn: bool = False,
) -> Callable[..., Any]:
  """Maps a function over members; with one member, squeezes the axis instead.

  The results equal those of `jax.vmap`, but a single agent avoids the cost of a
  batch axis: under `vmap`, `lax.cond` computes both branches instead of
  skipping one, and convolutions become grouped convolutions.

  Args:
    function: a function of one member.
    num_members: N.
    in_axes: the member axis of each argument; an integer for all arguments, or
      a tuple with a prefix tree for each.
    out_axes: the member axis of the results, as a prefix tree.
    in_turn: whether to loop over members instead of `jax.vmap`.

  Returns:
    The function of all members.
  """
  if num_members > 1 and not in_turn:
    return jax.vmap(function, in_axes, out_axes)

  def call(*args: Any) -> Any:
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
    if num_members == 1:
      rows = trees.map_axes(
        lambda axis, leaf: jnp.squeeze(leaf, axis), axes, args
      )
      return trees.map_axes(
        lambda axis, leaf: jnp.expand_dims(leaf, axis),
        out_axes,
        function(*rows),
      )
    rows = trees.map_axes(
      lambda axis, leaf: jnp.moveaxis(leaf, axis, 0), axes, args
    )
    results = jax.lax.map(lambda row: function(*row), rows)
    return trees.map_axes(
      lambda axis, leaf: jnp.moveaxis(leaf, 0, axis), out_axes, results
    )

  return call
