"""The loop of an actor: asks for steps, takes them, tells what it did."""

import copy
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import environments, grants, limits, processes
from ftwax.runtime.distributed import settings as settings_lib
from ftwax.runtime.host import environment_loop

_ASK_AGAIN_S = 0.1
_REGISTER_S = 0.2


def with_timeout(builder: Any, timeout_s: float) -> Any:
  """Returns the builder with another time for the queue to take or give."""
  changed = copy.copy(builder)  # Its constructor may take other arguments.
  config = dataclasses.replace(builder.config, replay_timeout_s=timeout_s)
  object.__setattr__(changed, 'config', config)
  return changed


class ActorLoop:
  """Runs an actor within the steps that the counter grants.

  Environments that raise are made anew, within limits; their unfinished
  trajectories are dropped.
  """

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    index: int,
    settings: settings_lib.Settings,
    counter: processes.Remote,
    stop: threading.Event,
  ):
    """Prepares the loop of actor `index`."""
    self._experiment = experiment
    self._index = index
    self._counter = counter
    self._stop = stop
    self._watchdog = environments.Watchdog(
      f'actor/{index}', settings.environment_timeout_s
    )
    self._limiter = limits.RestartLimiter(
      settings.max_restarts, settings.restart_period_s
    )
    self._grant = grants.Grant(0)
    self._num_steps = 0  # Not yet reported.
    self._episodes: list[dict[str, Any]] = []  # Not yet reported.
    self._entropy: tuple[int, ...] = ()

  def register(self) -> int | None:
    """Tells the counter of the actor.

    Returns:
      Actor steps of the run so far; None if it is ended meanwhile.
    """
    while not self._stop.is_set():
      steps = self._counter.call('register_actor', self._index)
      if steps is not None:
        self._entropy = (environments.TRAINING, steps, self._index)
        return steps
      time.sleep(_REGISTER_S)
    return None

  def run(self, actor: Any, adder: Any) -> None:
    """Acts until no step is left, or until told to end.

    Args:
      actor: acts in `experiment.num_environments` environments.
      adder: its adder.

    Raises:
      FatalError: the queue stalled, or environments failed too often.
    """
    from ftwax.replay.reverb import tables

    if processes.is_process():
      self._watchdog.start()
    try:
      while not self._stop.is_set() and not self._spent:
        try:
          self._run_environments(actor, adder)
        except environments.EnvironmentFailure as error:
          print(f'environments are made anew after: {error}', flush=True)
          self._limiter.count(f'environments of actor/{self._index}', error)
    except (tables.ReplayTimeoutError, limits.RestartsExceededError) as error:
      raise processes.FatalError(str(error)) from error

  @property
  def _spent(self) -> bool:
    return self._grant.is_last and self._grant.num_steps == 0

  def _run_environments(self, actor, adder):
    """Acts in new environments, until one of them fails or all is done."""
    adder.reset()
    environment = self._make_environment()
    self._watchdog.environment = environment
    try:
      self._ask(environment)
      if self._spent or self._stop.is_set():
        return
      for tick in self._ticks(environment, actor):
        self._count(tick)
        if self._grant.num_steps < environment.num_environments:
          self._ask(environment)
        if self._spent or self._stop.is_set():
          return
    except environments.BudgetMet:
      self._num_steps += self._grant.num_steps
      self._grant = grants.Grant(0, is_last=True)
      self._ask(environment)
    finally:
      self._watchdog.environment = None
      environment.close()

  def _make_environment(self) -> environments.GuardedEnvironment:
    return environments.make_environments(
      self._experiment,
      self._experiment.num_environments,
      (*self._entropy, self._limiter.num_restarts),
      f'{self._experiment.name}/{self._index}',
    )

  def _ticks(self, environment: Any, actor: Any) -> Iterator[Any]:
    """Yields what `environment_loop.Tick` tells, for each step."""
    return environment_loop.run_loop(
      environment, actor, self._experiment.observers
    )

  def _count(self, tick):
    self._num_steps += tick.num_steps
    self._grant = self._grant._replace(
      num_steps=self._grant.num_steps - tick.num_steps
    )
    for episode in tick.episodes:
      row = {
        'episode_return': episode.episode_return,
        'episode_length': episode.episode_length,
        'actor': self._index,
      }
      for observer in self._experiment.observers:
        row.update(observer.get_metrics())
      self._episodes.append(row)

  def _ask(self, environment):
    """Reports, and waits until there are steps to take or none is left."""
    num_needed = environment.num_environments
    num_wanted = num_needed * max(
      self._experiment.builder.config.sequence_length, 1
    )
    while True:
      reply = self._counter.call(
        'report_actor',
        self._counter.make_ticket(),
        self._index,
        self._num_steps,
        self._episodes,
        (num_needed, num_wanted),
        self._limiter.num_restarts,
      )
      self._num_steps, self._episodes = 0, []
      self._grant = grants.Grant(*reply)
      if self._grant.num_steps or self._grant.is_last or self._stop.is_set():
        break
      time.sleep(_ASK_AGAIN_S)
    environment.limit = self._grant.num_steps if self._grant.is_last else None
