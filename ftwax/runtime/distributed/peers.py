"""Learners of one member in separate processes, which update as one.

Each process holds all parameters and a share of every batch. Updates are
compiled for the devices of all processes, so gradients are summed over
processes just as over devices (see `sharding`): by gloo on CPUs, by NCCL on
GPUs. A process in such a sum blocks until all others join it. Before each
update, the learners therefore agree on whether all have a batch and whether the
run ends.
"""

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import batches
from ftwax.replay import samples
from ftwax.runtime import sharding
from ftwax.runtime.distributed import patient_iterator, processes
from ftwax.runtime.distributed import settings as settings_lib

_LOOPBACK = '127.0.0.1'

# Columns of the row that a learner sends to the others before an update.
_READY, _DONE, _STOPS, _REPLAY_IS_LIVE, _PREDICTION_IS_LIVE = range(5)


def join(
  address: Sequence[str], index: int, settings: settings_lib.Settings
) -> None:
  """Connects this process to those of the other learners.

  JAX must not have touched a device in this process.

  Args:
    address: `host:port` at which the first learner coordinates them.
    index: index of this learner.
    settings: settings of the run.

  Raises:
    FatalError: if learners are threads of one process.
  """
  if jax.distributed.is_initialized():
    raise processes.FatalError(
      f'num_learners ({settings.num_learners}) must be 1 if nodes are threads'
      ' of one process; choose 1, or launch processes.'
    )
  (coordinator,) = address
  # JAX installs a SIGTERM handler here; put the previous one back.
  handler = signal.getsignal(signal.SIGTERM)
  jax.distributed.initialize(
    coordinator,
    settings.num_learners,
    index,
    # Under Slurm, for example, JAX would read the processes from there.
    cluster_detection_method='deactivate',
    initialization_timeout=int(settings.stall_timeout_s),
    coordinator_bind_address=coordinator,
  )
  if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGTERM, handler)
  _register_gloo(os.environ.get(processes.HOST_VARIABLE, _LOOPBACK))


def _register_gloo(host: str) -> None:
  """Makes gloo listen on one address instead of that of the host name."""
  # No public option sets this address.
  from jax._src import distributed, xla_bridge
  from jax._src.lib import _jax  # type: ignore[attr-defined]
  from jax.extend import backend

  def make_client() -> Any:
    return xla_bridge.make_cpu_client(
      _jax.make_gloo_tcp_collectives(
        distributed_client=distributed.global_state.client, hostname=host
      )
    )

  backend.register_backend_factory('cpu', make_client, fail_quietly=False)


def leave() -> None:
  """Disconnects once all learners do; arrays can still be read."""
  jax.distributed.shutdown()


def local(tree: types.ArrayTree) -> types.ArrayTree:
  """Returns replicated arrays as arrays on this process's first device."""
  return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


class Peers:
  """Collective operations; each blocks until all learners have called it."""

  def __init__(self, mesh: jax.sharding.Mesh):
    """Uses the devices of all learners.

    Args:
      mesh: devices in the order of the processes, equally many of each.
    """
    self._mesh = mesh
    self._devices = [
      device
      for device in mesh.devices.flat
      if device.process_index == jax.process_index()
    ]
    self._local_mesh = sharding.make_mesh(self._devices)
    whole = sharding.replicated(mesh)
    self._copy = jax.jit(lambda tree: tree, out_shardings=whole)
    self._take_first = jax.jit(
      lambda tree: jax.tree.map(lambda leaf: leaf[0], tree),
      out_shardings=whole,
    )

  def gather(self, numbers: Sequence[int]) -> types.NumpyArray:
    """Gathers the numbers of all learners, one row for each device."""
    rows = self._copy(self._stack(np.asarray(numbers, np.int32)))
    return np.asarray(rows)

  def replicate(self, tree: types.ArrayTree) -> types.ArrayTree:
    """Returns the first learner's arrays, replicated over all devices."""
    return self._take_first(jax.tree.map(self._stack, tree))

  def spread(
    self, batch: types.LearnerBatch, is_live: Sequence[bool]
  ) -> types.LearnerBatch:
    """Returns the complete batch, assembled from the shares of all learners.

    Args:
      batch: this process's share.
      is_live: whether the shares of all learners are live, for replay and for
        reward prediction.
    """
    num_shares = self._mesh.size // len(self._devices)

    def join_shares(axis: int, leaf: types.Array) -> jax.Array:
      put = jax.device_put(leaf, sharding.spread(self._local_mesh, axis))
      shape = list(leaf.shape)
      shape[axis] *= num_shares
      return jax.make_array_from_single_device_arrays(
        tuple(shape),
        sharding.spread(self._mesh, axis),
        [shard.data for shard in put.addressable_shards],
      )

    def join_trees(axis: int, tree: types.ArrayTree) -> types.ArrayTree:
      if axis == batches.NO_AXIS:
        return tree
      return jax.tree.map(functools.partial(join_shares, axis), tree)

    # `is_live` has no batch axis to be sharded: its values must agree.
    replay, prediction = batch.replay, batch.reward_prediction
    batch = types.LearnerBatch(
      batch.trajectory,
      replay and replay._replace(is_live=np.bool_(is_live[0])),
      prediction and prediction._replace(is_live=np.bool_(is_live[1])),
    )
    joined: types.LearnerBatch = jax.tree.map(
      join_trees, batches.batch_axes(batch), batch
    )
    return joined

  def _stack(self, leaf: Any) -> jax.Array:
    """Stacks the leaves of all learners, one for each device, on a new axis."""
    row = np.asarray(leaf)[None]
    return jax.make_array_from_single_device_arrays(
      (self._mesh.size, *row.shape[1:]),
      sharding.spread(self._mesh),
      [jax.device_put(row, device) for device in self._devices],
    )


def make_mesh(num_devices: int) -> jax.sharding.Mesh:
  """Returns a mesh of the first devices of each process.

  Raises:
    ValueError: if this process has fewer devices.
  """
  available = jax.local_devices()
  if num_devices > len(available):
    raise ValueError(
      f"num_devices ({num_devices}) must be at most the number of the learner's"
      f' devices, {len(available)} ({available[0].platform}); choose'
      f' {len(available)}.'
    )
  devices = jax.devices()
  return sharding.make_mesh(
    [
      device
      for index in range(jax.process_count())
      for device in [d for d in devices if d.process_index == index][
        :num_devices
      ]
    ]
  )


class SharedBatches(Iterator[samples.ReplaySample]):
  """Iterates over batches of which each learner provides a share."""

  def __init__(
    self,
    peers: Peers,
    dataset: Iterator[samples.ReplaySample],
    timeout_s: float,
    stop: threading.Event,
    on_idle: Callable[[], bool],
  ):
    """Wraps a dataset.

    Args:
      peers: collective operations of the learners.
      dataset: yields this learner's shares; see `PatientIterator`.
      timeout_s: see `PatientIterator`.
      stop: event that ends this learner and thereby all learners.
      on_idle: called while a share is missing; returns whether no further
        shares will come.
    """
    self._peers = peers
    self._stop = stop
    self._on_idle = on_idle
    self._is_live = [True, True]
    self.shares = patient_iterator.PatientIterator(
      dataset, timeout_s, self._wait
    )

  def __next__(self) -> samples.ReplaySample:
    """Returns the next batch.

    Raises:
      Ended: if all learners end.
    """
    sample = next(self.shares)
    is_done = False
    while not self._agree(sample, is_done):
      is_done = self._on_idle()
    return sample._replace(
      batch=self._peers.spread(sample.batch, self._is_live)
    )

  def _wait(self) -> None:
    """Tells the others that this learner's share has not arrived."""
    self._agree(None, self._on_idle())

  def _agree(self, sample: samples.ReplaySample | None, is_done: bool) -> bool:
    """Returns whether all learners have a share."""
    row = [sample is not None, is_done, self._stop.is_set(), True, True]
    if sample is not None:
      replay, prediction = sample.batch.replay, sample.batch.reward_prediction
      row[_REPLAY_IS_LIVE] = replay is None or bool(replay.is_live)
      row[_PREDICTION_IS_LIVE] = prediction is None or bool(prediction.is_live)
    rows = self._peers.gather(row).astype(bool)
    is_ready = bool(rows[:, _READY].all())
    # All see the same rows, so all end here or none does. Whoever went on alone
    # would wait forever in the next sum.
    if rows[:, _STOPS].any() or (rows[:, _DONE].any() and not is_ready):
      raise patient_iterator.Ended
    self._is_live = rows[:, _REPLAY_IS_LIVE:].all(0).tolist()
    return is_ready
