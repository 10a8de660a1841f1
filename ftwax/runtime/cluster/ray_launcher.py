"""Starts the nodes of a run on the hosts of a Ray cluster.

Ray places nodes according to their resources, in a placement group; if a host
is lost, its bundles move to another host. A Ray actor on each host starts the
processes. A thread here tracks the bundles, starts waiting nodes and collects
reports of processes.
"""

import json
import os
import pathlib
import secrets
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import ray
from absl import logging
from ray import exceptions
from ray.util import scheduling_strategies

from ftwax.runtime.cluster import bundles, host, ray_hosts, remote_process
from ftwax.runtime.distributed import node_commands
from ftwax.runtime.distributed import settings as settings_lib

_PLACE_S = 60.0  # Until all nodes of a new run are placed.
_STOP_S = 20.0
_POLL_S = 0.2
_HOST_POLL_S = 0.3
_REFRESH_S = 1.0

# Range of ports, below the ephemeral ports of common systems, and the number of
# ports that hosts are asked about at a time.
_PORTS = (20_000, 32_000)
_NUM_CANDIDATES = 64


class RayLauncher:
  """Starts the processes of nodes on a cluster. A context manager."""

  def __init__(
    self,
    settings: settings_lib.Settings,
    expose: bool,
    directory: pathlib.Path,
  ):
    """Prepares a launcher.

    Args:
      settings: provides the address of the cluster and the resources of nodes.
      expose: whether hosts may connect without authentication.
      directory: run directory on this host.

    Raises:
      ValueError: if hosts cannot authenticate each other and `expose` is False.
    """
    self._settings = settings
    self._directory = directory
    self._hosts = ray_hosts.Hosts(settings.cluster, expose, directory)
    self._lock = threading.RLock()
    self._nodes: dict[str, remote_process.RemoteProcess] = {}
    self._ports: dict[int, str] = {}  # Names of the nodes that listen on them.
    self._bundles = bundles.Bundles([], {})
    self._group: Any = None
    self._places: dict[int, str] = {}  # Ray's host ID of each bundle.
    self._gpu_holders: dict[str, Any] = {}  # By node name.
    self._refreshed_at = 0.0
    self._error: Exception | None = None
    self._stopped = threading.Event()
    self._have_learned: set[str] = set()
    self._thread = threading.Thread(
      target=self._watch, name='watch_hosts', daemon=True
    )

  def __enter__(self) -> 'RayLauncher':
    """Connects to the cluster.

    Raises:
      ClusterError: if there is no cluster.
    """
    self._hosts.__enter__()
    return self

  def __exit__(self, *exception: Any) -> None:
    self._stopped.set()
    if self._thread.is_alive():
      self._thread.join(_STOP_S)
    try:
      self._write_traffic()
      if self._group is not None:
        ray.util.remove_placement_group(self._group)
    except (OSError, exceptions.RayError) as error:
      logging.warning('Ray: %s', error)
    finally:  # Else processes would stay on hosts.
      self._hosts.__exit__(*exception)

  def _write_traffic(self) -> None:
    """Writes a file with the bytes that each host sent and received."""
    text = json.dumps(self._hosts.traffic(), indent=2)
    (self._directory / 'output' / 'traffic.json').write_text(text, 'utf-8')

  def pick_port(self) -> int:
    """Returns a port that is free on all hosts of the cluster.

    Raises:
      ClusterError: if none is found.
    """
    low, high = _PORTS
    drawn = {
      low + secrets.randbelow(high - low) for _ in range(_NUM_CANDIDATES)
    }
    free = self._hosts.free_ports(drawn - set(self._ports))
    if not free:
      raise ray_hosts.ClusterError(
        f'a port from {low} to {high} must be free on all hosts of the cluster,'
        ' and none of those tried was; check what listens there.'
      )
    self._ports[free[0]] = ''
    return free[0]

  def place(self, commands: Sequence[node_commands.Command]) -> None:
    """Reserves resources for the nodes of a run.

    Args:
      commands: commands of all nodes.

    Raises:
      ClusterError: if the cluster lacks resources for them.
    """
    self._ports = {
      port: command.name for command in commands for port in command.ports
    }
    self._bundles = bundles.make(
      [command.name for command in commands], self._settings.resources
    )
    self._check_size()
    self._group = ray.util.placement_group(
      self._bundles.resources, strategy='PACK'
    )
    if not self._group.wait(_PLACE_S):
      raise self._too_small(
        f'{ray.available_resources()} was all that was free for {_PLACE_S:g} s'
      )
    self._refresh()
    self._thread.start()

  def _check_size(self) -> None:
    """Raises a ClusterError if the cluster lacks a resource."""
    there = ray.cluster_resources()
    for name in {name for own in self._bundles.resources for name in own}:
      wanted = sum(own.get(name, 0.0) for own in self._bundles.resources)
      if wanted > there.get(name, 0.0):
        raise self._too_small(f'it has {name} {there.get(name, 0.0):g} in all')

  def _too_small(self, reason: str) -> ray_hosts.ClusterError:
    return ray_hosts.ClusterError(
      f'the cluster must have room for {self._bundles.resources}, and'
      f' {reason}; add hosts, or choose fewer actors or other --resources.'
    )

  def start(
    self,
    command: node_commands.Command,
    heart: pathlib.Path,
    output: pathlib.Path,
  ) -> remote_process.RemoteProcess:
    """Starts a node as soon as it is placed; see `Launcher.start`."""
    output.touch()
    process = remote_process.RemoteProcess(
      command, heart, output, self._send, self._check
    )
    with self._lock:
      self._nodes[command.name] = process
    return process

  def _check(self) -> None:
    """Raises the error that ended the thread, if any."""
    if self._error is not None:
      raise self._error

  def _send(self, process: remote_process.RemoteProcess, signum: int) -> None:
    """Signals a process on its host."""
    with self._lock:
      handle = self._hosts.handles.get(process.node_id)
      if handle is not None:
        handle.actor.send.remote(process.start_name, signum)

  def _watch(self) -> None:
    while not self._stopped.is_set():
      try:
        if time.monotonic() - self._refreshed_at >= _REFRESH_S:
          self._refresh()
        with self._lock:
          self._lose_hosts()
          self._start_waiting()
          self._take_started()
          asked = self._ask_for_reports()
        if not asked:
          self._stopped.wait(_POLL_S)
          continue
        ready, _ = ray.wait(list(asked), timeout=_POLL_S)
        for reference in ready:
          self._take_reports(asked[reference])
      except exceptions.RayError as error:
        # For example a host was just lost; the next iteration will notice.
        logging.warning('Ray: %s', error)
        self._stopped.wait(_REFRESH_S)
      except Exception as error:
        self._error = error
        return

  def _refresh(self) -> None:
    """Updates the live hosts and the hosts of bundles."""
    self._hosts.refresh()
    table = ray.util.placement_group_table(self._group)
    self._places = {
      index: node_id
      for index, node_id in table['bundles_to_node_id'].items()
      if node_id in self._hosts.alive
    }
    self._refreshed_at = time.monotonic()

  def _lose_hosts(self) -> None:
    for handle in list(self._hosts.handles.values()):
      if handle.node_id not in self._hosts.alive:
        self._lose(handle, 'is lost')

  def _lose(self, handle: ray_hosts.HostHandle, reason: str) -> None:
    """Removes a host and marks its nodes as dead."""
    self._hosts.handles.pop(handle.node_id, None)
    self._lose_nodes(handle, reason)

  def _lose_nodes(self, handle: ray_hosts.HostHandle, reason: str) -> None:
    logging.warning('host %s %s.', handle.address, reason)
    for process in self._nodes.values():
      if process.node_id == handle.node_id and process.returncode is None:
        process.end(-signal.SIGKILL, f'Its host {handle.address} {reason}.\n')

  def _place_of(self, name: str) -> str | None:
    return self._places.get(self._bundles.of_node[name])

  def _start_waiting(self) -> None:
    """Starts placed nodes, once all hosts know the servers' locations."""
    waiting = []
    for name, process in self._nodes.items():
      if process.returncode is None and process.is_waiting:
        process.touch()
        if process.started is None and self._place_of(name) is not None:
          waiting.append(process)
    # Servers start first: their host may have to import first, and clients on
    # other hosts would time out in the meantime.
    servers = {name for name in self._ports.values() if name in self._nodes}
    if any(self._nodes[name].is_waiting for name in servers):
      waiting = [p for p in waiting if p.command.name in servers]
    names = [process.command.name for process in waiting]
    self._hosts.open({self._place_of(name) or '' for name in names})
    self._hosts.route(
      {port: self._place_of(name) for port, name in self._ports.items()}
    )
    for process in waiting:
      command = process.command
      handle = self._hosts.handles.get(self._place_of(command.name) or '')
      if handle is None:
        continue  # The host was just lost.
      if command.name.partition('/')[0] == 'learner':
        self._bring_directory(command.name, handle)
      process.node_id = handle.node_id
      process.started = handle.actor.start.remote(
        command.name,
        process.start_name,
        list(command.arguments),
        {**command.environment, **self._take_gpus(command.name)},
        _read_files(command.arguments),
      )

  def _take_gpus(self, name: str) -> dict[str, str]:
    """Returns the environment variable with the GPUs of a node's bundle.

    Ray assigns devices only to its own actors, so a holder actor reserves them.
    """
    index = self._bundles.of_node[name]
    takes_gpus = self._settings.resources.get(name.partition('/')[0], {})
    if not takes_gpus.get('GPU'):
      return {}
    if name in self._gpu_holders:
      ray.kill(self._gpu_holders[name])
    strategy = scheduling_strategies.PlacementGroupSchedulingStrategy(
      self._group, placement_group_bundle_index=index
    )
    holder: Any = ray.remote(host.GpuHolder)
    self._gpu_holders[name] = holder.options(
      num_cpus=0, num_gpus=takes_gpus['GPU'], scheduling_strategy=strategy
    ).remote()
    ids = ray.get(self._gpu_holders[name].ids.remote(), timeout=_PLACE_S)
    return {'CUDA_VISIBLE_DEVICES': ','.join(map(str, ids))}

  def _bring_directory(self, name: str, handle: ray_hosts.HostHandle) -> None:
    """Copies the run directory to a learner's host that does not share it.

    Raises:
      ClusterError: if the learner's checkpoints are on a host that is lost.
    """
    if handle.shares_directory:
      return
    if name in self._have_learned:
      raise ray_hosts.ClusterError(
        f'{self._directory} must be on storage shared by all hosts for a'
        f' learner to continue on another host, and {handle.address} does not'
        ' see it: the checkpoints are on the lost host. Restart that host and'
        ' resume, or choose a --run_dir on shared storage.'
      )
    self._have_learned.add(name)
    self._hosts.send_directory(handle)

  def _take_started(self) -> None:
    """Updates the processes whose start has finished."""
    starting = [
      process
      for process in self._nodes.values()
      if process.is_waiting
      and process.started is not None
      and process.returncode is None
    ]
    for process in starting:
      if not ray.wait([process.started], timeout=0)[0]:
        continue
      try:
        ray.get(process.started)
        process.is_waiting = False
      except exceptions.RayTaskError as error:
        process.end(1, f'It could not be started: {error.cause!r}\n')
      except exceptions.RayError as error:
        process.end(-signal.SIGKILL, f'It could not be started: {error}\n')

  def _running_at(
    self, handle: ray_hosts.HostHandle
  ) -> dict[str, remote_process.RemoteProcess]:
    """Returns the processes that run on a host, by start name."""
    return {
      process.start_name: process
      for process in self._nodes.values()
      if process.is_running and process.node_id == handle.node_id
    }

  def _ask_for_reports(self) -> dict[Any, ray_hosts.HostHandle]:
    """Requests reports from hosts; returns hosts by pending request."""
    handles = self._hosts.handles.values()
    for handle in handles:
      running = self._running_at(handle)
      if running and handle.reports is None:
        handle.reports = handle.actor.poll.remote(list(running), _HOST_POLL_S)
    return {
      handle.reports: handle for handle in handles if handle.reports is not None
    }

  def _take_reports(self, handle: ray_hosts.HostHandle) -> None:
    reference, handle.reports = handle.reports, None
    try:
      actor_name, reports = ray.get(reference)
    except exceptions.ActorUnavailableError:
      return  # It may return; the supervisor checks heartbeats.
    except exceptions.RayActorError:
      with self._lock:
        self._lose(handle, 'is lost')
      return
    with self._lock:
      if handle.actor_name not in ('', actor_name):
        # Ray has restarted the actor; its nodes ended with the previous one.
        self._lose_nodes(handle, 'has lost the process that started its nodes')
        self._hosts.describe(handle)
      handle.actor_name = actor_name
      running = self._running_at(handle)
      for start_name, report in reports.items():
        if start_name in running:
          process = running[start_name]
          # Fetch the files before the end is visible, since others then read
          # them.
          ends = report.returncode is not None
          if ends and _writes_directory(process.command.name):
            self._hosts.fetch_directory(handle)
          process.take(host.Report(*report))


def _writes_directory(name: str) -> bool:
  """Returns whether a node writes checkpoints or logs."""
  return name.partition('/')[0] in ('learner', 'counter', 'keeper')


def _read_files(arguments: Sequence[str]) -> dict[str, bytes]:
  """Returns the contents of files among the arguments, by path.

  Skips the interpreter.
  """
  return {
    argument: pathlib.Path(argument).read_bytes()
    for argument in arguments[1:]
    if os.path.isabs(argument) and os.path.isfile(argument)
  }
