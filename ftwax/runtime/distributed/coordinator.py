"""The coordinator of a distributed run.

It is the only part that knows the whole run: it counts, grants steps, seats,
rates and evolves members, logs, and saves checkpoints. Actors and learners do
what it asks and remember nothing that it could not restore: so an actor that
dies costs one trajectory, which was not counted yet, and after the death of a
learner all members continue from the newest checkpoint.
"""

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging

from ftwax import types
from ftwax.population import evolution as evolution_lib
from ftwax.population import state as state_lib
from ftwax.records import files, loggers, run_directory
from ftwax.runtime import (
  evaluation,
  generations,
  prepare,
  rounds,
  run_records,
  runs,
)
from ftwax.runtime.distributed import actor as actor_lib
from ftwax.runtime.distributed import engine as engine_lib
from ftwax.runtime.distributed import health, messages, orders
from ftwax.runtime.distributed import settings as settings_lib

# Distinguish the seeds of training and evaluation environments.
_TRAINING, _EVALUATION = 0, 1

EVALUATOR = 'evaluator'

_POLL_S = 0.2
_RETRY_S = 0.5
_STATUS_S = 2.0

# Seconds that learners have to return their state.
_STATE_S = 60.0


@dataclasses.dataclass
class _Call:
  """A call without an answer.

  Attributes:
    name: name of the node.
    kind: name of the method.
    number: number of the call.
    rest: references to the other parts of the result.
    position: see `orders.Actor.position`.
  """

  name: str
  kind: str
  number: int
  rest: Sequence[Any] = ()
  position: int = 0


class Coordinator:
  """A run in progress; see `runs.Run`."""

  gives_state_away = False
  _population: state_lib.PopulationState  # Members have traits alone.

  def __init__(
    self,
    engine: engine_lib.Engine,
    settings: settings_lib.Settings,
    period: evaluation.Period | None,
    parts: prepare.Prepared,
    records: run_records.RunRecords,
    resume: bool,
  ):
    """Begins or resumes a run on nodes that have been started.

    Args:
      engine: carries calls to `actor/i`, `learner/k` and `evaluator`.
      settings: numbers of nodes, and limits.
      period: of evaluations; None for none.
      parts: the parts of the experiment.
      records: counts, logs and checkpoints of the run.
      resume: whether to continue from the newest checkpoint.
    """
    self._engine = engine
    self._period = period
    self._parts = parts
    self._experiment = parts.experiment
    self._records = records
    self._shares = np.split(
      np.arange(parts.seating.num_members), settings.num_learners
    )
    self._learners = [f'learner/{k}' for k in range(settings.num_learners)]
    self._orders = orders.Orders(parts, settings, self._learners)
    self._calls: dict[Any, _Call] = {}
    self._num_calls = 0
    self._learner_steps = 0
    self._variables: dict[str, Any] = {}  # References.
    self._variables_numbers = dict.fromkeys(self._learners, -1)
    self._faults = health.limit(settings, settings.num_actors)
    names = [*self._learners, *self._orders.actors]
    if period:
      names.append(EVALUATOR)
    self._health = health.Health(
      engine, settings, parts.experiment.stepping.timeout_s, names
    )
    self._is_recovering = False
    self._status_at = 0.0
    self._ends = False  # Whether an observer ends the run.
    self._eval_due = 0
    self._eval_counts = records.counts
    _, key = jax.random.split(parts.key)
    self._begin(key, resume)

  @property
  def training_state(self) -> types.TrainingState:
    """The members of the newest snapshot, leaves [N, ...]."""
    return self._common.members

  def snapshot(self) -> run_records.RunState:
    """Returns the present state, or the newest common one if a learner died."""
    if not self._is_recovering:
      try:
        states = self._call_learners('state')
        members = [self._engine.get(state, _STATE_S) for state in states]
      except (engine_lib.NodeLostError, TimeoutError) as error:
        logging.warning('Saving the state before, as %s', error)
      else:
        self._common = self._population._replace(
          members=actor_lib.join(members)
        )
    return run_records.RunState(self._common)

  def train(self) -> Iterator[None]:
    """Trains until all steps are taken and learned from."""
    records = self._records
    with records.training() as show:
      while not self._is_done:
        self._dispatch()
        yield from self._handle()
        if not self._is_recovering:
          records.save_if_due(self.snapshot)
        self._health.check()
        self._write_status()
        show()
        yield

  @property
  def _is_done(self) -> bool:
    if self._calls or not (self._records.done or self._ends):
      return False
    return self._ends or not self._is_evaluation_due

  @property
  def _is_evaluation_due(self) -> bool:
    period = self._period
    return (
      period is not None
      and period.count(self._records.counts) >= self._eval_due
    )

  def _begin(self, key: types.Key, resume: bool) -> None:
    """Begins or resumes the population, including the learners' members."""
    parts = self._parts
    states = self._call_learners('initial_state')
    try:
      members = actor_lib.join([self._engine.get(state) for state in states])
    except engine_lib.NodeLostError as error:
      raise engine_lib.NodeFailedError(
        f'learners must start, and one was lost before it had ({error}); see'
        f' what it has written in {self._records.directory / "output"}.'
      ) from error
    self._evolution, population = generations.start(
      parts, self._records, members, key, resume
    )
    self._common = jax.tree.map(np.asarray, population)
    self._rounds = rounds.Rounds(parts, self._records, self._evolution)
    self._totals = self._rounds.start_totals()
    self._population = rounds.only_traits(self._common)
    for _ in self._restore():
      pass
    if self._period:
      self._eval_due = self._period.next_due(self._records.counts)

  # Asking nodes.

  def _call(
    self, name: str, method: str, *args: Any, num_returns: int = 1, **more: Any
  ) -> None:
    """Calls a node; `_handle` deals with the answer."""
    first, *rest = self._engine.call(
      name, method, *args, num_returns=num_returns
    )
    self._num_calls += 1
    self._calls[first] = _Call(name, method, self._num_calls, rest, **more)

  def _call_learners(self, method: str) -> list[Any]:
    """Calls all learners; returns references to their answers."""
    return [self._engine.call(name, method)[0] for name in self._learners]

  def _dispatch(self) -> None:
    """Gives orders to the actors that may play, and to the evaluator."""
    if self._is_recovering:
      return
    busy = {call.name for call in self._calls.values()}
    if not self._ends:
      for name in self._orders.ready(busy, len(busy - {EVALUATOR})):
        self._order(name)
    self._evaluate_if_due(busy)

  def _order(self, name: str) -> None:
    """Orders a trajectory from an actor, if steps are left."""
    actor, counts = self._orders.actors[name], self._records.counts
    granted = self._orders.grant(name, counts.actor_steps)
    if not granted:
      return
    seats = None
    if actor.needs_seats:
      self._population, seats = self._rounds.draw_seats(self._population)
      actor.seats = seats
    self._call(
      name,
      'play',
      messages.Order(
        granted,
        seats,
        (_TRAINING, counts.actor_steps),
        dict(self._records.course.values),
      ),
      *self._variables.values(),
      num_returns=1 + len(self._learners),
    )

  def _evaluate_if_due(self, busy: set[str]) -> None:
    # The last one is of the members with which the run ends.
    waits = self._records.done and busy
    if not self._period or waits or EVALUATOR in busy:
      return
    if self._is_evaluation_due:
      self._eval_counts = counts = self._records.counts
      self._eval_due = self._period.next_due(counts)
      entropy = (_EVALUATION, counts.actor_steps)
      self._call(
        EVALUATOR,
        'evaluate',
        entropy,
        dict(self._records.course.values),
        *self._variables.values(),
      )

  # Answers of nodes.

  def _handle(self) -> Iterator[None]:
    """Waits for answers and deals with them."""
    for reference in self._engine.wait(list(self._calls), _POLL_S):
      call = self._calls.pop(reference, None)
      if call is None:  # A learner died meanwhile, so the answer is void.
        continue
      try:
        answer = self._engine.get(reference)
      except engine_lib.NodeLostError as error:
        yield from self._lose(call.name, error)
        continue
      self._health.see(call.name)
      if call.kind == 'play':
        self._count(call, answer)
      elif call.kind == 'learn':
        self._note_learned(call, answer)
      elif call.kind == 'evaluate':
        self._log_evaluation(answer)
      elif call.kind == 'adopt':
        self._note_variables(call, reference)

  def _count(self, call: _Call, played: messages.Played) -> None:
    """Counts what an actor has played, and passes it to the learners."""
    actor = self._orders.actors[call.name]
    actor.held = 0
    actor.needs_seats = played.ends_round
    if played.fault is not None:
      name, fault = call.name, played.fault
      logging.warning('Environments of %s are made again: %s', name, fault)
      self._faults.count(f'environments of {name}', fault)
    self._record(call.name, played)
    if played.has_items:
      position = self._orders.place(call.name)
      for name, items in zip(self._learners, call.rest, strict=True):
        self._call(name, 'learn', items, num_returns=2, position=position)
    if played.ends_round:
      self._end_round()

  def _record(self, name: str, played: messages.Played) -> None:
    """Adds to counts, ratings and logs what an actor has played."""
    if played.episodes is None:
      self._records.advance(played.num_steps, [], self._learner_steps)
      return
    self._population, self._totals = self._rounds.rate(
      self._population,
      self._totals,
      self._orders.actors[name].seats,
      # Of one call with one rollout.
      jax.tree.map(lambda leaf: leaf[None, None], played.episodes),
    )
    index = int(name.partition('/')[2])
    self._rounds.record(
      played.episodes,
      self._learner_steps,
      played.measured,
      actor=index,
      **played.metrics,
    )

  def _note_learned(self, call: _Call, learned: messages.Learned) -> None:
    """Takes over a learner's progress, logs and variables."""
    self._orders.learn(call.name, call.position - learned.num_queued)
    if learned.num_steps != self._learner_steps:
      self._learner_steps = learned.num_steps
      self._records.advance(0, [], learned.num_steps)
    index = self._learners.index(call.name)
    for row in learned.rows:
      if len(self._learners) > 1:
        row = {**row, 'learner': index}
      # Each learner drops rows that follow each other too quickly.
      self._learner_logger.write(row)
    if learned.has_variables:
      self._note_variables(call, call.rest[0])

  def _note_variables(self, call: _Call, reference: Any) -> None:
    """Takes over variables unless newer ones have come before."""
    if call.number > self._variables_numbers[call.name]:
      self._variables[call.name] = reference
      self._variables_numbers[call.name] = call.number

  def _log_evaluation(self, outcome: evaluation.Outcome) -> None:
    self._ends |= runs.report_evaluation(
      outcome,
      self._eval_counts,
      self._experiment.observers,
      self._records,
      self.snapshot,
    )

  # Evolution.

  def _end_round(self) -> None:
    """Logs the round and evolves the members, wherever they are."""
    self._population, generation = self._rounds.end(
      self._population, self._totals
    )
    self._totals = self._rounds.start_totals()
    if generation is not None:
      self._copy(generation)

  def _copy(self, generation: evolution_lib.Generation) -> None:
    """Has learners copy members from each other, between two updates."""
    parent = np.asarray(generation.parent)
    copies = parent != np.arange(len(parent))
    changed = copies | np.asarray(generation.is_redrawn)
    share = len(parent) // len(self._learners)
    # All give before any adopts: a parent that copies somebody itself passes on
    # what it had before.
    given: list[Any] = []
    places: dict[int, tuple[int, int]] = {}
    for k, name in enumerate(self._learners):
      rows = sorted({int(p) for p in parent[copies] if p // share == k})
      if rows:
        places.update({p: (len(given), i) for i, p in enumerate(rows)})
        given += self._engine.call(name, 'give', [p - k * share for p in rows])
    for name, members in zip(self._learners, self._shares, strict=True):
      own = [int(member) for member in members if changed[member]]
      if own:
        traits = {
          member % share: jax.tree.map(
            lambda leaf, row=member: np.asarray(leaf)[row], generation.explored
          )
          for member in own
        }
        parents = {
          member % share: places[int(parent[member])]
          for member in own
          if copies[member]
        }
        self._call(name, 'adopt', traits, parents, *given)

  # Failures.

  def _lose(self, name: str, error: Exception) -> Iterator[None]:
    """Deals with the death of a node, which starts again."""
    self._health.lose(name, error)
    if health.is_actor(name):
      self._orders.lose(name)
    elif name == EVALUATOR:
      self._eval_due = 0  # At once.
    else:
      yield from self._recover()

  def _recover(self) -> Iterator[None]:
    """Brings all learners back to the newest common checkpoint."""
    logging.warning('All members continue from the newest checkpoint.')
    self._is_recovering = True
    self._calls = {
      reference: call
      for reference, call in self._calls.items()
      if not call.name.startswith('learner')
    }
    self._evolution.resume(self._common)
    self._population = rounds.only_traits(self._common)
    yield from self._restore()
    self._is_recovering = False

  def _restore(self) -> Iterator[None]:
    """Gives the learners the members of the newest common checkpoint."""
    missing = list(self._learners)
    while missing:
      calls = []
      for name in missing:
        rows = self._shares[self._learners.index(name)]
        members = jax.tree.map(
          lambda leaf, rows=rows: leaf[rows], self._common.members
        )
        calls.append((name, self._engine.call(name, 'restore', members)[0]))
      missing = []
      for name, reference in calls:
        while not self._engine.wait([reference], _POLL_S):
          yield
        try:
          self._engine.get(reference)
        except engine_lib.NodeLostError:
          missing.append(name)
          time.sleep(_RETRY_S)
          yield
        else:
          self._health.see(name)
          self._variables[name] = reference
          self._num_calls += 1
          self._variables_numbers[name] = self._num_calls
    self._orders.restart()

  # Logs.

  @functools.cached_property
  def _learner_logger(self) -> loggers.Logger:
    return self._records.open_logger('learner', 'learner_steps')

  def _write_status(self) -> None:
    """Writes what the live page shows of each node."""
    now = time.monotonic()
    if now < self._status_at:
      return
    self._status_at = now + _STATUS_S
    path = self._records.directory / run_directory.NODES_FILE
    path.parent.mkdir(exist_ok=True)
    with contextlib.suppress(OSError):  # A full disk is reported elsewhere.
      files.write_atomically(path, json.dumps(self._health.describe()))
