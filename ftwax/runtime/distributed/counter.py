"""The counter node: grants steps, counts episodes, logs and tracks liveness.

It is the only process that writes the logs of the run. Other nodes call it by
courier with plain numbers, lists and dicts. It keeps no file of its own: counts
are stored in the checkpoints, and the learner reports them to a counter that
has just started.
"""

import contextlib
import functools
import pathlib
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ftwax.records import loggers
from ftwax.runtime import evaluation, prepare, run_records
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import grants, processes, shares

EVALUATOR, INFERENCE, KEEPER = 'evaluator', 'inference', 'keeper'

# Commands to an evaluator.
WAIT, EVALUATE, LEAVE = 'wait', 'evaluate', 'leave'

_POLL_S = 0.2


def actor_name(index: int) -> str:
  """Returns the name of an actor node."""
  return f'actor/{index}'


class Counter:
  """Grants steps, counts and logs; other nodes call its public methods."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    directory: str,
    num_actors: int,
    eval_every: int | None,
    num_learners: int = 1,
  ):
    """Starts at zero; the first `report_learner` restores the counts.

    Args:
      experiment: the experiment that runs.
      directory: directory of the run.
      num_actors: number of actors in the program.
      eval_every: steps between evaluations; None if there is no evaluator.
      num_learners: number of learners in the program; there are as many replay
        nodes.
    """
    self._max_steps = experiment.max_num_actor_steps
    self._eval_every = eval_every
    self._actors = [actor_name(index) for index in range(num_actors)]
    self._learners = shares.node_names('learner', num_learners)
    self._replays = shares.node_names('replay', num_learners)
    self._last = list(self._replays)  # Last to end before the counter.
    if shares.has_keeper(experiment.population.num_members, num_learners):
      self._last.append(KEEPER)
    self._stack = contextlib.ExitStack()  # Closes the logs.
    # The learner's node saves the checkpoints.
    self._records = run_records.RunRecords(
      prepare.prepare(experiment.replace(checkpointing=None)),
      pathlib.Path(directory),
      self._stack,
    )
    self._lock = threading.Lock()
    self._budget: grants.Budget | None = None
    self._learner_steps = 0
    self._next_evaluation = 0
    self._evaluations: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
    self._callers: dict[int, str] = {}  # `Remote.caller` of each actor.
    self._seen: dict[str, float] = {}
    self._finished: set[str] = set()
    self._failures: dict[str, int] = {}
    self._loggers: dict[str, loggers.Logger] = {}
    self._replay: dict[str, dict[str, Any]] = {}  # By node.
    self._replies = processes.Replies()

  def run(self) -> None:
    """Serves until all other nodes have ended or the run ends."""
    with processes.node('counter') as stop, contextlib.ExitStack() as stack:
      processes.keep_to_cpu(0)
      stack.callback(self._close)
      while not (stop.wait(_POLL_S) or self._finished.issuperset(self._last)):
        pass

  def register_actor(self, index: int, caller: str) -> int | None:
    """Registers an actor that starts or replaces a lost one.

    Args:
      index: index of the actor.
      caller: the caller ID of the actor's calls; see `processes.Remote`.

    Returns:
      The actor steps of the run, from which the actor derives its seeds. None
      if no learner has reported the progress of the run yet; call again.
    """
    with self._lock:
      self._seen[actor_name(index)] = time.monotonic()
      # One that was released for lack of a host counts as finished.
      self._finished.discard(actor_name(index))
      if self._budget is None:
        return None
      # The predecessor's steps that were not reported are granted anew.
      self._budget.release(index)
      self._callers[index] = caller
      return self._records.counts.actor_steps

  def release_actor(self, index: int) -> bool:
    """Releases a lost actor for which there is no host to restart on.

    Args:
      index: index of the actor.

    Returns:
      Whether its steps were released to others; False until a learner has
      reported the progress of the run.
    """
    with self._lock:
      if self._budget is None:
        return False
      self._budget.release(index)
      self._callers[index] = ''
      self._finished.add(actor_name(index))
      return True

  def report_actor(
    self,
    number: Sequence[Any],
    index: int,
    num_steps: int,
    episodes: Mapping[str, Any],
    needed_and_wanted: Sequence[int],
    num_failures: int = 0,
  ) -> grants.Grant | None:
    """Counts the steps of an actor and grants it new ones.

    Args:
      number: number of the call; see `processes.Replies`.
      index: index of the actor.
      num_steps: number of steps taken since the last report.
      episodes: `returns` of the episodes that ended since the last report, and
        their `row` for the training log, which is empty without episodes.
      needed_and_wanted: see `grants.Budget.ask`.
      num_failures: number of times that the actor has replaced its
        environments.

    Returns:
      A grant; over courier, a tuple of its fields. None if another actor has
      replaced this one, for example while its host was disconnected: its steps
      were granted to others.
    """
    with self._lock:
      name = actor_name(index)
      # Checked before anything is counted: these steps were granted to others.
      if self._callers.get(index, number[0]) != number[0]:
        return None
      self._seen[name] = time.monotonic()
      self._failures[name] = num_failures
      if self._budget is None:
        return grants.Grant(0)
      return self._replies.answer(
        number,
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
    number: Sequence[Any],
    rows: Sequence[tuple[str, Mapping[str, Any]]],
    index: int = 0,
    num_evaluations: int = 0,
    ends: bool = False,
  ) -> dict[str, Any] | None:
    """Counts and logs the progress of a learner.

    Only the updates of learner 0 are counted.

    Args:
      learner_steps: number of updates of the whole run.
      base: `counts` and `returns` as last known to the learner; a counter that
        has just started continues from them.
      number: number of the call with these rows; see `processes.Replies`.
      rows: labels and values of rows to log.
      index: index of the learner.
      num_evaluations: number of evaluations that the learner has received.
      ends: whether an observer of the learner ends the run.

    Returns:
      `counts` and `returns` for a checkpoint; `done`, whether all steps are
      taken; `leave`, whether no node needs the learner any more; and
      `evaluations` that the learner has not received, each a row and the counts
      at the time. None for other learners until learner 0 has reported.
    """
    with self._lock:
      self._see_learner(index)
      if index == 0:
        if self._budget is None:
          self._continue_from(base)
        self._learner_steps = learner_steps
        self._records.advance(0, (), learner_steps)
      elif self._budget is None:
        return None
      if ends and not self._done and self._budget is not None:
        self._budget.end()
      self._replies.answer(number, functools.partial(self._log_rows, rows))
      return {
        **self._progress(),
        'done': self._done,
        'evaluations': self._evaluations[num_evaluations:],
        # The evaluator still needs variables after the last step.
        'leave': not self._eval_every or EVALUATOR in self._finished,
      }

  def report_follower(self, index: int) -> None:
    """Records a heartbeat of a learner that follows the first one."""
    with self._lock:
      self._see_learner(index)

  def report_keeper(
    self, number: Sequence[Any], rows: Sequence[tuple[str, Mapping[str, Any]]]
  ) -> dict[str, Any] | None:
    """Logs rows of the keeper of a population.

    Args:
      number: number of the call with these rows; see `processes.Replies`.
      rows: labels and values of rows to log.

    Returns:
      `counts` and `returns` for a checkpoint, and `leave`, whether no node
      needs the keeper any more. None until a learner has reported.
    """
    with self._lock:
      self._seen[KEEPER] = time.monotonic()
      if self._budget is None:
        return None
      self._replies.answer(number, functools.partial(self._log_rows, rows))
      others = [*self._learners, *self._actors]
      return {
        **self._progress(),
        'leave': self._finished.issuperset(others),
      }

  def poll_evaluator(self) -> str:
    """Returns the next command for the evaluator: WAIT, EVALUATE or LEAVE."""
    with self._lock:
      self._seen[EVALUATOR] = time.monotonic()
      if self._budget is None or not self._eval_every:
        return WAIT
      # Checked first: an evaluation that is due at the end still takes place.
      if self._records.counts.actor_steps >= self._next_evaluation:
        return EVALUATE
      return LEAVE if self._done else WAIT

  def report_evaluation(
    self, number: Sequence[Any], row: Mapping[str, Any]
  ) -> None:
    """Logs the row of an evaluation; see `processes.Replies` for `number`."""
    with self._lock:
      self._replies.answer(number, functools.partial(self._log_evaluation, row))

  def report_replay(self, index: int, statistics: Mapping[str, Any]) -> bool:
    """Records a heartbeat of a replay node.

    Args:
      index: index of the node.
      statistics: size and limit of each table.

    Returns:
      Whether no node needs the replay servers any more.
    """
    with self._lock:
      name = self._replays[index]
      self._seen[name] = time.monotonic()
      self._replay[name] = dict(statistics)
      return self._finished.issuperset([*self._learners, *self._actors])

  def report_inference(self) -> bool:
    """Records a heartbeat; returns whether all actors have ended."""
    with self._lock:
      self._seen[INFERENCE] = time.monotonic()
      return self._finished.issuperset(self._actors)

  def finish(self, name: str) -> None:
    """Records that a node has finished its work."""
    with self._lock:
      self._finished.add(name)

  def status(self) -> dict[str, Any]:
    """Returns the status that the table of the run shows."""
    with self._lock:
      now = time.monotonic()
      return {
        'counts': self._records.counts._asdict(),
        'mean_return': self._records.mean_return,
        'ages': {name: now - seen for name, seen in self._seen.items()},
        'failures': dict(self._failures),
        'finished': sorted(self._finished),
        'replay': _add_up(self._replay.values()),
      }

  @property
  def _done(self) -> bool:
    return self._budget is not None and self._budget.done

  def _progress(self) -> dict[str, Any]:
    return {
      'counts': self._records.counts._asdict(),
      'returns': self._records.returns,
    }

  def _see_learner(self, index: int) -> None:
    """Records a heartbeat of a learner, which may have been restarted."""
    name = self._learners[index]
    self._seen[name] = time.monotonic()
    self._finished.discard(name)

  def _continue_from(self, base: Mapping[str, Any]) -> None:
    counts = run_records.Counts(**base['counts'])
    self._records.continue_from(counts, base['returns'])
    self._budget = grants.Budget(self._max_steps, counts.actor_steps)
    if self._eval_every:
      self._next_evaluation = evaluation.next_step(
        counts.actor_steps, self._eval_every
      )

  def _count(
    self,
    budget: grants.Budget,
    index: int,
    num_steps: int,
    episodes: Mapping[str, Any],
    needed_and_wanted: Sequence[int],
  ) -> grants.Grant:
    budget.take(index, num_steps)
    self._records.advance(num_steps, episodes['returns'], self._learner_steps)
    if episodes['row']:
      self._log('train', episodes['row'])
    return budget.ask(index, *needed_and_wanted)

  def _log(self, label: str, values: Mapping[str, Any]) -> None:
    if label not in self._loggers:
      self._loggers[label] = self._records.open_logger(label)
    self._loggers[label].write({**values, **self._records.counts._asdict()})

  def _log_rows(self, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    for label, values in rows:
      self._log(label, values)

  def _log_evaluation(self, row: Mapping[str, Any]) -> None:
    self._log('evaluation', row)
    self._evaluations.append((dict(row), self._records.counts._asdict()))
    self._next_evaluation += self._eval_every or 0

  def _close(self) -> None:
    with self._lock:
      self._loggers.clear()
      self._stack.close()


def _add_up(statistics: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
  """Returns the size and limit of each table, summed over replay nodes."""
  sums: dict[str, list[int]] = {}
  for tables in statistics:
    for name, (size, limit) in tables.items():
      before = sums.get(name, [0, 0])
      sums[name] = [before[0] + size, before[1] + limit]
  return sums
