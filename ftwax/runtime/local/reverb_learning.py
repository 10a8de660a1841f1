"""Trajectories from the host that go through Reverb servers to a learner."""

import contextlib
import functools
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ftwax import compilation, types
from ftwax.acme import builder, datasets, servers
from ftwax.agents.actor_critic import learning as learning_lib
from ftwax.replay import trajectories
from ftwax.runtime import prepare, sharding
from ftwax.runtime.local import acting, learning


class Writer:
  """Writes the trajectories of members, each to a server of its own."""

  def __init__(self, parts: prepare.Prepared, clients: Sequence[Any]):
    """Opens a writer for each member, to the client of its server."""
    self._options = parts.replays.options
    self._adders = [
      builder.make_adder(parts.replays, client, parts.seating.seats_per_member)
      for client in clients
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
    self._priorities: list[Any] = [
      builder.make_priorities(parts.replays, client) for client in clients
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
    self._num_written += trajectories

  def update(
    self, members: types.TrainingState
  ) -> tuple[types.TrainingState, dict[str, Any], int]:
    """Does the updates for the oldest trajectories; see `learning.Learner`.

    By priority it samples from all that were written. Until these are enough,
    updates change nothing but their count.
    """
    if self._prioritized is None:
      return super().update(members)
    self.num_queued -= self.num_taken
    if self._num_written < self._prioritized.min_size:
      members = self.place(
        members._replace(steps=members.steps + self.num_updates)
      )
      return members, {'replay_size': float(self._num_written)}, 0
    rows, skipped = [], 0
    for _ in range(self.num_updates):
      members, row, in_a_row = self._update_by_priority(members)
      rows.append(row)
      skipped = max(skipped, in_a_row)
    means: dict[str, Any] = {
      name: np.mean([row[name] for row in rows], axis=0) for name in rows[0]
    }
    return members, means, skipped

  def close(self) -> None:
    """Stops to sample."""
    for dataset in self._datasets:
      dataset.close()

  def _update_by_priority(
    self, members: types.TrainingState
  ) -> tuple[types.TrainingState, dict[str, Any], int]:
    """Does an update, and sets the priorities of what it learned from."""
    num_updates = int(np.max(members.steps))
    samples = self._take_samples()
    infos: list[Any] = [sample.info for sample in samples]
    members, metrics, priorities = self._update_on_samples(
      members,
      [sample.batch for sample in samples],
      np.stack([info.probability for info in infos]),
    )
    for own, info, values in zip(
      self._priorities, infos, np.asarray(priorities), strict=True
    ):
      own.update(info.keys, values)
    row = {
      name: leaf[0] if self._num_members == 1 else leaf
      for name, leaf in jax.device_get(metrics).items()
    }
    row['sample_age_steps'] = num_updates - np.mean(
      [sample.variables_steps for sample in samples]
    )
    row['replay_size'] = np.mean([info.table_size for info in infos])
    return members, row, int(np.max(members.skipped_in_a_row))

  def _make_update(self, parts: prepare.Prepared) -> None:
    self._taken = []
    self._num_written = 0
    self._prioritized = parts.replays.options.prioritized
    if self._prioritized is not None:
      self._update_on_samples = self._make_update_on_samples()
      return
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

  def _make_update_on_samples(self) -> Any:
    """Returns the compiled function of an update by priority."""
    over_members = sharding.over_members(
      functools.partial(learning_lib.learn_from_sample, self._core),
      self._num_members,
      in_axes=(0, 0, 0),
      out_axes=(0, 0, 0),
      in_turn=sharding.takes_turns(),
      mesh=self._mesh,
    )

    def update(
      members: types.TrainingState, batches: Any, probability: types.Array
    ) -> Any:
      batch = jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *batches)
      return over_members(members, batch, probability)

    options = dict(self._options)
    if options:  # Metrics and priorities are wherever XLA has them.
      options['out_shardings'] = self._sharding, None, None
    return compilation.jit(update, **options)

  def _take_samples(self) -> list[datasets.ReplaySample]:
    """Takes a batch of each member; keeps those of a call that fails."""
    for dataset in self._datasets[len(self._taken) :]:
      self._taken.append(next(dataset))
    taken, self._taken = self._taken, []
    return taken

  def _take(self) -> tuple[Any, list[int], Any]:
    taken = self._take_samples()
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
