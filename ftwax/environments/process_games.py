"""Games whose environments step in other processes, in parallel.

Intended for Python simulators that are slow or wait. Each process plays a share
of the games as `game_vectors` would in this process, with the same seeds and
checks, so timesteps are bitwise identical. Communication consists of short
commands and rows of shared memory. Processes are spawned rather than forked,
since JAX and many simulators use threads.
"""

import contextlib
import dataclasses
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from typing import Any

import cloudpickle
import dm_env
import jax
import numpy as np

from ftwax import parts, registry, types
from ftwax.environments import (
  curricula,
  environment_faults,
  episode_metrics,
  game_vectors,
  game_worker,
  validation,
  vector,
)

# A new interpreter takes seconds for its imports, and many more on a busy
# machine.
_START_S = 60.0
_CLOSE_S = 5.0

# Errors whose messages already name the environment.
_FAULTS = {
  fault.__name__: fault
  for fault in (
    environment_faults.EnvironmentFault,
    validation.InvalidTimestepError,
  )
}

# Does not import the parent's main module, which may lack a main guard.
# Python would look for modules in the current directory first.
_SCRIPT = (
  'import sys; sys.path[:] = {};'
  ' from ftwax.environments import game_worker; game_worker.main()'
)


@registry.register('stepping')
@dataclasses.dataclass(frozen=True)
class Stepping(parts.Part):
  """How the Python environments of one actor are stepped; results are equal.

  Attributes:
    processes: number of processes that step the environments in parallel, and
      those of evaluations; 0 to step them in the actor's process.
    timeout_s: maximum seconds for a step of all environments of an actor, in
      environment processes and in distributed runs. Within the process of a
      local run, a call cannot be aborted.
    on_error: `stop`, or `restart` for local runs that recreate all environments
      and drop their unfinished trajectories, at most ten times in five minutes.
      Distributed runs always restart, within the limits of their settings.
  """

  processes: int = parts.option(0, low=0, high=4096)
  timeout_s: float = parts.option(60.0, above=0, high=1e9)
  on_error: str = parts.option('stop', choices=('stop', 'restart'))


class EnvironmentProcessError(
  environment_faults.EnvironmentFault, ChildProcessError
):
  """An environment in another process, or its process, failed."""


class ProcessGames(vector.PythonGames):
  """Games in other processes; see `game_vectors.GameVector`."""

  def __init__(
    self,
    environment_factory: game_vectors.EnvironmentFactory,
    seeds: Sequence[int],
    name: str,
    num_processes: int,
    timeout_s: float,
  ):
    """Starts the processes, which make the games.

    Args:
      environment_factory: makes a Python environment or game, given a seed. A
        factory of vectors makes one in each process.
      seeds: one seed for each game.
      name: name of the games in messages.
      num_processes: number of processes; each plays at least one game.
      timeout_s: maximum duration of a step of all games, in seconds.

    Raises:
      EnvironmentProcessError: if a factory raised, or a process died or hangs.
      ValueError: if the factory cannot be pickled or specs differ.
    """
    num_games = len(seeds)
    self._timeout_s = timeout_s
    sent = _pickle(environment_factory)
    shares = np.array_split(np.arange(num_games), min(num_processes, num_games))
    directory = '/dev/shm' if os.path.isdir('/dev/shm') else None
    with tempfile.TemporaryFile(dir=directory) as memory:
      self._workers: list[_Process] = []
      # Also runs at interpreter exit. It shares the list, which is filled
      # below.
      self._kill = weakref.finalize(self, _kill, self._workers)
      try:
        for share in shares:
          self._workers.append(_Process(share, name, memory.fileno()))
        for process, share in zip(self._workers, shares, strict=True):
          own = [seeds[place] for place in share.tolist()]
          process.send('make', sent, own, name, process.first, wait_s=timeout_s)
        found = self._receive(self._workers, _START_S + timeout_s)
        super().__init__(found[0], num_games)
        for process, spec in zip(self._workers, found, strict=True):
          if spec != self.spec:
            raise ValueError(
              f'{process.label} ({spec}) must be like the first ({self.spec});'
              ' make environments of one kind in environment.'
            )
        descriptor = memory.fileno()
        # The mapping stays valid when the file is closed.
        self._action, self._timestep = game_worker.map_memory(
          descriptor, self.spec, num_games
        )
        self._call_all('share', descriptor, num_games)
      except BaseException:
        self._kill()
        raise

  def reset(self) -> dm_env.TimeStep:
    """Starts all games."""
    self._call_all('reset')
    return self._take()

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each game, or starts a new one after `LAST`.

    Raises:
      EnvironmentProcessError: if a game raised, or a process died or hangs.
      InvalidTimestepError: if a timestep violates the specs.
    """
    leaves = vector.action_leaves(
      self.spec.environment, action, self.num_games * self.spec.num_players
    )
    for shared, leaf in zip(jax.tree.leaves(self._action), leaves, strict=True):
      shared[...] = leaf
    self._call_all('step')
    return self._take()

  def outcomes(self, places: Sequence[int]) -> types.NumpyArray:
    """Returns the outcomes of games that have just ended."""
    return np.stack(self._ask('outcomes', places))

  def measure(self, names: episode_metrics.Names) -> None:
    """Asks for metrics of episodes."""
    super().measure(names)
    self._call_all('measure', names)

  def episode_metrics(self, places: Sequence[int]) -> list[dict[str, float]]:
    """Returns the metrics of games that have just ended."""
    return self._ask('episode_metrics', places)

  def play_whole_games(self) -> None:
    """Ends episodes with games alone, and not with lives, from the next on."""
    self._call_all('play_whole_games')

  def set_parameters(self, values: curricula.Values) -> None:
    """Gives the next episodes other parameters; see `curricula`."""
    self._call_all(curricula.METHOD, dict(values))

  def _ask(self, command: str, places: Sequence[int]) -> list[Any]:
    """Returns what processes tell of each of some of their games."""
    asked = []
    for process in self._workers:
      own = [place for place in places if place in process.places]
      if own:
        asked.append((process, own))
        local = [place - process.first for place in own]
        process.send(command, local, wait_s=self._timeout_s)
    found = self._receive([process for process, _ in asked], self._timeout_s)
    rows: dict[int, Any] = {}
    for (_, own), replies in zip(asked, found, strict=True):
      rows.update(zip(own, replies, strict=True))
    return [rows[place] for place in places]

  def close(self) -> None:
    """Closes the games and ends their processes, whatever their state."""
    try:
      if self._kill.alive:
        self._call_all('close', wait_s=_CLOSE_S)
    finally:
      self._kill()

  def _take(self) -> dm_env.TimeStep:
    # Copies, since the next step overwrites the shared memory.
    return jax.tree.map(np.array, self._timestep)

  def _call_all(
    self, command: str, *arguments: Any, wait_s: float | None = None
  ) -> None:
    wait_s = self._timeout_s if wait_s is None else wait_s
    # Sent to all before waiting for any, so that they work in parallel.
    for process in self._workers:
      process.send(command, *arguments, wait_s=wait_s)
    self._receive(self._workers, wait_s)

  def _receive(
    self, processes: Sequence['_Process'], wait_s: float
  ) -> list[Any]:
    """Returns the reply of each process; kills all processes on a failure."""
    deadline = time.monotonic() + wait_s
    try:
      return [process.receive(deadline, wait_s) for process in processes]
    except BaseException:
      self._kill()
      raise


class _Process:
  """The parent's view of a process that plays the games `places`."""

  def __init__(self, share: types.NumpyArray, name: str, memory: int):
    self.places = range(int(share[0]), int(share[-1]) + 1)
    self.first = self.places[0]
    last = f'..{self.places[-1]}' if len(self.places) > 1 else ''
    self.label = f'environment {f"{name}[{self.first}{last}]"!r}'
    ours, theirs = socket.socketpair()
    with theirs:
      self._process = subprocess.Popen(
        [sys.executable, '-c', _SCRIPT.format(_path()), str(theirs.fileno())],
        # The parent owns the devices; all processes share the cores.
        env={'OMP_NUM_THREADS': '1', **os.environ, 'JAX_PLATFORMS': 'cpu'},
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno(), memory],
        start_new_session=True,  # Ctrl-C is for the parent.
      )
    self._socket = ours
    self._stream = ours.makefile('rwb')

  def send(self, command: str, *arguments: Any, wait_s: float) -> None:
    """Sends a command; a lost process is reported by `receive`."""
    with contextlib.suppress(ConnectionError):
      pickle.dump((command, arguments, wait_s), self._stream)
      self._stream.flush()

  def receive(self, deadline: float, wait_s: float) -> Any:
    """Returns the reply to a command."""
    # A timeout of zero would make the socket non-blocking.
    self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
    try:
      kind, value = pickle.load(self._stream)
    except TimeoutError:
      raise EnvironmentProcessError(
        f'{self.label} (process {self._process.pid}) must answer within'
        f' {wait_s:g} s and has not; find out why it hangs, or raise'
        ' stepping.timeout_s.'
      ) from None
    except (EOFError, ConnectionError):
      raise EnvironmentProcessError(
        f'{self.label} (process {self._process.pid}) must keep running, but'
        f' ended {self._ending()}; see its output, or step it in this process'
        ' with stepping.processes=0.'
      ) from None
    if kind == game_worker.OK:
      return value
    error, message, told = value
    if error in _FAULTS:
      raise _FAULTS[error](message) from EnvironmentProcessError(told)
    raise EnvironmentProcessError(
      f'{self.label} raised {error}: {message}\nIn its process:\n{told}'
    )

  def kill(self) -> None:
    """Kills the process immediately."""
    with contextlib.suppress(OSError):
      self._stream.close()
    self._socket.close()
    self._process.kill()
    self._process.wait()

  def _ending(self) -> str:
    try:
      status = self._process.wait(_CLOSE_S)
    except subprocess.TimeoutExpired:
      return 'by closing its socket'
    if status >= 0:
      return f'with status {status}'
    name = signal.Signals(-status).name
    memory = ', perhaps for lack of memory' if name == 'SIGKILL' else ''
    return f'by {name}{memory}'


def _kill(processes: Sequence[_Process]) -> None:
  for process in processes:
    process.kill()


def _path() -> str:
  """Returns the module search path; '' is the current directory."""
  return repr([str(pathlib.Path(entry).absolute()) for entry in sys.path])


def _pickle(environment_factory: game_vectors.EnvironmentFactory) -> bytes:
  try:
    pickled: bytes = cloudpickle.dumps(environment_factory)
  except Exception as error:
    raise ValueError(
      f'environment ({environment_factory!r}) must be picklable, to be'
      f' sent to environment processes ({error}); create its unpicklable parts'
      ' inside it.'
    ) from error
  return pickled
