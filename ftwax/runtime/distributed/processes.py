"""Runs the work of a node in its process, and calls other nodes.

A node started by `runner.run_experiment` exits its process itself, with an exit
status for the supervisor. A node started by Launchpad, as a thread or as a
process, returns or raises.
"""

import contextlib
import math
import os
import pathlib
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from launchpad.launch import worker_manager

from ftwax.runtime import signals

# Process ID of the runner, set in the environment of the nodes it starts.
RUNNER_VARIABLE = 'FTWAX_RUNNER'

# The file that a node touches as a heartbeat, set likewise.
HEART_VARIABLE = 'FTWAX_HEART'

# The address at which this host accepts connections from other learners.
HOST_VARIABLE = 'FTWAX_HOST'

# Exit status of a node that would fail in the same way after a restart.
FATAL = 70

_ACTOR_NICENESS = 5
_PARENT_POLL_S = 1.0
_RETRY_S = 0.2


def is_process() -> bool:
  """Returns whether this node runs in its own process, made by the runner."""
  return RUNNER_VARIABLE in os.environ


class UnreachableError(ConnectionError):
  """A node did not answer in time."""


class FatalError(RuntimeError):
  """An error that a restart would not fix."""


@contextlib.contextmanager
def node(
  name: str, save: Callable[[], object] = lambda: None
) -> Iterator[threading.Event]:
  """Runs the work of a node. A context manager.

  Args:
    name: name of the node.
    save: saves as much as possible, in a thread, if the work does not end in
      time after a signal.

  Yields:
    An event that is set when the node should end.
  """
  stop = worker_manager.stop_event()
  runner = os.environ.get(RUNNER_VARIABLE)
  if runner is None:
    yield stop
    return
  threading.Thread(
    target=_follow, args=(int(runner), stop), daemon=True
  ).start()
  status = 0
  try:
    with signals.answered_in_time(save, status=0):
      yield stop
  except FatalError as error:
    traceback.print_exc()
    # The supervisor shows the last line of output.
    print(f'{name} failed: {error}', file=sys.stderr)
    status = FATAL
  except BaseException:
    traceback.print_exc()
    status = 1
  # Threads of Reverb and gRPC may keep an interpreter from ending.
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(status)


def connect_to_replay(address: str, timeout_s: float) -> Any:
  """Returns a client of a replay server once the server answers.

  Raises:
    UnreachableError: if it does not answer in time.
  """
  import reverb

  client = reverb.Client(address)
  try:
    client.server_info(timeout=math.ceil(timeout_s))
  except (reverb.ReverbError, RuntimeError) as error:
    raise UnreachableError(
      f'replay ({address}) must answer within {timeout_s:g} s, and did not'
      f' ({error}); see its output, or raise replay_start_s if it has much to'
      ' restore.'
    ) from error
  return client


def keep_to_cpu(number: int) -> None:
  """Pins this process to one of its CPUs if it belongs to a single node.

  Args:
    number: index of the CPU, modulo the number of available ones.
  """
  if not is_process():
    return
  cpus = sorted(os.sched_getaffinity(0))
  # Affinity belongs to threads; later ones inherit it from their creator.
  for thread in os.listdir('/proc/self/task'):
    with contextlib.suppress(ProcessLookupError):
      os.sched_setaffinity(int(thread), {cpus[number % len(cpus)]})


def yield_to_others() -> None:
  """Lowers the priority of this process if it belongs to a single node.

  There are many actors and they always have work: a learner, or an actor that
  is just starting, takes precedence.
  """
  if is_process():
    os.nice(_ACTOR_NICENESS)


def _follow(runner: int, stop: threading.Event) -> None:
  """Sends heartbeats; exits this process some time after the runner died."""
  heart = pathlib.Path(os.environ[HEART_VARIABLE])
  while os.getppid() == runner:
    with contextlib.suppress(OSError):
      heart.touch()
    time.sleep(_PARENT_POLL_S)
  stop.set()
  time.sleep(30.0)  # A learner saves meanwhile.
  os._exit(1)


class Remote:
  """Calls a node that may be away temporarily, for example to restart.

  Attributes:
    caller: unique ID of this caller.
  """

  def __init__(
    self,
    client: Any,
    name: str,
    patience_s: float = 120.0,
    stop: threading.Event | None = None,
  ):
    """Wraps a courier client.

    Args:
      client: client whose calls fail after a timeout.
      name: name of the node in errors.
      patience_s: seconds after which `call` gives up.
      stop: event that also ends the waiting.
    """
    self._client = client
    self._name = name
    self._patience_s = patience_s
    self._stop = stop or threading.Event()
    self.caller = uuid.uuid4().hex
    self._num_calls = 0

  def make_number(self) -> tuple[str, int]:
    """Returns an ID of a call, by which `Replies` detects repetitions.

    Returns:
      The ID of this caller and the number of the call.
    """
    self._num_calls += 1
    return self.caller, self._num_calls

  def call(self, method: str, *args: Any) -> Any:
    """Calls `method` until it answers; the call may be executed twice.

    Methods that must not be executed twice take a number; see `Replies`.

    Raises:
      FatalError: if the method raises.
      UnreachableError: if it does not answer in time.
    """
    deadline = time.monotonic() + self._patience_s
    while True:
      try:
        return getattr(self._client, method)(*args)
      except Exception as error:
        if _is_raised_by_server(error):
          raise FatalError(f'{self._name}.{method} failed: {error}') from error
        if self._stop.is_set() or time.monotonic() > deadline:
          raise UnreachableError(
            f'{self._name} must answer {method} within {self._patience_s:g} s,'
            f' and did not ({error}); see its output.'
          ) from error
      time.sleep(_RETRY_S)

  def try_call(self, method: str, *args: Any) -> Any:
    """Calls `method` once; returns None if it does not answer."""
    try:
      return getattr(self._client, method)(*args)
    except Exception as error:
      if _is_raised_by_server(error):
        raise FatalError(f'{self._name}.{method} failed: {error}') from error
      return None


class Replies:
  """Executes repeated calls only once.

  A caller repeats a call that timed out, although perhaps only its reply was
  lost.
  """

  def __init__(self) -> None:
    """Starts without calls."""
    self._last: dict[str, tuple[int, Any]] = {}
    self._lock = threading.Lock()

  def answer(self, call: Sequence[Any], make: Callable[[], Any]) -> Any:
    """Returns the result of `make`, or the previous reply to the same call.

    Args:
      call: the ID returned by `Remote.make_number`.
      make: executes the call; skipped for a repeated call.
    """
    caller, number = call
    # Held while `make` runs: a repetition that arrives meanwhile waits for the
    # reply instead of running it a second time.
    with self._lock:
      last, reply = self._last.get(caller, (0, None))
      if number > last:
        reply = make()
        self._last[caller] = number, reply
      return reply


def _is_raised_by_server(error: Exception) -> bool:
  """Returns whether the method itself raised, not the connection."""
  return 'Python exception was raised' in str(error)
