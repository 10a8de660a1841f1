"""The node that counts: steps granted, episodes, logs, who is alive.

It is the one process that writes the run's logs. Others reach it by courier;
what they send are plain numbers, lists and dicts. It keeps no file of its own:
counts stand in the checkpoints, and a learner, which holds those, tells them to
a counter that has just been started.
"""

import contextlib
import functools
import pathlib
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ftwax.records import loggers
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import grants, processes

LEARNER, EVALUATOR, REPLAY = 'learner', 'evaluator', 'replay'
INFERENCE = 'inference'

# What an evaluator is told to do.
WAIT, EVALUATE, LEAVE = 'wait', 'evaluate', 'leave'

_POLL_S = 0.2


def actor_name(index: int) -> str:
  """Returns the name by which an actor is known."""
  return f'actor/{index}'


class Counter:
  """Grants steps, counts and logs; public methods are called by courier."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    directory: str,
    num_actors: int,
    eval_every: int | None,
  ):
    """Starts at zero; see `report_learner`.

    Args:
      experiment: what runs.
      directory: of the run.
      num_actors: of the program.
      eval_every: steps between evaluations; None if there is no evaluator.
    """
    self._max_steps = experiment.max_num_actor_steps
    self._eval_every = eval_every
    self._actors = [actor_name(index) for index in range(num_actors)]
    self._make_logger = experiment.logger_factory or (
      loggers.make_logger_factory(pathlib.Path(directory), terminal=False)
    )
    self._loggers: dict[str, Any] = {}
    self._lock = threading.Lock()
    self._budget: grants.Budget | None = None
    self._counts = run_records.Counts()
    self._returns: deque[float] = deque(maxlen=run_records.WINDOW)
    self._started_at = time.monotonic()
    self._seconds_before = 0.0
    self._next_evaluation = 0
    self._seen: dict[str, float] = {}
    self._finished: set[str] = set()
    self._failures: dict[str, int] = {}
    self._replay: dict[str, Any] = {}
    self._replies = processes.Replies()

  def run(self) -> None:
    """Serves until all others have ended, or until told to end."""
    with processes.node('counter') as stop, contextlib.ExitStack() as stack:
      processes.keep_to_cpu(0)
      stack.callback(self._close_loggers)
      while not stop.wait(_POLL_S) and REPLAY not in self._finished:
        pass

  def register_actor(self, index: int) -> int | None:
    """Takes an actor in, whose predecessor is gone.

    Args:
      index: of the actor.

    Returns:
      Actor steps of the run, for the actor's seeds; None if no learner has
      told yet how far the run is, to be asked again.
    """
    with self._lock:
      self._seen[actor_name(index)] = time.monotonic()
      self._finished.discard(actor_name(index))
      if self._budget is None:
        return None
      self._budget.release(index)
      return self._counts.actor_steps

  def report_actor(
    self,
    ticket: Sequence[Any],
    index: int,
    num_steps: int,
    episodes: Sequence[Mapping[str, Any]],
    needed_and_wanted: Sequence[int],
    num_failures: int = 0,
  ) -> grants.Grant:
    """Counts what an actor did and grants it steps.

    Args:
      ticket: of the call; see `processes.Replies`.
      index: of the actor.
      num_steps: taken since the last report.
      episodes: rows of the training log, one for each episode that ended.
      needed_and_wanted: see `grants.Budget.ask`.
      num_failures: environments made anew in the actor's life.

    Returns:
      A grant; over courier, a tuple of its fields.
    """
    with self._lock:
      name = actor_name(index)
      self._seen[name] = time.monotonic()
      self._failures[name] = num_failures
      if self._budget is None:
        return grants.Grant(0)
      return self._replies.answer(
        ticket,
        functools.partial(
          self._count,
          self._budget,
          index,
          num_steps,
          episodes,
          needed_and_wanted,
        ),
      )

  def report_learner(
    self,
    learner_steps: int,
    base: Mapping[str, Any],
    ticket: Sequence[Any],
    rows: Sequence[tuple[str, Mapping[str, Any]]],
  ) -> dict[str, Any]:
    """Counts and logs what the learner did.

    Args:
      learner_steps: updates of the whole run.
      base: `counts` and `returns` as the learner last knew them, from which a
        counter that has just been started goes on.
      ticket: of the rows; see `processes.Replies`.
      rows: label and values of rows to log.

    Returns:
      `counts` and `returns` for a checkpoint, `done` if all steps are taken,
      `leave` if nobody needs the learner any more.
    """
    with self._lock:
      self._seen[LEARNER] = time.monotonic()
      self._finished.discard(LEARNER)  # One that was started anew.
      if self._budget is None:
        self._go_on_from(base)
      self._counts = self._counts._replace(learner_steps=learner_steps)
      self._replies.answer(ticket, functools.partial(self._log_rows, rows))
      return {
        'counts': self._counts._asdict(),
        'returns': list(self._returns),
        'done': self._done,
        'leave': not self._eval_every or EVALUATOR in self._finished,
      }

  def poll_evaluator(self) -> str:
    """Returns what the evaluator is to do: WAIT, EVALUATE or LEAVE."""
    with self._lock:
      self._seen[EVALUATOR] = time.monotonic()
      if self._budget is None or not self._eval_every:
        return WAIT
      if self._counts.actor_steps >= self._next_evaluation:
        return EVALUATE
      return LEAVE if self._done else WAIT

  def report_evaluation(
    self,
    ticket: Sequence[Any],
    returns: Sequence[float],
    lengths: Sequence[int],
  ) -> None:
    """Logs an evaluation's episodes; see `processes.Replies` for `ticket`."""
    with self._lock:
      self._replies.answer(
        ticket, functools.partial(self._log_evaluation, returns, lengths)
      )

  def report_replay(self, statistics: Mapping[str, Any]) -> bool:
    """Takes a sign of life; returns whether nobody needs the server now."""
    with self._lock:
      self._seen[REPLAY] = time.monotonic()
      self._replay = dict(statistics)
      return self._finished.issuperset([LEARNER, *self._actors])

  def report_inference(self) -> bool:
    """Takes a sign of life; returns whether nobody acts any more."""
    with self._lock:
      self._seen[INFERENCE] = time.monotonic()
      return self._finished.issuperset(self._actors)

  def finish(self, name: str) -> None:
    """Notes that a node has done all that it had to."""
    with self._lock:
      self._finished.add(name)

  def status(self) -> dict[str, Any]:
    """Returns what a table of the run shows."""
    with self._lock:
      now = time.monotonic()
      returns = list(self._returns)
      return {
        'counts': self._counts._asdict(),
        'mean_return': float(np.mean(returns)) if returns else float('nan'),
        'ages': {name: now - seen for name, seen in self._seen.items()},
        'failures': dict(self._failures),
        'finished': sorted(self._finished),
        'replay': self._replay,
      }

  @property
  def _done(self) -> bool:
    return self._budget is not None and self._budget.done

  def _go_on_from(self, base):
    self._counts = run_records.Counts(**base['counts'])
    self._returns.extend(base['returns'])
    self._started_at = time.monotonic()
    self._seconds_before = self._counts.seconds
    self._budget = grants.Budget(self._max_steps, self._counts.actor_steps)
    if self._eval_every:
      self._next_evaluation = self._counts.actor_steps + self._eval_every

  def _count(self, budget, index, num_steps, episodes, needed_and_wanted):
    budget.take(index, num_steps)
    self._returns.extend(row['episode_return'] for row in episodes)
    self._counts = self._counts._replace(
      actor_steps=budget.steps,
      episodes=self._counts.episodes + len(episodes),
      seconds=self._seconds(),
    )
    for row in episodes:
      self._log('train', {**row, **self._counts._asdict()})
    return budget.ask(index, *needed_and_wanted)

  def _seconds(self):
    return self._seconds_before + time.monotonic() - self._started_at

  def _log(self, label, values):
    if label not in self._loggers:
      steps_key = 'learner_steps' if label == LEARNER else 'actor_steps'
      self._loggers[label] = self._make_logger(label, steps_key, None)
    self._loggers[label].write(values)

  def _log_rows(self, rows):
    for label, values in rows:
      self._log(label, values)

  def _log_evaluation(self, returns, lengths):
    values = {
      'episode_return': np.mean(returns),
      'episode_return_std': np.std(returns),
      'episode_length': np.mean(lengths),
      'num_episodes': len(returns),
    }
    self._log('evaluation', {**values, **self._counts._asdict()})
    self._next_evaluation += self._eval_every or 0

  def _close_loggers(self):
    with self._lock, contextlib.ExitStack() as stack:
      for logger in self._loggers.values():
        stack.callback(logger.close)
      self._loggers.clear()
