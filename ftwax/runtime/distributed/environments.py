"""Environments of an actor: seeded, watched and limited to a budget."""

import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import specified
from ftwax.population import seating as seating_lib
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.local import arena as arena_lib
from ftwax.runtime.local import seeds

TRAINING, EVALUATION = 0, 1

_WATCH_S = 1.0


class EnvironmentFailure(RuntimeError):
  """An environment raised an error."""


class BudgetMet(Exception):  # noqa: N818 Control flow, not an error.
  """The last steps were taken, possibly in only some environments."""


def make_environment(
  experiment: experiment_lib.ExperimentConfig,
  seating: seating_lib.Seating,
  entropy: tuple[int, ...],
  label: str,
) -> 'GuardedEnvironment':
  """Makes an arena with its own games.

  Args:
    experiment: holds the environments and opponents.
    seating: assigns seats to members and opponents.
    entropy: seeds the games, together with the experiment's seed.
    label: label of the games in messages.

  Raises:
    EnvironmentFailure: if the factory fails.
  """
  own_seeds = seeds.make_seeds((experiment.seed, *entropy), seating.num_games)
  try:
    made = experiment.make_games(
      experiment.environment_factory, own_seeds, label
    )
  except Exception as error:
    raise EnvironmentFailure(f'{type(error).__name__}: {error}') from error
  opponents = list(experiment.opponents.values())
  key = jax.random.PRNGKey(own_seeds[0])
  return GuardedEnvironment(arena_lib.Arena(made, seating, opponents, key))


class GuardedEnvironment(specified.Specified, dm_env.Environment):
  """An arena that reraises all errors as `EnvironmentFailure`.

  Attributes:
    arena: the games.
    entered_at: start of the current call, in `time.monotonic()` seconds; None
      between calls.
    limit: number of steps that may still be taken; None for no limit.
  """

  def __init__(self, arena: arena_lib.Arena):
    """Wraps an arena."""
    super().__init__(types.make_environment_spec(arena))
    self.arena = arena
    self._num_moving = 0
    self.num_environments = arena.num_environments
    self.entered_at: float | None = None
    self.limit: int | None = None

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timesteps of all games."""
    return self._call(self.arena.reset)

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps all games, or only as many as `limit` allows at the end.

    Raises:
      BudgetMet: after the last steps.
      EnvironmentFailure: if an environment raises.
    """
    # Games at `LAST` restart, which is not counted as a step.
    if self.limit is not None and self._num_moving > self.limit:
      self._call(self.arena.step_some, action, self.limit)
      raise BudgetMet
    return self._call(self.arena.step, action)

  def close(self) -> None:
    """Closes all games, whatever state they are in."""
    try:
      self.arena.close()
    except Exception as error:  # noqa: BLE001 May be what failed before.
      print(f'closing environments failed: {error}', file=sys.stderr)

  def _call(self, method: Callable[..., Any], *args: Any) -> Any:
    self.entered_at = time.monotonic()
    try:
      timestep = method(*args)
    except Exception as error:
      raise EnvironmentFailure(f'{type(error).__name__}: {error}') from error
    finally:
      self.entered_at = None
    if timestep is not None:
      self._num_moving = np.count_nonzero(timestep.step_type != types.LAST)
    return timestep


@dataclasses.dataclass
class Watchdog:
  """Exits the process if an environment hangs, since a call cannot be aborted.

  Attributes:
    name: name of the actor.
    timeout_s: maximum duration of one step of all environments, in seconds.
    environment: the environment to watch.
  """

  name: str
  timeout_s: float
  environment: GuardedEnvironment | None = None

  def start(self) -> None:
    """Starts watching in a background thread."""
    threading.Thread(target=self._run, name='watchdog', daemon=True).start()

  def _run(self) -> None:
    while (seconds := self._seconds()) <= self.timeout_s:
      time.sleep(_WATCH_S)
    print(
      f'environments of {self.name} must step within {self.timeout_s:g} s and'
      f' have not for {seconds:.0f} s; the actor is restarted.',
      file=sys.stderr,
      flush=True,
    )
    # `sys.exit` would end only this thread, and an orderly exit would wait for
    # the environment.
    os._exit(1)

  def _seconds(self) -> float:
    """Returns the duration of the current call, or 0 without one."""
    entered_at: Any = getattr(self.environment, 'entered_at', None)
    return 0.0 if entered_at is None else time.monotonic() - entered_at
