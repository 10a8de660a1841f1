"""An actor's environments: made from a seed, watched, stopped at a budget."""

import dataclasses
import os
import sys
import threading
import time
from typing import Any

import dm_env
import numpy as np

from ftwax import types
from ftwax.environments import specified
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.host import experiment_environments

TRAINING, EVALUATION = 0, 1

_WATCH_S = 1.0


class EnvironmentFailure(RuntimeError):
  """What an environment raised."""


class BudgetMet(Exception):  # noqa: N818 It is no error.
  """The last steps were taken, in some of the environments."""


def make_environments(
  experiment: experiment_lib.ExperimentConfig,
  num_environments: int,
  entropy: tuple[int, ...],
  label: str,
) -> 'GuardedEnvironment':
  """Makes E environments; see `experiment_environments.make_vector`."""
  try:
    return GuardedEnvironment(
      experiment_environments.make_vector(
        experiment, num_environments, entropy, label
      )
    )
  except Exception as error:
    raise EnvironmentFailure(f'{type(error).__name__}: {error}') from error


class GuardedEnvironment(specified.Specified, dm_env.Environment):
  """A vector of environments whose errors are told apart from all others.

  Attributes:
    guarded: the environments, or an arena.
    entered_at: when the call under way began; None between calls.
    limit: steps that may still be taken; None for any number.
  """

  def __init__(self, environment: Any):
    """Wraps `environment`, which has the face of a `VectorEnvironment`."""
    super().__init__(types.make_environment_spec(environment))
    self.guarded = environment
    self._moving = np.zeros(environment.num_environments, bool)
    self.num_environments = environment.num_environments
    self.entered_at: float | None = None
    self.limit: int | None = None

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timesteps of all."""
    return self._call(self.guarded.reset)

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps all environments, or the last few that `limit` allows.

    Raises:
      BudgetMet: after the last steps.
      EnvironmentFailure: whatever an environment raised.
    """
    if self.limit is not None and self._moving.sum() > self.limit:
      rows = np.flatnonzero(self._moving)[: self.limit]
      self._call(self.guarded.step_rows, action, rows)
      raise BudgetMet
    return self._call(self.guarded.step, action)

  def close(self) -> None:
    """Closes all, whatever state they are in."""
    try:
      self.guarded.close()
    except Exception as error:  # noqa: BLE001 It may be what failed before.
      print(f'closing environments failed: {error}', file=sys.stderr)

  def _call(self, method, *args):
    self.entered_at = time.monotonic()
    try:
      timestep = method(*args)
    except Exception as error:
      raise EnvironmentFailure(f'{type(error).__name__}: {error}') from error
    finally:
      self.entered_at = None
    if timestep is not None:
      self._moving = timestep.step_type != dm_env.StepType.LAST
    return timestep


@dataclasses.dataclass
class Watchdog:
  """Ends a process whose environment hangs, for nobody can end the call.

  Attributes:
    name: of the actor.
    timeout_s: seconds that one step of all environments may take.
    environment: watched.
  """

  name: str
  timeout_s: float
  environment: GuardedEnvironment | None = None

  def start(self) -> None:
    """Watches from now on, from a thread."""
    threading.Thread(target=self._run, name='watchdog', daemon=True).start()

  def _run(self) -> None:
    while (seconds := self._seconds()) <= self.timeout_s:
      time.sleep(_WATCH_S)
    print(
      f'environments of {self.name} must step within {self.timeout_s:g} s and'
      f' have not for {seconds:.0f} s; the actor is started anew.',
      file=sys.stderr,
      flush=True,
    )
    os._exit(1)

  def _seconds(self) -> float:
    """Returns how long the call under way has taken; 0 if there is none."""
    entered_at: Any = getattr(self.environment, 'entered_at', None)
    return 0.0 if entered_at is None else time.monotonic() - entered_at
