"""Brings a learner's variables to actors in other processes."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import experiment_environments
from ftwax.runtime.distributed import processes
from ftwax.runtime.distributed import settings as settings_lib

_FIRST_POLL_S = 0.1
_ABSENT_S = 1.0


def make_structure(
  builder: Any,
  network: types.RecurrentNetwork,
  environment_spec: types.EnvironmentSpec,
) -> Any:
  """Returns the tree structure of the variables that a learner offers."""
  core = builder.make_learner_core(network, environment_spec)

  def make(key):
    return types.actor_variables(core.init(key))

  return jax.tree.structure(jax.eval_shape(make, jax.random.PRNGKey(0)))


def make_source(
  experiment: experiment_lib.ExperimentConfig,
  settings: settings_lib.Settings,
  learner: processes.Remote,
  stop: threading.Event,
) -> 'RemoteVariables':
  """Returns the variables of an experiment's learner; see `RemoteVariables`."""
  spec = experiment_environments.read_spec(experiment)
  network = experiment.network_factory(spec)
  return RemoteVariables(
    learner,
    make_structure(experiment.builder, network, spec),
    settings.variables_period_s,
    stop,
  )


class RemoteVariables:
  """The variable source of an actor whose learner is another process.

  It asks no more often than it is told, and keeps the variables that it has
  while the learner is away.
  """

  def __init__(
    self,
    learner: processes.Remote,
    structure: Any,
    period_s: float,
    stop: threading.Event,
  ):
    """Asks for nothing yet.

    Args:
      learner: offers `variables`.
      structure: see `make_structure`.
      period_s: seconds between two requests.
      stop: ends the waiting for the first variables.
    """
    self._learner = learner
    self._structure = structure
    self._period_s = period_s
    self._stop = stop
    self._current: types.ActorVariables | None = None
    self._next_time = 0.0

  def get_variables(self, names: Sequence[str]) -> list[types.ActorVariables]:
    """Returns the newest variables, once for each name.

    Raises:
      UnreachableError: the first ones did not come before the end.
    """
    if self._current is None:
      self._current = self._wait()
    elif time.monotonic() >= self._next_time:
      steps = int(np.max(self._current.steps))  # Of members, the same.
      reply = self._learner.try_call('variables', steps)
      absent = reply is None
      self._next_time = time.monotonic() + (
        _ABSENT_S if absent else self._period_s
      )
      if reply:
        self._current = self._structure.unflatten(reply)
    return [self._current for _ in names]

  def _wait(self) -> types.ActorVariables:
    """Returns the first variables; a learner may compile for long."""
    while not self._stop.is_set():
      reply = self._learner.try_call('variables', -1)
      if reply:
        return self._structure.unflatten(reply)
      time.sleep(_FIRST_POLL_S)
    raise processes.UnreachableError(
      'learner must offer variables, and did not before the run was ended.'
    )
