"""The nodes that play a population's games, in the place of actors.

An arena acts for all members at its own games, writes what each sees to that
member's replay server, and tells the learner's node how games ended.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import (
  actor_loop,
  counter,
  environments,
  processes,
  remote_variables,
)
from ftwax.runtime.distributed import settings as settings_lib
from ftwax.runtime.host import arena as arena_lib
from ftwax.runtime.host import experiment_environments, rounds

_ASK_AGAIN_S = 0.2


def run_arena(
  experiment: experiment_lib.PopulationExperimentConfig,
  index: int,
  settings: settings_lib.Settings,
  replay_addresses: Sequence[str],
  learner_client: Any,
  counter_client: Any,
) -> None:
  """Plays games between members until no steps are left.

  Args:
    experiment: what runs.
    index: of the arena, which counts as an actor.
    settings: of the run.
    replay_addresses: of the members' replay servers.
    learner_client: of the learner, from which variables and seats come.
    counter_client: of the counter, which grants steps.
  """
  with (
    processes.node(counter.actor_name(index)) as stop,
    contextlib.ExitStack() as stack,
  ):
    processes.keep_to_cpu(index)
    from ftwax.runtime.host import members

    spec: Any = experiment.environment_spec
    builder = actor_loop.with_timeout(
      experiment.builder, settings.stall_timeout_s
    )
    policy = builder.make_policy(experiment.network_factory(spec), spec)
    num_rows = arena_lib.count_seats(experiment)
    adders = []
    for address in replay_addresses:
      client = processes.connect_to_replay(address, settings.replay_start_s)
      adders.append(builder.make_adder(client, spec, policy, num_rows))
      stack.callback(adders[-1].close)
    remote = processes.Remote(counter_client, 'counter', stop=stop)
    coordinator = processes.Remote(learner_client, counter.LEARNER, stop=stop)
    loop = ArenaLoop(experiment, index, settings, remote, stop, coordinator)
    steps = loop.register()
    if steps is None:
      return
    key = jax.random.fold_in(jax.random.PRNGKey(experiment.seed), steps)
    actors = members.make_actors(
      builder,
      jax.random.fold_in(key, 1 + index),
      policy,
      remote_variables.make_source(
        experiment, settings, coordinator, stop, adders
      ),
      adders,
      num_rows,
    )
    processes.yield_to_others()
    loop.run(actors, actors)
    remote.try_call('finish', counter.actor_name(index))


class ArenaLoop(actor_loop.ActorLoop):
  """Runs an arena within the steps that the counter grants."""

  def __init__(self, experiment, index, settings, remote, stop, coordinator):
    """Prepares the loop; see `ActorLoop`.

    Args:
      experiment: what runs.
      index: of the arena.
      settings: of the run.
      remote: the counter.
      stop: tells to end.
      coordinator: the learner's node.
    """
    super().__init__(experiment, index, settings, remote, stop)
    self._experiment: Any = experiment
    self._coordinator = coordinator
    # Not yet reported:
    self._results: list[tuple[Any, ...]] = []
    self._is_round_over = False
    self._report: tuple[Any, ...] = ()  # Until it is sure that it came.

  def _make_environment(self) -> Any:
    seeds = experiment_environments.make_seeds(
      (self._experiment.seed, *self._entropy, self._limiter.num_restarts),
      self._experiment.num_environments,
    )
    try:
      made = arena_lib.make_games(self._experiment, seeds)
      return environments.GuardedEnvironment(
        arena_lib.Arena(made, self._experiment)
      )
    except Exception as error:
      raise environments.EnvironmentFailure(
        f'{type(error).__name__}: {error}'
      ) from error

  def _ticks(self, environment: Any, actor: Any) -> Iterator[rounds.Tick]:
    with contextlib.suppress(_Stopped):
      for tick in rounds.play(
        environment.guarded,
        actor,
        self._draw_seats,
        self._experiment,
        environment,
      ):
        self._tell(tick)
        yield tick

  def _tell(self, tick: rounds.Tick) -> None:
    """Tells how games ended; what a learner missed it is told once more."""
    self._results += map(tuple, tick.results)
    self._is_round_over |= tick.ends_round
    if not self._report and (self._results or self._is_round_over):
      ticket = self._coordinator.make_ticket()
      self._report = ticket, self._results, self._is_round_over
      self._results, self._is_round_over = [], False
    if self._report and self._coordinator.try_call(
      'report_results', *self._report
    ):
      self._report = ()

  def _draw_seats(self) -> np.ndarray:
    while not self._stop.is_set():
      seats = self._coordinator.try_call('draw_seats')
      if seats is not None:
        return np.asarray(seats, np.int32)
      time.sleep(_ASK_AGAIN_S)
    raise _Stopped


class _Stopped(Exception):  # noqa: N818 It is no error.
  """The run is to end."""
