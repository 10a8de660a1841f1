"""Starts nodes by forking a process that has already imported their modules.

Imports dominate the startup time of a node: TensorFlow alone takes seconds of
CPU time. A server imports the modules once. It has a single thread and has not
touched a device, so forking it is as safe as starting a new process.

Each node is forked twice. The intermediate parent exits, so the node becomes a
child of the runner, which can wait for it as for any child and which does not
depend on the server.

This file is also the script of the server, which imports the modules whose
names it receives.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pathlib
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

# Modules that nodes import.
MODULES = (
  'ftwax.agents.acme.actor',
  'ftwax.agents.acme.learner',
  'ftwax.replay.reverb.adders',
  'ftwax.replay.reverb.datasets',
  'ftwax.runtime.distributed',
  'haiku',
  'launchpad',
  'optax',
)

_SET_SUBREAPER, _GET_SUBREAPER = 36, 37  # Options of prctl(2).
_POLL_S = 0.01


class ForkserverError(ChildProcessError):
  """The server exited, for example because an import failed."""


class Process:
  """A child of this process that another process started."""

  is_waiting = False

  def __init__(self, pid: int):
    """Adopts the child `pid`, the leader of a process group."""
    self.pid = pid
    self.returncode: int | None = None

  def poll(self) -> int | None:
    """Returns the exit status, negative for a signal; None while it runs."""
    if self.returncode is None:
      pid, status = os.waitpid(self.pid, os.WNOHANG)
      if pid:
        self.returncode = os.waitstatus_to_exitcode(status)
    return self.returncode

  def wait(self, timeout_s: float) -> bool:
    """Waits for the process; returns whether it has ended in time."""
    deadline = time.monotonic() + timeout_s
    while self.poll() is None and time.monotonic() < deadline:
      time.sleep(_POLL_S)
    return self.returncode is not None

  def send(self, signum: int) -> None:
    """Signals the process and the processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
      try:
        os.killpg(self.pid, signum)
      except ProcessLookupError:  # Just forked: it leads no group yet.
        if self.poll() is None:
          os.kill(self.pid, signum)


class Forkserver:
  """Client of the server. A context manager."""

  def __init__(
    self,
    output: pathlib.Path,
    environment: Mapping[str, str],
    modules: Sequence[str] = MODULES,
  ):
    """Starts the server, which imports the modules in the background.

    Args:
      output: file for the output of the server.
      environment: environment variables to set before the imports.
      modules: names of the modules to import.
    """
    self._output = output
    self._environment = environment
    self._modules = list(modules)
    self._was_subreaper = _set_subreaper(True)
    self._start()

  def __enter__(self) -> 'Forkserver':
    return self

  def __exit__(self, *exception: Any) -> None:
    del exception
    self._disconnect()
    self._server.kill()
    self._server.wait()
    _set_subreaper(self._was_subreaper)

  def start(
    self,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    output: pathlib.Path,
  ) -> Process:
    """Starts a process; first restarts the server if it was killed.

    Args:
      arguments: an interpreter, which is ignored, a script and its arguments.
      environment: all environment variables of the process.
      output: file for the output of the process.

    Raises:
      ForkserverError: if the server has exited for another reason.
    """
    output.touch()
    request = {
      'arguments': list(arguments[1:]),
      'environment': dict(environment),
      'output': str(output.absolute()),
    }
    reply = self._ask(request)
    # Killed by a signal, e.g. for lack of memory. After an error of its own, a
    # new server would fail in the same way.
    if not reply and self._server.wait() < 0:
      self._disconnect()
      self._start()
      reply = self._ask(request)
    if not reply:
      raise ForkserverError(
        'the server from which nodes are forked has ended with status'
        f' {self._server.wait()}; see {self._output}.'
      )
    return Process(int(reply))

  def _start(self) -> None:
    self._socket, theirs = socket.socketpair()
    self._replies = self._socket.makefile('rb')
    with theirs, open(self._output, 'ab') as output:
      self._server = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        env={**os.environ, **self._environment},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
      )
    self._send({'path': sys.path, 'modules': self._modules})

  def _send(self, message: Mapping[str, Any]) -> None:
    with contextlib.suppress(ConnectionError):  # Then the reply is empty.
      self._socket.sendall(json.dumps(message).encode() + b'\n')

  def _ask(self, request: Mapping[str, Any]) -> bytes:
    """Returns the reply; empty if the server is gone."""
    self._send(request)
    with contextlib.suppress(ConnectionError):
      return self._replies.readline()
    return b''

  def _disconnect(self) -> None:
    self._replies.close()
    self._socket.close()


def _set_subreaper(value: bool) -> bool:
  """Sets whether this process adopts orphans of its descendants.

  Returns:
    The previous setting.
  """
  prctl = ctypes.CDLL(None, use_errno=True).prctl
  before = ctypes.c_int()
  prctl(_GET_SUBREAPER, ctypes.byref(before), 0, 0, 0)
  prctl(_SET_SUBREAPER, int(value), 0, 0, 0)
  return bool(before.value)


def _serve(connection: socket.socket) -> list[str]:
  """Forks for each request; in each fork, returns the request's arguments."""
  with connection, connection.makefile('rwb') as stream:
    first = json.loads(stream.readline())
    sys.path[:] = first['path']
    for module in first['modules']:
      importlib.import_module(module)
    num_threads = len(os.listdir('/proc/self/task'))
    if num_threads > 1:
      raise RuntimeError(
        f'imports started threads (there are {num_threads}), which a fork'
        ' would lose.'
      )
    gc.collect()
    gc.freeze()  # A collection would copy pages that forks share.
    for line in stream:
      request = json.loads(line)
      pid = _fork_twice()
      if pid is None:
        break
      stream.write(b'%d\n' % pid)
      stream.flush()
    else:
      raise SystemExit(0)
  _become_node(request)
  return request['arguments']


def _fork_twice() -> int | None:
  """Returns the pid of a grandchild; in the grandchild, returns None."""
  read_end, write_end = os.pipe()
  child = os.fork()
  if child:
    os.close(write_end)
    os.waitpid(child, 0)
    with open(read_end, 'rb') as pipe:
      return int(pipe.read())
  child = os.getpid()
  pid = os.fork()
  if pid:
    os.write(write_end, b'%d' % pid)
    os._exit(0)
  os.close(read_end)
  os.close(write_end)
  # The intermediate process writes the pid before it exits. Wait for the exit,
  # so that the node's parent is the runner.
  while os.getppid() == child:
    time.sleep(0.001)
  return None


def _become_node(request: Mapping[str, Any]) -> None:
  """Sets up the forked process like a newly started one."""
  # A group of its own, which a signal reaches as a whole; see `Process`.
  os.setsid()
  with open(request['output'], 'ab') as output:
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
  os.environ.clear()
  os.environ.update(request['environment'])
  if 'numpy' in sys.modules:
    sys.modules['numpy'].random.seed()  # Else all would draw the same.
  if 'jax' in sys.modules:
    platforms = os.environ.get('JAX_PLATFORMS')
    sys.modules['jax'].config.update('jax_platforms', platforms)


def main() -> None:
  """Serves; in each forked process, runs the requested script."""
  sys.argv = _serve(socket.socket(fileno=int(sys.argv[1])))
  runpy.run_path(sys.argv[0], run_name='__main__')


if __name__ == '__main__':
  main()
