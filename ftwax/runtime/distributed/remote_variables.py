"""Brings a learner's variables to actors in other processes."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.runtime import experiment as experiment_lib
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

  def make(key: types.Key) -> types.ActorVariables:
    return types.actor_variables(core.init(key))

  return jax.tree.structure(jax.eval_shape(make, jax.random.PRNGKey(0)))


def make_member_sources(
  experiment: experiment_lib.ExperimentConfig,
  settings: settings_lib.Settings,
  learners: Sequence[processes.Remote],
  stop: threading.Event,
  adders: Sequence[Any] = (),
) -> list[Any]:
  """Returns the variables of each member, from the learner that holds it.

  Args:
    experiment: what runs.
    settings: of the run.
    learners: hold the members, as many each.
    stop: see `RemoteVariables`.
    adders: of each member; see `make_source`.
  """
  from ftwax.runtime.host import members

  num_members = experiment.population.num_members // len(learners)
  sources = []
  for index, learner in enumerate(learners):
    own = adders[index * num_members : (index + 1) * num_members]
    source = make_source(experiment, settings, learner, stop, own)
    sources += members.member_sources(source, num_members)
  return sources


def make_source(
  experiment: experiment_lib.ExperimentConfig,
  settings: settings_lib.Settings,
  learner: processes.Remote,
  stop: threading.Event,
  adders: Sequence[Any] = (),
) -> 'RemoteVariables':
  """Returns the variables of an experiment's learner.

  Args:
    experiment: what runs.
    settings: of the run.
    learner: offers `variables`.
    stop: see `RemoteVariables`.
    adders: whose last trajectories must have been learned from, if actors wait.
  """

  def written_at() -> float:
    return max(adder.written_at for adder in adders)

  waits = settings.actors_wait and adders
  spec = experiment.read_game_spec().environment
  network = experiment.network_factory(spec)
  return RemoteVariables(
    learner,
    make_structure(experiment.builder, network, spec),
    settings.variables_period_s,
    stop,
    written_at if waits else None,
    adders if len(adders) < experiment.population.num_members else (),
  )


class RemoteVariables:
  """The variable source of an actor whose learner is another process.

  It asks at most once a period; or each time that something was
  written, from which the learner is to learn before it answers. While the
  learner is away it keeps the variables that it has.
  """

  def __init__(
    self,
    learner: processes.Remote,
    structure: Any,
    period_s: float,
    stop: threading.Event,
    written_at: Callable[[], float] | None = None,
    adders: Sequence[Any] = (),
  ):
    """Asks for nothing yet.

    Args:
      learner: offers `variables`.
      structure: see `make_structure`.
      period_s: seconds between two requests, where nothing is waited for.
      stop: ends the waiting for the first variables.
      written_at: returns when the trajectories to wait for were written, as
        they themselves tell.
      adders: that write nothing while the learner is away, so that those of
        other learners do not wait for a queue that nobody empties.
    """
    self._adders = adders
    self._learner = learner
    self._structure = structure
    self._period_s = period_s
    self._stop = stop
    self._written_at = written_at
    self._current: types.ActorVariables | None = None
    self._next_time = 0.0
    self._waited_for = 0.0

  def get_variables(self, names: Sequence[str]) -> list[types.ActorVariables]:
    """Returns the newest variables, once for each name.

    Raises:
      UnreachableError: the first ones did not come before the end.
    """
    if self._current is None:
      self._current = self._wait()
    elif time.monotonic() >= self._next_time:
      self._current = self._ask(self._current)
    return [self._current for _ in names]

  def _ask(self, current: types.ActorVariables) -> types.ActorVariables:
    """Returns the newest variables, if there are others than the current."""
    written_at, period_s = 0.0, self._period_s
    if self._written_at is not None:
      written_at, period_s = self._written_at(), 0.0
      if written_at == self._waited_for:
        return current  # Nothing was written since.
      self._waited_for = written_at
    steps = int(np.max(current.steps))  # Of members, the same.
    reply = self._learner.try_call('variables', steps, written_at)
    for adder in self._adders:
      adder.is_idle = reply is None
    self._next_time = time.monotonic() + (
      _ABSENT_S if reply is None else period_s
    )
    return self._structure.unflatten(reply) if reply else current

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
