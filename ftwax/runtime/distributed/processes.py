"""The frame around the work of every node, and calls of other nodes.

A node that `runner.run_distributed` started ends its process by itself, with
an exit status for the supervisor. A node that Launchpad started, as a
thread or as a process, returns or raises.
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

# Set in the environment of nodes that `run_distributed` starts: its process id.
RUNNER_VARIABLE = 'FTWAX_RUNNER'

# Likewise the file that a node touches as a sign of life.
HEART_VARIABLE = 'FTWAX_HEART'

# The address at which this host takes connections of learners of other hosts.
HOST_VARIABLE = 'FTWAX_HOST'

# Exit status of a node that would fail in the same way if it was restarted.
FATAL = 70

_ACTOR_NICENESS = 5
_PARENT_POLL_S = 1.0
_RETRY_S = 0.2


def is_process() -> bool:
  """Whether this node has a process of its own that `run_distributed` made."""
  return RUNNER_VARIABLE in os.environ


class UnreachableError(ConnectionError):
  """A node that did not answer in time."""


class FatalError(RuntimeError):
  """A restart would not cure this."""


@contextlib.contextmanager
def node(
  name: str, save: Callable[[], object] = lambda: None
) -> Iterator[threading.Event]:
  """Surrounds the work of a node.

  A context manager.

  Args:
    name: of the node.
    save: saves what can be saved, in a thread, where the work does not end in
      time after a signal.

  Yields:
    An event that is set when the node is to end.
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
  """Returns a client of the replay server, once that answers.

  Raises:
    UnreachableError: it did not answer in time.
  """
  import reverb

  client = reverb.Client(address)
  try:
    client.server_info(timeout=math.ceil(timeout_s))
  except (reverb.ReverbError, RuntimeError) as error:
    raise UnreachableError(
      f'replay ({address}) must answer within {timeout_s:g} s, and did not'
      f' ({error}); see what its output says, or raise replay_start_s if it has'
      ' much to restore.'
    ) from error
  return client


def keep_to_cpu(number: int) -> None:
  """Keeps this process, if it is a node's alone, to one of its CPUs.

  Args:
    number: of the CPU, modulo the number of those that it may use.
  """
  if not is_process():
    return
  cpus = sorted(os.sched_getaffinity(0))
  for thread in os.listdir('/proc/self/task'):
    with contextlib.suppress(ProcessLookupError):
      os.sched_setaffinity(int(thread), {cpus[number % len(cpus)]})


def yield_to_others() -> None:
  """Lowers the priority of this process, if it is a node's alone.

  Actors are many and never done: a learner, and an actor that is just started,
  come before them.
  """
  if is_process():
    os.nice(_ACTOR_NICENESS)


def _follow(runner: int, stop: threading.Event) -> None:
  """Gives signs of life; ends this process some time after the runner."""
  heart = pathlib.Path(os.environ[HEART_VARIABLE])
  while os.getppid() == runner:
    with contextlib.suppress(OSError):
      heart.touch()
    time.sleep(_PARENT_POLL_S)
  stop.set()
  time.sleep(30.0)  # A learner saves meanwhile.
  os._exit(1)


class Remote:
  """Calls a node that may be away for a while, since it is restarted.

  Attributes:
    caller: name of the calls made here, which no other has.
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
      client: whose calls fail when they take too long.
      name: of the node, for errors.
      patience_s: seconds after which a call gives up.
      stop: ends the waiting, too.
    """
    self._client = client
    self._name = name
    self._patience_s = patience_s
    self._stop = stop or threading.Event()
    self.caller = uuid.uuid4().hex
    self._num_calls = 0

  def make_number(self) -> tuple[str, int]:
    """Returns what marks a call, so that `Replies` knows it if it is repeated.

    Returns:
      This caller's name, which no other has, and the number of the call.
    """
    self._num_calls += 1
    return self.caller, self._num_calls

  def call(self, method: str, *args: Any) -> Any:
    """Calls `method` until it answers; it may be carried out twice.

    What must not be carried out twice takes a number; see `Replies`.

    Raises:
      UnreachableError: it did not answer in time.
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
            f' and did not ({error}); see what its output says.'
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
  """Carries out a call that comes twice only once.

  A call that is late is made again, though only its reply may have been lost.
  """

  def __init__(self) -> None:
    """Knows of no call yet."""
    self._last: dict[str, tuple[int, Any]] = {}
    self._lock = threading.Lock()

  def answer(self, call: Sequence[Any], make: Callable[[], Any]) -> Any:
    """Returns the result of `make`, or the reply that the call got before.

    Args:
      call: what `Remote.make_number` returned.
      make: carries the call out; not called if it was before.
    """
    caller, number = call
    with self._lock:
      last, reply = self._last.get(caller, (0, None))
      if number > last:
        reply = make()
        self._last[caller] = number, reply
      return reply


def _is_raised_by_server(error: Exception) -> bool:
  """Whether the method itself raised, rather than the way there and back."""
  return 'Python exception was raised' in str(error)
