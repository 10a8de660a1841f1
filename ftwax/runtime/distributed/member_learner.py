"""Node of a learner that holds some of the members of a population.

Other learners hold the rest, and a keeper oversees all; see `keeper`. The
learner saves before the keeper records a copy, so no copy in the lineage is
ever lost.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.population import copies as copies_lib
from ftwax.population import evolution
from ftwax.records import checkpoints
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import game_files, initial_state, parts
from ftwax.runtime.distributed import (
  exchange,
  learner_node,
  node_learner,
  processes,
)
from ftwax.runtime.distributed import settings as settings_lib


class MemberLearner(learner_node.Learner):
  """Learns for members `n * index` to `n * (index + 1) - 1`."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    directory: str,
    settings: settings_lib.Settings,
    replay_addresses: Sequence[str],
    counter_client: Any,
    index: int,
    keeper_client: Any,
    peer_clients: Sequence[Any],
  ):
    """Stores the arguments; `run` makes the learner.

    See `learner_node.Learner` for arguments not listed here.

    Args:
      experiment: a population and its task.
      directory: directory of the run.
      settings: settings of the run.
      replay_addresses: addresses of `n` replay servers.
      counter_client: client of the counter.
      index: index of the learner.
      keeper_client: client of the population's keeper.
      peer_clients: clients of all learners, including this one.
    """
    super().__init__(
      experiment, directory, settings, replay_addresses, counter_client, index
    )
    num_members = len(replay_addresses)
    first = index * num_members
    self._member = np.arange(first, first + num_members, dtype=np.int32)
    self._keeper = processes.Remote(keeper_client, 'keeper')
    self._peers = [processes.Remote(peer, 'learner') for peer in peer_clients]
    self._offers = exchange.Offers()
    self._exchange: Any = None
    self._copies: Any = None  # The last copies.
    self._is_compiling = False  # After a restart.

  def variables(
    self, known_steps: int, written_at: float = 0.0
  ) -> list[types.NumpyArray] | None:
    """Returns variables; see `learner_node.Learner`.

    Does not make callers wait while a restarted learner compiles.
    """
    if self._is_compiling:
      written_at = 0.0
    return super().variables(known_steps, written_at)

  def offer(self, member: int) -> list[Any] | None:
    """Offers a member to be copied; see `exchange.Offers`."""
    if self._checkpointer is None:
      return None
    return self._offers.offer(
      self._learner.state, member - int(self._member[0])
    )

  def read_offer(self, number: int, offset: int) -> types.NumpyArray | None:
    """Returns bytes of an offer; see `exchange.Offers`."""
    return self._offers.read(number, offset)

  def _make(self, stack: contextlib.ExitStack) -> checkpoints.Checkpointer:
    """Makes the learner and restores the newest checkpoint, if any."""
    experiment = self._experiment
    if self._index == 0:
      game_files.write(self._directory, experiment.read_game_spec())
    key, _ = jax.random.split(jax.random.PRNGKey(experiment.seed))
    self._learner = learner = node_learner.NodeLearner(
      experiment,
      self._settings,
      jax.random.fold_in(key, self._index),
      self._replay_addresses,
      self._make_logger,
      self._stop,
      self._on_idle,
    )
    stack.callback(learner.close)
    config = experiment.checkpointing or checkpoints.CheckpointingConfig()
    folder = parts.learner_folder(self._directory, self._index)
    checkpointer = stack.enter_context(
      checkpoints.Checkpointer(
        folder,
        config.max_to_keep,
        must_be_finite=lambda part: part.training.params,
      )
    )
    if checkpointer.steps():
      template = parts.learner_template(learner.state)
      part, metadata = parts.restore(folder, template)
      self._status.update(metadata)
      self._is_compiling = True
    else:
      part = self._start()
    learner.restore(part.training)
    self._copies = part.copies
    # Before it joins: the keeper hears only of what a checkpoint contains.
    self._save(checkpointer, learner.state, waits=True)
    self._exchange = exchange.Exchange(
      self._keeper, self._peers, self._index, self._stop
    )
    self._exchange.start(learner, part.copies)
    return checkpointer

  def _start(self) -> parts.LearnerPart:
    """Returns the members of a new run or of a resumed one."""
    members = self._learner.state
    folder = self._directory / 'checkpoints'
    if checkpoints.saved_steps(folder):
      size = self._experiment.population.num_members
      everyone = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype),
        members,
      )
      everyone, metadata = parts.restore(folder, everyone, parts.MEMBERS)
      self._status.update(metadata)
      members = jax.tree.map(lambda leaf: leaf[self._member], everyone)
    else:
      members = initial_state.start_members(
        self._experiment.init_from,
        self._experiment.agent.optimizer,
        members,
        int(self._member[0]),
      )
    copies = copies_lib.no_copies(evolution.traits(members), self._member)
    return parts.LearnerPart(members, copies)

  def _evolve_if_due(self) -> None:
    self._is_compiling = False
    ready = self._exchange.take()
    if ready is None:
      return
    # Another thread may save in the meantime.
    with self._save_lock:
      self._learner.restore(copies_lib.receive(self._learner.state, *ready))
      self._copies = ready.copies
    assert self._checkpointer is not None
    self._save(self._checkpointer, self._learner.state, waits=True)
    self._exchange.settle()

  def _end_round(self) -> None:
    """Does nothing: the keeper logs rounds."""

  def _report(self) -> None:
    # In place, since loggers hold its `append`.
    self._rows[:] = [
      (label, {**row, 'learner': self._index}) for label, row in self._rows
    ]
    super()._report()

  def _snapshot(self, state: types.TrainingState) -> parts.LearnerPart:
    return parts.LearnerPart(state, self._copies)

  def _snapshot_whole(self) -> Any:
    raise processes.FatalError(
      f'observers ({self._experiment.observers!r}) must not save checkpoints of'
      ' their own with several learners, since none holds the whole population;'
      ' leave out BestCheckpoint, or choose num_learners=1.'
    )
