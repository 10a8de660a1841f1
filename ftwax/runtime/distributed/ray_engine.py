"""Nodes as actors of Ray, on this machine or on the hosts of a cluster.

On this machine the cluster is made for the run and ends with it; it listens on
the loopback interface alone. Every port of Ray asks for a token, which is in a
file that only the user can read.
"""

import atexit
import collections
import contextlib
import functools
import os
import pathlib
import platform
import secrets
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

import cloudpickle
from absl import logging

from ftwax import extras
from ftwax.records import files
from ftwax.runtime import signals
from ftwax.runtime.distributed import engine, leftovers
from ftwax.runtime.distributed import settings as settings_lib

# Ray gives up if its processes take 30 s to start, as on a busy machine.
_NUM_ATTEMPTS = 5

_OBJECT_STORE_BYTES = 512 * 2**20
_PLACEMENT_S = 60.0
_CONNECTION_S = 10.0
_ACTOR_NICENESS = 5
_TOKEN, _TOKEN_FILE, _MODE = (
  'RAY_AUTH_TOKEN',
  'RAY_AUTH_TOKEN_PATH',
  'RAY_AUTH_MODE',
)


class RayEngine:
  """Runs each node in an actor of Ray."""

  def __init__(self, settings: settings_lib.Settings, directory: pathlib.Path):
    """Starts a cluster on this machine, or joins one.

    Args:
      settings: address of the cluster, and resources of nodes.
      directory: directory of the run, which gets the output of the nodes on
        this machine.

    Raises:
      ConnectionError: if the cluster cannot be joined.
      ImportError: if Ray is not installed.
    """
    self._settings = settings
    self._output = str((directory / 'output').absolute())
    self._stack = contextlib.ExitStack()
    self._handles: dict[str, Any] = {}
    self._group: Any = None
    with contextlib.ExitStack() as stack:
      self._ray = _start(stack, settings)
      self._stack = stack.pop_all()

  def start(self, nodes: Mapping[str, Callable[[], Any]]) -> None:
    """Starts the nodes.

    Raises:
      ConnectionError: if the cluster has died.
      ValueError: if it has no room for them, or a node cannot be pickled.
    """
    ray = self._ray
    payloads = {name: _pickle(name, make) for name, make in nodes.items()}
    resources = self._resources(list(nodes))
    bundles = [resources[name] for name in nodes]
    try:
      self._group = ray.util.placement_group(bundles, strategy='PACK')
      has_room = self._group.wait(_PLACEMENT_S)
    except Exception as error:  # Ray has died since, which has no own error.
      raise _not_joined(self._settings.cluster, error) from error
    if not has_room:
      raise ValueError(
        f'the cluster must have room for {_add(resources.values())}, and has'
        f' {_room(ray)} free; add hosts, or choose fewer nodes or --resources.'
      )
    is_local = self._settings.cluster == settings_lib.LOCAL
    node = ray.remote(concurrency_groups={'health': 1})(_Node)
    for index, (name, payload) in enumerate(payloads.items()):
      own = dict(resources[name])
      strategy = (
        ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
          self._group, placement_group_bundle_index=index
        )
      )
      self._handles[name] = node.options(
        name=None,
        num_cpus=own.pop('CPU', 0),
        num_gpus=own.pop('GPU', 0),
        memory=own.pop('memory', None),
        resources=own,
        max_restarts=-1,
        max_task_retries=0,
        scheduling_strategy=strategy,
      ).remote(
        payload,
        name,
        self._output,
        None if name.startswith('learner') else {'JAX_PLATFORMS': 'cpu'},
        is_local and name.startswith('actor'),
      )

  def call(
    self, name: str, method: str, *args: Any, num_returns: int = 1
  ) -> list[engine.Reference]:
    """Calls a method of a node without waiting."""
    references = (
      self._handles[name]
      .call.options(num_returns=num_returns)
      .remote(method, *args)
    )
    return list(references) if num_returns > 1 else [references]

  def ping(self, name: str) -> engine.Reference:
    """Asks for the seconds since the node's present step began, or 0."""
    ping = self._handles[name].ping.options(concurrency_group='health')
    return ping.remote()

  def wait(
    self, references: Sequence[engine.Reference], timeout_s: float
  ) -> list[engine.Reference]:
    """Waits until any reference is ready; returns those that are."""
    if not references:
      threading.Event().wait(timeout_s)
      return []
    ready, _ = self._ray.wait(
      list(references), num_returns=1, timeout=timeout_s, fetch_local=False
    )
    if ready:  # All that are.
      ready, _ = self._ray.wait(
        list(references),
        num_returns=len(references),
        timeout=0,
        fetch_local=False,
      )
    return ready

  def get(
    self, reference: engine.Reference, timeout_s: float | None = None
  ) -> Any:
    """Waits for a result and returns it; see `engine.Engine`."""
    errors = self._ray.exceptions
    try:
      return self._ray.get(reference, timeout=timeout_s)
    except errors.GetTimeoutError as error:
      raise TimeoutError(f'no answer within {timeout_s:g} s') from error
    except errors.RayTaskError as error:
      cause = error.cause
      if isinstance(cause, engine.NodeLostError | engine.NodeFailedError):
        raise cause from None
      raise engine.NodeLostError(files.first_line(error)) from error
    except errors.RayError as error:
      if 'creation task' in str(error):  # No restart would help.
        raise engine.NodeFailedError(str(error).splitlines()[-1]) from error
      raise engine.NodeLostError(files.first_line(error)) from error

  def replace(self, name: str) -> None:
    """Kills a node, which Ray starts again."""
    self._ray.kill(self._handles[name], no_restart=False)

  def close(self) -> None:
    """Ends all nodes, and the cluster if it was made for the run."""
    self._handles.clear()
    self._stack.close()

  def _resources(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Returns what each node takes of the cluster."""
    settings = self._settings
    num_gpus = self._ray.cluster_resources().get('GPU', 0.0)
    wanted = {}
    for name in names:
      label = name.partition('/')[0]
      default = {'CPU': 1.0}
      if label == 'learner' and num_gpus:
        share = num_gpus / settings.num_learners
        # Of several GPUs a learner takes whole ones alone.
        default['GPU'] = min(
          settings.num_devices, share if share < 1 else share // 1
        )
      wanted[name] = {**default, **settings.resources.get(label, {})}
    return wanted


class _Node:
  """The process of a node: makes it, calls it, and answers pings meanwhile."""

  def __init__(
    self,
    payload: bytes,
    name: str,
    output: str,
    variables: Mapping[str, str] | None,
    is_pinned: bool,
  ):
    """Prepares the process, before anything imports JAX.

    Args:
      payload: pickled versions and function that makes the node.
      name: name of the node.
      output: folder for its output, if this machine has it.
      variables: variables of the environment.
      is_pinned: whether it keeps to one CPU, by its index, and yields to
        others.
    """
    if os.path.isdir(output):
      path = os.path.join(output, f'{name.replace("/", "-")}.txt')
      with files.opened(pathlib.Path(path), 'ab') as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.environ.update(variables or {})
    if is_pinned:
      cpus = sorted(os.sched_getaffinity(0))
      # Threads that are made later inherit it.
      os.sched_setaffinity(0, {cpus[int(name.partition('/')[2]) % len(cpus)]})
      os.nice(_ACTOR_NICENESS)
    self._name = name
    self._payload = payload
    self._node: Any = None

  def call(self, method: str, *args: Any) -> Any:
    """Calls a method of the node, which the first call makes."""
    try:
      if self._node is None:
        self._node = _unpickle(self._payload)()
      return getattr(self._node, method)(*args)
    except engine.NodeLostError:
      raise
    except BaseException as error:
      raise engine.NodeFailedError(
        f'{self._name} failed: {type(error).__name__}: {error}'
      ) from error

  def ping(self) -> float:
    """Returns the seconds since the node's present step began, or 0."""
    return float(getattr(self._node, 'busy_s', 0.0))


def _start(stack: contextlib.ExitStack, settings: settings_lib.Settings) -> Any:
  """Starts or joins a cluster; `stack` leaves it. Returns the module `ray`."""
  os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
  # Of a command under `uv run` Ray would copy the folder, and start each node
  # by another `uv run`, which takes minutes.
  os.environ.setdefault('RAY_ENABLE_UV_RUN_RUNTIME_ENV', '0')
  is_local = settings.cluster == settings_lib.LOCAL
  if 'ray' in sys.modules and os.environ.get(_MODE) != 'token':
    raise ConnectionError(
      f'{_MODE} must be set to token before Ray is imported, and Ray has been'
      ' imported without; set it in the environment of the command.'
    )
  if is_local:
    os.environ.update(
      {
        _MODE: 'token',
        _TOKEN_FILE: _make_token(),
        'RAY_worker_niceness': '0',
        # Otherwise Ray listens on all interfaces even if it is alone.
        'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER': '0',
      }
    )
    os.environ.pop(_TOKEN, None)
  else:
    os.environ.setdefault(_MODE, 'token')
  with extras.required('ray', 'distributed'):
    import ray
    import ray.job_config
    import ray.util.scheduling_strategies
  options: dict[str, Any] = {
    'job_config': _job_config(ray),
    'log_to_driver': False,
    'logging_level': 'warning',
    'configure_logging': False,
  }
  if is_local:
    folder = stack.enter_context(leftovers.folder())
    token = os.path.dirname(os.environ[_TOKEN_FILE])
    stack.enter_context(leftovers.ended(folder, token))
    options |= {
      'address': 'local',
      'num_cpus': settings.num_actors + settings.num_learners + 1,
      'include_dashboard': False,
      'object_store_memory': _OBJECT_STORE_BYTES,
      # Ray lets everybody write into its folder.
      '_temp_dir': os.path.join(folder, 'ray'),
    }
  else:
    options['address'] = settings.cluster
    _check_address(settings.cluster)
  stack.callback(ray.shutdown)
  with _same_signals(), warnings.catch_warnings():
    # It forks to start its processes, which JAX warns of; they are replaced by
    # other programs at once.
    warnings.filterwarnings('ignore', 'os.fork', RuntimeWarning)
    if is_local:
      with leftovers.one_at_a_time('Ray'), leftovers.marking(folder):
        _connect(ray, options)
    else:
      _connect(ray, options)
  return ray


def _job_config(ray: Any) -> Any:
  """Returns a config with which nodes import nothing from where Ray starts."""

  class JobConfig(ray.job_config.JobConfig):
    """Does not name the current directory to nodes."""

    def _runtime_env_has_working_dir(self) -> bool:
      return True

  return JobConfig()


def _connect(ray: Any, options: dict[str, Any]) -> None:
  """Connects to Ray; repeats a start of its processes that took too long.

  Raises:
    ConnectionError: if that fails.
  """
  for attempt in range(_NUM_ATTEMPTS):
    try:
      ray.init(**options)
      return
    except Exception as error:
      ray.shutdown()
      if '_temp_dir' in options:  # Ray leaves processes if its start fails.
        leftovers.kill(os.path.dirname(options['_temp_dir']))
      is_slow = options['address'] == 'local' and 'timed out' in str(error)
      if not is_slow or attempt == _NUM_ATTEMPTS - 1:
        raise _not_joined(options['address'], error) from error
      logging.warning('Ray took too long to start; it is started again.')


def _check_address(cluster: str) -> None:
  """Checks that something listens, for which Ray would wait for minutes."""
  host, _, port = cluster.removeprefix('ray://').rpartition(':')
  if port.isdigit():
    try:
      socket.create_connection((host, int(port)), _CONNECTION_S).close()
    except OSError as error:
      raise _not_joined(cluster, error) from error


def _not_joined(cluster: str, error: Exception) -> ConnectionError:
  if cluster == settings_lib.LOCAL:
    return ConnectionError(
      'Ray must start its processes, and did not'
      f' ({files.first_line(error)}); if they timed out, try again when less'
      ' runs here.'
    )
  return ConnectionError(
    f'cluster ({cluster!r}) must be a Ray cluster that takes the token of'
    f' {_TOKEN_FILE} or {_TOKEN}, and cannot be joined'
    f' ({files.first_line(error)}); see docs/clusters.md.'
  )


@contextlib.contextmanager
def _same_signals() -> Any:
  """Keeps the handlers of signals, which Ray replaces.

  The processes that Ray starts never get those that a cluster sends to all
  processes of a job: they inherit that they are blocked. The coordinator
  answers them.
  """
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  numbers = (signal.SIGINT, signal.SIGTERM)
  before = {number: signal.getsignal(number) for number in numbers}
  notices = {getattr(signal, n) for n in signals.NOTICES if hasattr(signal, n)}
  mask = signal.pthread_sigmask(signal.SIG_BLOCK, notices)
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in before.items():
      signal.signal(number, handler)


@functools.cache  # Ray remembers the first token that a process has used.
def _make_token() -> str:
  """Writes a token that only this user can read; returns the file's path."""
  stack = contextlib.ExitStack()
  folder = stack.enter_context(leftovers.folder())
  atexit.register(stack.close)
  path = os.path.join(folder, 'token')
  file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
  with os.fdopen(file, 'w') as opened:
    opened.write(secrets.token_hex(32))
  return path


def _pickle(name: str, make: Callable[[], Any]) -> bytes:
  try:
    return cloudpickle.dumps((_versions(), sys.path, cloudpickle.dumps(make)))
  except Exception as error:
    raise ValueError(
      f'experiment must be pickled to run {name} in another process, and cannot'
      f' be ({type(error).__name__}: {error}); replace that part of it.'
    ) from error


def _unpickle(payload: bytes) -> Callable[[], Any]:
  versions, paths, make = cloudpickle.loads(payload)
  if versions != _versions():
    raise ValueError(
      f'{socket.gethostname()} must have the versions of the coordinator,'
      f' {versions}, and has {_versions()}; install the same.'
    )
  # A node finds the modules that the process of the command finds.
  sys.path.extend(path for path in paths if path not in sys.path)
  return cloudpickle.loads(make)


def _versions() -> dict[str, str]:
  return {
    'python': platform.python_version(),
    **{name: metadata.version(name) for name in ('ftwax', 'jax', 'numpy')},
  }


def _add(all_resources: Iterable[Mapping[str, float]]) -> dict[str, float]:
  total: collections.Counter[str] = collections.Counter()
  for resources in all_resources:
    total.update(resources)
  return dict(total)


def _room(ray: Any) -> dict[str, float]:
  free = ray.available_resources()
  return {
    name: amount
    for name, amount in free.items()
    if not name.startswith('node:')
  }
