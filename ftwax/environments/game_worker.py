"""Plays a share of the games of `process_games` in a separate process.

The parent sends commands and reads replies through a socket. Actions and
timesteps are in shared memory without a name, so nothing is left behind when
either process is killed. The process ends when the parent ends, since that
closes the socket, and when a call exceeds the parent's timeout: a kernel timer
ends the process even if a game never returns.
"""

import errno
import gc
import mmap
import os
import pickle
import signal
import socket
import sys
import traceback
from typing import Any

import cloudpickle
import dm_env
import jax
import numpy as np
from dm_env import specs

from ftwax import trees, types
from ftwax.environments import (
  compiled_games,
  curricula,
  episode_metrics,
  game_vectors,
  games,
)

OK, RAISED = 'ok', 'raised'

# Time beyond the parent's timeout, so that the parent reports it first.
_GRACE_S = 5.0

_ALIGNMENT = 64


def map_memory(
  descriptor: int, spec: games.GameSpec, num_games: int
) -> tuple[types.ArrayTree, dm_env.TimeStep]:
  """Maps the actions and timesteps of all games to the memory of a file.

  Args:
    descriptor: descriptor of the file, which is resized to fit.
    spec: spec of one game.
    num_games: `G`.

  Returns:
    Actions and timesteps, leaves [G * P, ...].

  Raises:
    OSError: if there is too little memory.
  """
  environment = spec.environment
  timestep_spec = dm_env.TimeStep(
    specs.Array((), np.int32),
    specs.Array(environment.rewards.shape, np.float32),
    specs.Array((), np.float32),
    environment.observations,
  )
  parts = environment.actions, timestep_spec
  leaves = jax.tree.leaves(parts)
  # Typed Any, since jax's stubs hide the methods of tree structures.
  structure: Any = jax.tree.structure(parts)
  num_rows = num_games * spec.num_players
  offsets = [0]
  for leaf in leaves:
    size = num_rows * int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize
    offsets.append(offsets[-1] + -(-size // _ALIGNMENT) * _ALIGNMENT)
  _allocate(descriptor, offsets[-1])
  memory = mmap.mmap(descriptor, offsets[-1])
  arrays: list[types.NumpyArray] = [
    np.ndarray((num_rows, *leaf.shape), leaf.dtype, memory, offset)
    for leaf, offset in zip(leaves, offsets, strict=False)
  ]
  action, timestep = structure.unflatten(arrays)
  return action, timestep


def _allocate(descriptor: int, size: int) -> None:
  """Gives a file its size.

  The memory must be there at once: where a page is missing later, the process
  that writes to it gets SIGBUS and ends without a word.
  """
  if not hasattr(os, 'posix_fallocate'):
    os.ftruncate(descriptor, size)
    return
  try:
    os.posix_fallocate(descriptor, 0, size)
  except OSError as error:
    if error.errno != errno.ENOSPC:
      raise
    raise OSError(
      errno.ENOSPC,
      f'shared memory (/dev/shm) must have {size:,} bytes free for the'
      ' observations of environment processes, and has less; give a container'
      ' more, as by `docker run --shm-size=1g`, or choose fewer environments',
    ) from None


class _Worker:
  """Games and their rows of the shared memory."""

  def __init__(
    self, factory: bytes, seeds: list[int], name: str, first: int
  ) -> None:
    self._games = game_vectors.make_games(
      cloudpickle.loads(factory), seeds, name, first
    )
    self._first = first
    if isinstance(self._games, compiled_games.CompiledGames):
      raise ValueError(
        'stepping.processes must be 0 for environments in JAX, which are'
        ' stepped in one compiled call; leave it out.'
      )

  def spec(self) -> games.GameSpec:
    return self._games.spec

  def share(self, descriptor: int, num_games: int) -> None:
    spec = self._games.spec
    memory = map_memory(descriptor, spec, num_games)
    start = self._first * spec.num_players
    rows = slice(start, start + self._games.num_games * spec.num_players)
    self._action, self._timestep = trees.take(memory, rows)

  def reset(self) -> None:
    self._put(self._games.reset())

  def step(self) -> None:
    # A copy, since the environment may keep its action.
    self._put(self._games.step(jax.tree.map(np.array, self._action)))

  def outcomes(self, places: list[int]) -> types.NumpyArray:
    return self._games.outcomes(places)

  def measure(self, names: episode_metrics.Names) -> None:
    self._games.measure(names)

  def episode_metrics(self, places: list[int]) -> list[dict[str, float]]:
    return self._games.episode_metrics(places)

  def set_parameters(self, values: curricula.Values) -> None:
    self._games.set_parameters(values)

  def play_whole_games(self) -> None:
    self._games.play_whole_games()

  def close(self) -> None:
    self._games.close()

  def _put(self, timestep: dm_env.TimeStep) -> None:
    jax.tree.map(np.copyto, self._timestep, timestep)


# A cluster sends these to all processes of a job; the parent answers them.
_PARENTS = 'SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGXCPU'


def leave_to_parent() -> None:
  """Leaves signals that end a run to the parent, which saves and ends this.

  With handlers: what is ignored would be so in the programs that a simulator
  starts, too.
  """
  numbers = [
    getattr(signal, name) for name in _PARENTS if hasattr(signal, name)
  ]
  for number in numbers:
    signal.signal(number, lambda signum, frame: None)

  def as_before() -> None:
    for number in numbers:
      signal.signal(number, signal.SIG_DFL)

  os.register_at_fork(after_in_child=as_before)


def main() -> None:
  """Serves the socket named on the command line until it is closed."""
  leave_to_parent()
  stream = socket.socket(fileno=int(sys.argv[1])).makefile('rwb')
  worker: Any = None
  while True:
    try:
      command, arguments, timeout_s = pickle.load(stream)
    except (EOFError, ConnectionError):
      return
    # The default action, ending the process, does not need the interpreter.
    signal.setitimer(signal.ITIMER_REAL, timeout_s + _GRACE_S)
    reply: tuple[Any, ...]
    try:
      if command == 'make':
        worker = _Worker(*arguments)
        gc.freeze()  # Skip imported objects in collections.
        reply = OK, worker.spec()
      else:
        reply = OK, getattr(worker, command)(*arguments)
    except Exception as error:
      told = traceback.format_exc()
      reply = RAISED, (type(error).__name__, str(error), told)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    try:
      pickle.dump(reply, stream)
      stream.flush()
    except ConnectionError:
      return
