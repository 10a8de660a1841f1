"""The learner: updates its members on the trajectories that it gets."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import faults
from ftwax.population import evolution, exploring
from ftwax.records import log_values, loggers
from ftwax.runtime import prepare, sharding
from ftwax.runtime.distributed import engine, messages
from ftwax.runtime.local import learning

_LOG_PERIOD_S = 1.0


class Learner:
  """Holds some of the members, their queue and their tables."""

  def __init__(
    self,
    parts: prepare.Prepared,
    num_learners: int,
    index: int,
    num_devices: int,
    num_actors: int = 1,
    make_learner: Callable[
      [prepare.Prepared, int, jax.sharding.Mesh, int], learning.Learner
    ] = learning.Learner,
  ):
    """Makes the initial members.

    Args:
      parts: the parts of the experiment.
      num_learners: K, number of learners that share the members.
      index: index of the learner.
      num_devices: number of devices over which it shards members or batches.
      num_actors: number of actors.
      make_learner: makes what updates the members; see `learning.Learner`.
    """
    num_members = parts.experiment.population.num_members // num_learners
    self._is_restored = False
    self._rows: list[Mapping[str, Any]] = []
    self._learner: learning.Learner = make_learner(
      parts,
      num_members,
      _make_mesh(num_devices, num_members, parts.experiment.agent.batch_size),
      num_actors,
    )
    self._logger = loggers.TimeFilter(_Rows(self._rows), _LOG_PERIOD_S)
    self._max_skipped = parts.experiment.agent.max_skipped_updates
    # That of a local run, if there is one learner.
    key, *_ = jax.random.split(parts.key, 3)
    if num_learners > 1:
      key = jax.random.fold_in(key, index)
    self._members = self._learner.init(key)

  def learn(
    self, items: Any
  ) -> tuple[messages.Learned, types.ActorVariables | None]:
    """Adds trajectories and makes the updates for which there are enough.

    Args:
      items: trajectories of its members, as the actor returned them.

    Returns:
      The report, and the new variables; None without an update.

    Raises:
      NonFiniteGradientError: if a member skips too many updates in a row.
    """
    self._check_restored()
    self._learner.insert(*items)
    updates = False
    while self._learner.num_queued >= self._learner.num_taken:
      self._members, row, skipped = self._learner.update(self._members)
      self._logger.write({**row, 'learner_steps': self._num_steps})
      faults.check_skipped(skipped, self._max_skipped)
      updates = True
    variables = self.variables() if updates else None
    rows, self._rows[:] = list(self._rows), []
    return messages.Learned(
      self._num_steps, self._learner.num_queued, updates, rows
    ), variables

  @property
  def _num_steps(self) -> int:
    return int(np.max(self._members.steps))

  def variables(self) -> types.ActorVariables:
    """Returns the variables of its members, leaves [n, ...]."""
    return jax.tree.map(np.asarray, types.actor_variables(self._members))

  def state(self) -> types.TrainingState:
    """Returns its members, leaves [n, ...]."""
    self._check_restored()
    return self.initial_state()

  def initial_state(self) -> types.TrainingState:
    """Returns its members, also before `restore`."""
    return jax.tree.map(np.asarray, self._members)

  def restore(self, state: types.TrainingState) -> types.ActorVariables:
    """Continues with other members [n, ...]; returns their variables."""
    self._members = self._learner.place(state)
    self._is_restored = True
    return self.variables()

  def give(self, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Returns what copies take from the members in the given rows."""
    self._check_restored()
    heritage = evolution.heritage(self._members)
    return [
      jax.tree.map(lambda leaf, row=row: np.asarray(leaf[row]), heritage)
      for row in rows
    ]

  def adopt(
    self,
    traits: Mapping[int, exploring.Traits],
    parents: Mapping[int, tuple[int, int]],
    *given: Sequence[Mapping[str, Any]],
  ) -> types.ActorVariables:
    """Gives members new traits, and those that copy the data of a parent.

    Args:
      traits: the new traits, by row.
      parents: place of the parent's data in `given`, by the row that copies.
      *given: what `give` of several learners returned.

    Returns:
      The new variables.
    """
    self._check_restored()
    state = self._members

    def write(rows: Sequence[int], leaf: Any, *new: Any) -> types.NumpyArray:
      written = np.array(leaf)
      for row, value in zip(rows, new, strict=True):
        written[row] = value
      return written

    heritage = jax.tree.map(
      lambda leaf, *new: write(list(parents), leaf, *new),
      evolution.heritage(state),
      *[given[learner][place] for learner, place in parents.values()],
    )
    explored = jax.tree.map(
      lambda leaf, *new: write(list(traits), leaf, *new),
      evolution.traits(state),
      *traits.values(),
    )
    return self.restore(state._replace(**heritage, **explored._asdict()))

  def close(self) -> None:
    """Closes what reads the queue."""
    self._learner.close()

  def _check_restored(self) -> None:
    if not self._is_restored:
      raise engine.NodeLostError('A learner has started again.')


class _Rows:
  """Logger that keeps rows until they are reported."""

  def __init__(self, rows: list[Any]):
    self._rows = rows

  def write(self, values: log_values.LoggingData) -> None:
    """Keeps a row of plain numbers."""
    self._rows.append(log_values.to_plain(values))

  def close(self) -> None:
    """Does nothing."""


def _make_mesh(
  num_devices: int, num_members: int, batch_size: int
) -> jax.sharding.Mesh:
  """Returns the devices over which members or batches are sharded.

  Raises:
    ValueError: if there are too few devices or they cannot share evenly.
  """
  devices = jax.local_devices()
  if num_devices > len(devices):
    raise ValueError(
      f'num_devices ({num_devices}) must be at most the number of devices of'
      f' the learner ({len(devices)}); choose {len(devices)}.'
    )
  mesh = sharding.make_mesh(devices[:num_devices])
  learning.check_devices(mesh, num_members, batch_size)
  return mesh
