"""The health of a distributed run's nodes."""

import time
from collections.abc import Sequence
from typing import Any

from absl import logging

from ftwax.runtime import limits
from ftwax.runtime.distributed import engine as engine_lib
from ftwax.runtime.distributed import settings as settings_lib

_PING_S = 2.0


class Health:
  """Pings nodes, and has those replaced that do not answer or hang."""

  def __init__(
    self,
    engine: engine_lib.Engine,
    settings: settings_lib.Settings,
    environment_timeout_s: float,
    names: Sequence[str],
  ):
    """Stores the limits; `check` sends the first pings."""
    self._engine = engine
    self._timeout_s = settings.heartbeat_timeout_s
    self._environment_timeout_s = environment_timeout_s
    # Actors share their limit, so that one more of them fails no run.
    actors = limit(settings, settings.num_actors)
    self._limiters = {
      name: actors if is_actor(name) else limit(settings) for name in names
    }
    self._pings: dict[str, tuple[Any, float]] = {}
    self._seen: dict[str, float] = {}  # Since the last start of the node.
    self._restarts = dict.fromkeys(names, 0)
    self._next_time = 0.0

  def lose(self, name: str, error: Exception) -> None:
    """Counts the death of a node.

    Raises:
      NodeFailedError: if it died too often.
    """
    self._pings.pop(name, None)
    # Until it answers again it is the same death.
    if self._seen.pop(name, None) is None and self._restarts[name]:
      return
    logging.warning('Replacing %s: %s', name, error)
    self._restarts[name] += 1
    self._limiters[name].count(name, error)

  def check(self) -> None:
    """Sends pings if they are due, and replaces nodes that do not answer."""
    now = time.monotonic()
    if now < self._next_time:
      return
    self._next_time = now + _PING_S
    for name in self._restarts:
      reference, sent_at = self._pings.get(name, (None, now))
      if reference is None:
        self._pings[name] = self._engine.ping(name), now
      elif self._engine.wait([reference], 0.0):
        del self._pings[name]
        self._read(name, reference, now)
      # A node that is starting does not answer either, for as long as it takes.
      elif name in self._seen and now - sent_at > self._timeout_s:
        self._replace(name, f'did not answer for {now - sent_at:.0f} s')

  def see(self, name: str) -> None:
    """Notes that a node has answered a call."""
    self._seen[name] = time.monotonic()

  def describe(self) -> dict[str, str]:
    """Describes the state of each node in words."""
    now = time.monotonic()
    described = {}
    for name, restarts in self._restarts.items():
      seen = self._seen.get(name)
      words = ['starting' if seen is None else f'seen {now - seen:.1f} s ago']
      if restarts:
        words.append(f'restarts {restarts}')
      described[name] = ', '.join(words)
    return described

  def _read(self, name: str, reference: Any, now: float) -> None:
    try:
      busy_s = self._engine.get(reference)
    except engine_lib.NodeLostError:
      return  # So is the call that it was busy with.
    self._seen[name] = now
    if busy_s > self._environment_timeout_s:
      self._replace(name, f'environments did not step for {busy_s:.0f} s')

  def _replace(self, name: str, reason: str) -> None:
    logging.warning('%s %s; it is killed.', name, reason)
    self._pings.pop(name, None)
    self._engine.replace(name)


def limit(
  settings: settings_lib.Settings, num_parts: int = 1
) -> limits.RestartLimiter:
  """Limits the restarts of parts together."""
  return limits.RestartLimiter(
    settings.max_restarts * num_parts,
    settings.restart_period_s,
    engine_lib.NodeFailedError,
  )


def is_actor(name: str) -> bool:
  """Returns whether a node is an actor."""
  return name.startswith('actor/')
