"""The keeper node of a population whose members are held by several learners.

It stores what is small: ratings, results, traits and the lineage. It seats
members and draws a generation when a round of an actor is over. A learner asks
which members to copy, fetches them from the parents' learners, saves a
checkpoint and reports back. Only then does the keeper record the copies, so a
copy that fails leaves no trace. No node waits for another.
"""

import contextlib
import functools
import pathlib
import threading
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.population import copies as copies_lib
from ftwax.population import evolution as evolution_lib
from ftwax.population import state as state_lib
from ftwax.records import checkpoints, log_values
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import generations, parts, prepare, run_records
from ftwax.runtime.distributed import counter, processes, results_format
from ftwax.runtime.distributed import settings as settings_lib

_POLL_S = 0.2

# Seconds between two saves while copies have to be saved.
_SAVE_S = 1.0

# Minimum seconds between rounds, per member, since a row of the population's
# log has a number for each pair of members.
_ROUND_S = 1.0 / 64.0

# After so many seconds without a call, a learner counts as away and none of its
# members is copied.
_AWAY_S = 10.0


class Keeper:
  """Seats and rates members and draws generations; called by courier."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    directory: str,
    settings: settings_lib.Settings,
    counter_client: Any,
  ):
    """Stores the arguments; `run` restores the population.

    Args:
      experiment: a population and its task.
      directory: directory of the run; continues from its newest checkpoint.
      settings: settings of the run; each of K learners holds n members.
      counter_client: client of the counter.
    """
    self._experiment = experiment
    self._directory = pathlib.Path(directory)
    self._num_learners = settings.num_learners
    self._shares = np.split(
      np.arange(experiment.population.num_members, dtype=np.int32),
      settings.num_learners,
    )
    self._counter = processes.Remote(counter_client, 'counter')
    self._lock = threading.Lock()
    self._replies = processes.Replies()
    self._structure: Any = None  # Of the leaves that learners send.
    self._evolution: Any = None
    self._checkpointer: Any = None
    self._coordinator: Any = None  # None until all learners have joined.
    self._members = _Members()
    self._numbers = np.zeros(settings.num_learners, np.int32)
    self._saved_numbers = self._numbers
    self._num_changes = self._num_saved_changes = 0
    self._joined: dict[int, evolution_lib.Traits] = {}
    self._asked_at: dict[int, float] = {}
    self._drafts = _Drafts()
    self._has_taken: set[int] = set()  # Learners, from the newest draft.
    self._is_busy: set[int] = set()  # Learners that are making copies.
    self._save_lock = threading.Lock()
    self._is_round_over = False
    self._rows: list[tuple[str, dict[str, Any]]] = []
    self._reported_rows: tuple[Any, ...] = ()  # Kept until acknowledged.
    self._status: dict[str, Any] = {
      'counts': run_records.Counts()._asdict(),
      'returns': [],
    }

  def draw_seats(self) -> types.NumpyArray | None:
    """Returns the player on each seat of an arena; None if not ready."""
    with self._lock:
      if self._coordinator is None:
        return None
      seats: types.NumpyArray = self._coordinator.draw_seats(
        self._members.state.internal_rewards
      )
      return seats

  def report_results(
    self,
    number: Sequence[Any],
    results: Sequence[types.NumpyArray],
    ends_round: bool,
  ) -> bool:
    """Records the results of games; see `learner_node.Learner`."""
    with self._lock:
      if self._coordinator is None:
        return False
      self._replies.answer(
        number, functools.partial(self._record, results, ends_round)
      )
      return True

  def join(
    self, index: int, leaves: Sequence[types.NumpyArray]
  ) -> list[types.NumpyArray] | None:
    """Registers a learner after it or the keeper has started.

    Args:
      index: index of the learner.
      leaves: leaves of the traits of its members and of its last copies.

    Returns:
      The keeper's record of the learner's last copies, of which only traits and
      number matter; None until all learners have joined.
    """
    with self._lock:
      if self._structure is None:
        return None
      traits, copies = self._structure.unflatten(leaves)
      self._joined[index] = traits
      self._asked_at[index] = time.monotonic()
      if self._coordinator is None and not self._begin_if_complete():
        return None
      self._settle(index, copies)
      member = self._shares[index]
      known = copies_lib.no_copies(self._traits(member), member)
      return jax.tree.leaves(known._replace(number=self._numbers[index]))

  def ask(self, index: int) -> list[types.NumpyArray] | None:
    """Returns the copies that a learner should make.

    Args:
      index: index of the learner, which has settled or dropped the copies of
        the last call.

    Returns:
      Leaves of `copies.Copies`; an empty list if there is nothing to copy; None
      if the learner has to join first.
    """
    with self._lock:
      if self._coordinator is None or index not in self._joined:
        return None
      self._asked_at[index] = time.monotonic()
      self._is_busy.discard(index)
      draft = self._drafts.newest
      # No copies based on unsaved changes, which might be lost.
      if draft is None or self._is_dirty() or index in self._has_taken:
        return []
      self._has_taken.add(index)
      copies = self._still_right(
        copies_lib.take(draft, self._shares[index], self._numbers[index] + 1)
      )
      if not copies.rows:
        return []
      self._is_busy.add(index)
      return jax.tree.leaves(copies)

  def settle(self, index: int, leaves: Sequence[types.NumpyArray]) -> bool:
    """Records copies that a learner has made and saved.

    Args:
      index: index of the learner.
      leaves: leaves of `copies.Copies`.

    Returns:
      Whether they are recorded and saved here too; otherwise call again.
    """
    with self._lock:
      if self._coordinator is None:
        return False
      _, structure = self._structure.children()
      copies = structure.unflatten(leaves)
      self._settle(index, copies)
      return bool(self._saved_numbers[index] >= copies.number)

  def run(self) -> None:
    """Keeps the population until all other nodes have ended."""
    with (
      processes.node(counter.KEEPER, self._save) as stop,
      contextlib.ExitStack() as stack,
    ):
      processes.keep_to_cpu(0)
      self._make(stack)
      config = self._experiment.checkpointing
      assert config is not None
      round_s = _ROUND_S * self._experiment.population.num_members
      round_at = saved_at = time.monotonic()
      while not (self._report() or stop.wait(_POLL_S)):
        if self._is_round_over and time.monotonic() - round_at >= round_s:
          self._end_round()
          round_at = time.monotonic()
        seconds = time.monotonic() - saved_at
        if seconds >= config.save_every_seconds or (
          self._is_dirty() and seconds >= _SAVE_S
        ):
          self._save()
          saved_at = time.monotonic()
      self._end_round()
      self._save()
      self._report()
      self._counter.try_call('finish', counter.KEEPER)

  def _make(self, stack: contextlib.ExitStack) -> None:
    """Makes the checkpointer and evolution; restores a saved population."""
    experiment, directory = self._experiment, self._directory
    made = prepare.prepare(experiment)
    config = experiment.checkpointing or checkpoints.CheckpointingConfig()
    folder = parts.keeper_folder(directory)
    self._checkpointer = stack.enter_context(
      checkpoints.Checkpointer(
        folder,
        config.max_to_keep,
        must_be_finite=lambda part: part.population.ratings,
      )
    )
    self._evolution = generations.Evolution(made, directory)
    self._drafts.evolution = self._evolution
    template = parts.make_template(made)
    traits = evolution_lib.traits(template.members)
    with self._lock:
      if self._checkpointer.steps():
        like = parts.keeper_template(template, self._num_learners)
        part, self._status = parts.restore(folder, like)
        self._evolution.resume(part.population)
        self._begin(part)
      self._structure = jax.tree.structure(
        (traits, parts.learner_template(template.members).copies)
      )

  def _begin_if_complete(self) -> bool:
    """Begins once all learners have joined; returns whether it did."""
    if len(self._joined) < self._num_learners:
      return False
    experiment, directory = self._experiment, self._directory
    traits = jax.tree.map(
      lambda *leaves: np.concatenate(leaves),
      *[self._joined[index] for index in range(self._num_learners)],
    )
    members = copies_lib.members_of_traits(traits)
    # The same key as with a single learner.
    _, key = jax.random.split(jax.random.PRNGKey(experiment.seed))
    population = generations.make_population(
      prepare.prepare(experiment), members, key
    )
    if checkpoints.saved_steps(directory / 'checkpoints'):
      population, self._status = parts.restore(
        directory / 'checkpoints', population, run_records.POPULATION
      )
      self._evolution.resume(population)
    else:
      population = self._evolution.begin(population)
    self._begin(parts.KeeperPart(population, self._numbers))
    self._num_changes += 1
    return True

  def _begin(self, part: parts.KeeperPart) -> None:
    from ftwax.runtime.local import coordinator

    self._numbers = self._saved_numbers = np.array(part.numbers)
    self._members.restore(part.population.members)
    self._coordinator = coordinator.Coordinator(
      part.population, prepare.prepare(self._experiment)
    )

  def _record(
    self, results: Sequence[types.NumpyArray], ends_round: bool
  ) -> None:
    self._coordinator.record(results_format.unpack(results))
    self._is_round_over |= ends_round

  def _end_round(self) -> None:
    """Logs a round and draws a generation, which learners then carry out."""
    with self._lock:
      self._is_round_over = False
      if self._coordinator is None:
        return
      rows = self._coordinator.end_round(
        self._drafts,
        self._members,
        run_records.Counts(**self._status['counts']),
      )
      if rows:  # The draft does not know copies in progress.
        self._has_taken = set(self._is_busy)
    for row in rows:
      self._rows.append((generations.LABEL, log_values.to_plain(row)))

  def _still_right(self, copies: copies_lib.Copies) -> copies_lib.Copies:
    """Drops copies whose parents have changed or are away."""
    learner = copies.parent // len(copies.member)
    now = time.monotonic()
    is_kept = np.array(
      [now - self._asked_at.get(index, -_AWAY_S) < _AWAY_S for index in learner]
    )
    for known, leaf in zip(
      jax.tree.leaves(self._traits(copies.parent)),
      jax.tree.leaves(copies.inherited),
      strict=True,
    ):
      is_same = np.equal(known, leaf)
      is_kept &= is_same.reshape(len(is_kept), -1).all(axis=1)
    return copies_lib.keep(copies, is_kept, self._traits(copies.member))

  def _traits(self, members: types.NumpyArray) -> evolution_lib.Traits:
    """Returns the traits of the given members as NumPy arrays."""
    traits: evolution_lib.Traits = jax.tree.map(
      lambda leaf: np.asarray(leaf)[members],
      evolution_lib.traits(self._members.state),
    )
    return traits

  def _part(self) -> parts.KeeperPart:
    return parts.KeeperPart(
      self._coordinator.population(self._members.state), self._numbers
    )

  def _settle(self, index: int, copies: copies_lib.Copies) -> None:
    # Settled before, perhaps without the learner getting a reply.
    if int(copies.number) <= self._numbers[index]:
      return
    part = parts.settle(self._part(), self._evolution, index, copies)
    self._numbers = np.array(part.numbers)
    self._members.restore(part.population.members)
    self._coordinator.replace(part.population)
    self._num_changes += 1

  def _save(self) -> None:
    """Saves a checkpoint and waits until it is complete."""
    with self._save_lock:
      with self._lock:
        if self._coordinator is None:
          return
        part, num_changes = self._part(), self._num_changes
      run_records.save(
        self._checkpointer,
        part,
        self._status['counts'],
        self._status['returns'],
      )
      self._checkpointer.wait()
      with self._lock:
        self._saved_numbers = np.array(part.numbers)
        self._num_saved_changes = num_changes

  def _is_dirty(self) -> bool:
    return self._num_changes > self._num_saved_changes

  def _report(self) -> bool:
    """Reports to the counter; returns whether no node needs the keeper."""
    if not self._reported_rows:
      self._reported_rows = self._counter.make_number(), self._rows
      self._rows = []
    status = self._counter.try_call('report_keeper', *self._reported_rows)
    if status is None:
      return False
    self._reported_rows = ()
    self._status = status
    return bool(status['leave'])


class _Drafts:
  """Evolution that only draws generations instead of carrying them out."""

  evolution: generations.Evolution
  newest: evolution_lib.Generation | None = None

  def evolve(
    self, population: state_lib.PopulationState
  ) -> state_lib.PopulationState:
    """Draws a generation; returns a population that has copied nothing."""
    population, self.newest = self.evolution.propose(population)
    return population


class _Members:
  """Stands in for a learner in a coordinator; knows only traits."""

  state: types.TrainingState

  def restore(self, state: types.TrainingState) -> None:
    """Replaces the known members."""
    self.state = state
