"""Trajectories from the host that go through Reverb servers to a learner."""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ftwax import compilation, types
from ftwax.acme import builder, datasets, servers
from ftwax.replay import trajectories
from ftwax.runtime import prepare, sharding
from ftwax.runtime.local import acting, learning


class Writer:
  """Writes the trajectories of members, each to a server of its own."""

  def __init__(self, parts: prepare.Prepared, clients: Sequence[Any]):
    """Opens a writer for each member, to the client of its server."""
    self._options = parts.replays.options
    self._adders = [
      builder.make_adder(parts.replays, client) for client in clients
    ]

  def write(
    self,
    written: types.Trajectory,
    num_updates: int,
    internal_rewards: types.NumpyArray,
  ) -> None:
    """Writes trajectories.

    Args:
      written: leaves [T + 1 or T, N, any number, ...].
      num_updates: number of updates that led to the policy that wrote them.
      internal_rewards: float32 [N, num_events].
    """
    written = written._replace(value=None)
    for index, adder in enumerate(self._adders):
      own = acting.map_rows(
        lambda axis, leaf, index=index: np.take(leaf, index, axis - 1), written
      )
      step_type = own.timestep.step_type
      num_rows = step_type.shape[1]
      reward = own.timestep.reward.reshape(*step_type.shape, -1)
      adder.insert(
        trajectories.Record(
          own,
          trajectories.classify(
            step_type, reward @ internal_rewards[index], self._options.sequences
          ),
          np.full(num_rows, num_updates, np.int64),
          np.full(num_rows, time.time(), np.float64),
        )
      )

  def close(self) -> None:
    """Closes the writers."""
    for adder in self._adders:
      adder.close()


class Learner(learning.Learner):
  """Updates members on batches from servers; see `learning.Learner`.

  Call `read` before the first update.
  """

  _taken: list[datasets.ReplaySample]

  def read(self, parts: prepare.Prepared, clients: Sequence[Any]) -> None:
    """Starts to sample from the server of each member."""
    self._datasets = [
      builder.make_dataset(parts.replays, client) for client in clients
    ]

  def insert(
    self,
    trajectories: Any,
    num_updates: int = 0,
    actor: int = 0,
    internal_rewards: Any = None,
  ) -> None:
    """Counts trajectories of each member that were written."""
    del num_updates, actor, internal_rewards
    self.num_queued += trajectories

  def close(self) -> None:
    """Stops to sample."""
    for dataset in self._datasets:
      dataset.close()

  def _make_update(self, parts: prepare.Prepared) -> None:
    del parts
    self._taken = []
    over_members = sharding.over_members(
      self._core.update,
      self._num_members,
      in_axes=(0, 0),
      in_turn=sharding.takes_turns(),
      mesh=self._mesh,
    )

    def update(
      members: types.TrainingState,
      replay: Any,
      batches: Any,
      sources: Any,
      actors: Any,
    ) -> Any:
      del sources, actors  # See `runtime.recorded.check_reverb`.
      batch = jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *batches)
      members, metrics = over_members(members, batch)
      return members, replay, (metrics, members.skipped_in_a_row)

    self._update = compilation.jit(update, **self._options)

  def _take(self) -> tuple[Any, list[int], Any]:
    """Takes a batch of each member; keeps those of a call that fails."""
    for dataset in self._datasets[len(self._taken) :]:
      self._taken.append(next(dataset))
    taken, self._taken = self._taken, []
    self.num_queued -= self.num_taken
    ages = np.concatenate([sample.variables_steps for sample in taken])
    return [sample.batch for sample in taken], ages.tolist(), None


class LocalLearner(Learner):
  """Writes to servers in this process, and reads from them."""

  def __init__(
    self,
    parts: prepare.Prepared,
    num_members: int,
    mesh: jax.sharding.Mesh,
    stack: contextlib.ExitStack,
  ):
    """Starts a server for each member; `stack` stops them."""
    super().__init__(parts, num_members, mesh)
    clients = []
    for _ in range(parts.experiment.population.num_members):
      server = servers.make_server(
        builder.make_tables(parts.replays), expose=parts.experiment.expose
      )
      stack.callback(servers.stop, server)
      clients.append(server.localhost_client())
    self.read(parts, clients)
    stack.callback(self.close)
    self._writer = Writer(parts, clients)
    stack.callback(self._writer.close)

  def insert(
    self,
    trajectories: Any,
    num_updates: int = 0,
    actor: int = 0,
    internal_rewards: Any = None,
  ) -> None:
    """Writes trajectories; see `learning.Learner.insert`."""
    del actor
    self._writer.write(trajectories, num_updates, internal_rewards)
    super().insert(trajectories.timestep.step_type.shape[2])
