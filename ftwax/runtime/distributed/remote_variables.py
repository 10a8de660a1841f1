"""Provides a learner's variables to actors in other processes."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import processes
from ftwax.runtime.distributed import settings as settings_lib

_FIRST_POLL_S = 0.1
_ABSENT_S = 1.0


def make_structure(
  agent: config_lib.ActorCriticConfig,
  network: types.RecurrentNetwork,
  environment_spec: types.EnvironmentSpec,
) -> Any:
  """Returns the tree structure of the variables that a learner serves."""
  core = agent.make_learner_core(network, environment_spec)

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
  """Returns a variable source for each member, from the learner that holds it.

  Args:
    experiment: the experiment that runs.
    settings: settings of the run.
    learners: learners that hold the members, equally many each.
    stop: see `RemoteVariables`.
    adders: adders of each member; see `make_source`.
  """
  from ftwax.runtime.local import members

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
  """Returns the variable source of an experiment's learner.

  Args:
    experiment: the experiment that runs.
    settings: settings of the run.
    learner: serves `variables`.
    stop: see `RemoteVariables`.
    adders: if actors wait, the adders whose last trajectories must have been
      learned from.
  """

  def written_at() -> float:
    return max(adder.written_at for adder in adders)

  waits = settings.actors_wait and adders
  spec = experiment.read_game_spec().environment
  network = experiment.agent.make_network(spec)
  return RemoteVariables(
    learner,
    make_structure(experiment.agent, network, spec),
    settings.variables_period_s,
    stop,
    written_at if waits else None,
    adders if len(adders) < experiment.population.num_members else (),
  )


class RemoteVariables:
  """Variable source of an actor whose learner runs in another process.

  It polls at most once per period. If actors wait, it instead polls after each
  written trajectory, and the learner answers once it has learned from that.
  While the learner is away, it keeps its current variables.
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
    """Makes no request yet.

    Args:
      learner: serves `variables`.
      structure: see `make_structure`.
      period_s: seconds between two requests if actors do not wait.
      stop: event that ends the waiting for the first variables.
      written_at: returns the time at which the trajectories to wait for were
        written, as recorded in them; None if actors do not wait.
      adders: adders to pause while the learner is away, so that the actor's
        other members do not block on a queue that is not being emptied.
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
      UnreachableError: if the run ends before the first variables arrive.
    """
    if self._current is None:
      self._current = self._wait()
    elif time.monotonic() >= self._next_time:
      self._current = self._ask(self._current)
    return [self._current for _ in names]

  def _ask(self, current: types.ActorVariables) -> types.ActorVariables:
    """Returns the newest variables, or the current ones if unchanged."""
    written_at, period_s = 0.0, self._period_s
    if self._written_at is not None:
      written_at, period_s = self._written_at(), 0.0
      if written_at == self._waited_for:
        return current  # Nothing new was written.
      self._waited_for = written_at
    steps = int(np.max(current.steps))  # Equal for all members.
    reply = self._learner.try_call('variables', steps, written_at)
    for adder in self._adders:
      adder.is_idle = reply is None
    self._next_time = time.monotonic() + (
      _ABSENT_S if reply is None else period_s
    )
    # None if the learner is away, empty if it has nothing newer.
    return self._structure.unflatten(reply) if reply else current

  def _wait(self) -> types.ActorVariables:
    """Waits for the first variables, since a learner may compile for long."""
    while not self._stop.is_set():
      # -1 differs from the steps of any learner, which therefore replies.
      reply = self._learner.try_call('variables', -1)
      if reply:
        return self._structure.unflatten(reply)
      time.sleep(_FIRST_POLL_S)
    raise processes.UnreachableError(
      'learner must offer variables, and did not before the run ended.'
    )
