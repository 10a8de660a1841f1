"""The main loop of an actor: requests steps, takes them and reports them."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ftwax import types
from ftwax.population import seating as seating_lib
from ftwax.runtime import evaluation, generations, limits, prepare
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import (
  environments,
  grants,
  processes,
  results_format,
)
from ftwax.runtime.distributed import settings as settings_lib
from ftwax.runtime.local import game_loop

_ASK_AGAIN_S = 0.1
_REGISTER_S = 0.2

# Maximum number of game steps between two reports of results.
_REPORT_STEPS = 20


class ActorLoop:
  """Runs an actor within the steps that the counter grants.

  The actor plays its own games for all members. Games that raise are replaced,
  up to a limit; their unfinished trajectories are dropped.
  """

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    index: int,
    settings: settings_lib.Settings,
    counter: processes.Remote,
    learner: processes.Remote,
    seating: seating_lib.Seating,
    stop: threading.Event,
  ):
    """Prepares the loop.

    Args:
      experiment: an agent or a population, and its task.
      index: index of the actor.
      settings: settings of the run.
      counter: node that grants steps.
      learner: node that seats members and records the results of games.
      seating: assigns seats to members and opponents.
      stop: event that ends the loop.
    """
    self._experiment = experiment
    self._index = index
    self._counter = counter
    self._learner = learner
    self._seating = seating
    self._stop = stop
    self._watchdog = environments.Watchdog(
      f'actor/{index}', experiment.environment_timeout_s
    )
    self._limiter = limits.RestartLimiter(
      settings.max_restarts, settings.restart_period_s
    )
    self._grant = grants.Grant(0)
    self._num_steps = 0  # Steps not yet reported to the counter.
    self._episodes: list[evaluation.GameResult] = []  # Likewise.
    # Not yet reported to the learner.
    self._results: list[evaluation.GameResult] = []
    self._is_round_over = False
    self._num_ticks = 0  # Since the last report of results.
    self._report: tuple[Any, ...] = ()  # Kept until it is acknowledged.
    self._entropy: tuple[int, ...] = ()

  def register(self) -> int | None:
    """Registers the actor with the counter.

    Returns:
      The actor steps of the run so far; None if the run ends in the meantime.
    """
    while not self._stop.is_set():
      steps: int | None = self._counter.call(
        'register_actor', self._index, self._counter.caller
      )
      if steps is not None:
        self._entropy = (environments.TRAINING, steps, self._index)
        return steps
      time.sleep(_REGISTER_S)
    return None

  def run(self, actors: Any) -> None:
    """Acts until no steps are left or the run ends.

    Args:
      actors: actors of all members; see `local.members.Actors`.

    Raises:
      FatalError: if the queue stalls or environments fail too often.
    """
    from ftwax.replay.reverb import tables

    # The watchdog exits the process, which must not hold other nodes.
    if processes.is_process():
      self._watchdog.start()
    try:
      while not self._stop.is_set() and not self._spent:
        try:
          self._run_environments(actors)
        except environments.EnvironmentFailure as error:
          print(f'replacing environments after an error: {error}', flush=True)
          self._limiter.count(f'environments of actor/{self._index}', error)
    except (tables.ReplayTimeoutError, limits.RestartsExceededError) as error:
      raise processes.FatalError(str(error)) from error

  @property
  def _spent(self) -> bool:
    return self._grant.is_last and self._grant.num_steps == 0

  def _run_environments(self, actors: Any) -> None:
    """Acts in new environments until one fails or no steps are left."""
    actors.reset()
    environment = self._make_environment()
    self._watchdog.environment = environment
    try:
      self._ask(environment)
      if self._spent or self._stop.is_set():
        return
      for tick in self._ticks(environment, actors):
        self._count(tick)
        if self._grant.num_steps < environment.num_environments:
          self._ask(environment)
        if self._spent or self._stop.is_set():
          return
    except environments.BudgetMet:
      # The step was taken in as many games as the granted steps allow. Steps
      # that are too few for the members' seats of a game count as taken, too,
      # or the run would never end.
      self._num_steps += self._grant.num_steps
      self._grant = grants.Grant(0, is_last=True)
      self._ask(environment)
    finally:
      self._watchdog.environment = None
      environment.close()

  def _make_environment(self) -> environments.GuardedEnvironment:
    return environments.make_environment(
      self._experiment,
      self._seating,
      (*self._entropy, self._limiter.num_restarts),
      f'{self._experiment.name}/{self._index}',
    )

  def _ticks(
    self, environment: environments.GuardedEnvironment, actors: Any
  ) -> Iterator[game_loop.Tick]:
    with contextlib.suppress(_Stopped):
      for tick in game_loop.play_rounds(
        environment.arena,
        actors,
        self._draw_seats,
        prepare.prepare(self._experiment),
        environment,
      ):
        self._report_results(tick)
        yield tick

  def _report_results(self, tick: game_loop.Tick) -> None:
    """Reports results to the learner; repeats a report that got no reply."""
    self._results += tick.results
    self._is_round_over |= tick.ends_round
    self._num_ticks += 1
    is_due = self._is_round_over or self._num_ticks >= _REPORT_STEPS
    # One report at a time: it is repeated under the same number until it gets a
    # reply.
    if not self._report and is_due and (self._results or self._is_round_over):
      packed = results_format.pack(self._results)
      number = self._learner.make_number()
      self._report = number, packed, self._is_round_over
      self._results, self._is_round_over, self._num_ticks = [], False, 0
    # Without waiting for the learner: a restart of it must not stop the games.
    if self._report and self._learner.try_call('report_results', *self._report):
      self._report = ()

  def _draw_seats(self) -> types.NumpyArray:
    while not self._stop.is_set():
      seats = self._learner.try_call('draw_seats')
      if seats is not None:
        return np.asarray(seats, np.int32)
      time.sleep(_ASK_AGAIN_S)
    raise _Stopped

  def _count(self, tick: game_loop.Tick) -> None:
    self._num_steps += tick.num_steps
    self._grant = self._grant._replace(
      num_steps=self._grant.num_steps - tick.num_steps
    )
    self._episodes += tick.results

  def _take_episodes(self) -> dict[str, Any]:
    """Returns the report of the episodes that have ended, and clears them."""
    returns, lengths = generations.member_episodes(
      self._episodes, self._seating.num_members
    )
    self._episodes = []
    row: dict[str, Any] = {}
    if len(returns):
      row = generations.train_row(returns, lengths)
      row['actor'] = self._index
      for observer in self._experiment.observers:
        row.update(observer.get_metrics())
    return {'returns': returns.sum(axis=1).tolist(), 'row': row}

  def _ask(self, environment: environments.GuardedEnvironment) -> None:
    """Reports progress and waits for a new grant.

    Returns when there are steps to take, none are left, or the run ends.
    """
    num_needed = environment.num_environments
    num_wanted = num_needed * max(self._experiment.agent.sequence_length, 1)
    while True:
      reply = self._counter.call(
        'report_actor',
        self._counter.make_number(),
        self._index,
        self._num_steps,
        self._take_episodes(),
        (num_needed, num_wanted),
        self._limiter.num_restarts,
      )
      if reply is None:
        raise ReplacedError(
          f'actor/{self._index} was considered lost and has been replaced.'
        )
      self._num_steps = 0
      self._grant = grants.Grant(*reply)
      if self._grant.num_steps or self._grant.is_last or self._stop.is_set():
        break
      time.sleep(_ASK_AGAIN_S)
    # Only the last grant may end within a step of all environments; others are
    # renewed before they run out.
    environment.limit = self._grant.num_steps if self._grant.is_last else None


class ReplacedError(RuntimeError):
  """The actor was presumed lost and its steps were granted to others."""


class _Stopped(Exception):  # noqa: N818 Control flow, not an error.
  """The run ends."""
