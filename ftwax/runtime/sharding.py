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
from ftwax.networks import recurrence

# Name of the device axis.
_AXIS = 'device'

# In place of an axis: each device has the whole array.
WHOLE = batches.NO_AXIS


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
  """Returns the sharding of arrays that are split along an axis, or `WHOLE`."""
  if axis == WHOLE:
    return replicated(mesh)
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
    return jax.lax.with_sharding_constraint(tree, spread(mesh, axis))

  def init(key: types.Key) -> types.TrainingState:
    return jax.lax.with_sharding_constraint(core.init(key), whole)

  def update(
    state: types.TrainingState, batch: types.LearnerBatch
  ) -> tuple[types.TrainingState, types.Metrics]:
    batch = jax.tree.map(place, batches.batch_axes(batch), batch)
    with recurrence.batch_first(mesh.size > 1):
      results = core.update(state, batch)
    return jax.lax.with_sharding_constraint(results, whole)

  return types.LearnerCore(init, update)


def apart(
  mesh: jax.sharding.Mesh,
  function: Callable[..., Any],
  in_axes: Any,
  out_axes: Any,
) -> Callable[..., Any]:
  """Maps a function of a device's share over the devices.

  Unlike what XLA divides, it communicates with no other device, and its loops
  end on each device by themselves.

  Args:
    mesh: the devices.
    function: a function of shares of its arguments.
    in_axes: the axis along which each argument is split, or `WHOLE`; a tuple
      with a prefix tree for each.
    out_axes: the axes along which shares of results are joined, likewise.

  Returns:
    The function of whole arrays.
  """

  def specs(axes: Any) -> Any:
    return jax.tree.map(lambda axis: spread(mesh, axis).spec, axes)

  return jax.shard_map(
    function,
    mesh=mesh,
    in_specs=specs(in_axes),
    out_specs=specs(out_axes),
    check_vma=False,
  )


def fold_in_device(keys: types.Key) -> types.Key:
  """Returns other keys [..., 2] on each device; for functions given to `apart`.

  Args:
    keys: uint32 [..., 2], the same on all devices.
  """
  index = jax.lax.axis_index(_AXIS)
  fold_in = jax.random.fold_in
  for _ in keys.shape[1:]:
    fold_in = jax.vmap(fold_in, (0, None))
  return fold_in(keys, index)


def takes_turns() -> bool:
  """Returns whether members of a device are updated one after another: on CPUs.

  There, updating members at once takes up to half as long again, with JAX 0.12
  a tenth in the main experiment: `vmap` turns matrix products and convolutions
  into batches of small ones.
  """
  return jax.default_backend() == 'cpu'


def over_members(
  function: Callable[..., Any],
  num_members: int,
  in_axes: Any = 0,
  out_axes: Any = 0,
  in_turn: bool = False,
  mesh: jax.sharding.Mesh | None = None,
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
    mesh: devices that share the members, each without the others. With one
      member, or without a mesh, XLA divides the work.

  Returns:
    The function of all members.
  """
  if mesh is not None and mesh.size > 1 and num_members > 1:
    share = over_members(
      function, num_members // mesh.size, in_axes, out_axes, in_turn
    )
    return apart(mesh, share, in_axes, out_axes)
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
