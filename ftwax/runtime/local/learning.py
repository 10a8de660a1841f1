"""Updates members on trajectories from the host."""

import collections
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import compilation, trees, types
from ftwax.agents.actor_critic import learning
from ftwax.runtime import prepare, sharding
from ftwax.runtime import recorded as recorded_lib
from ftwax.runtime.device import sizes as sizes_lib
from ftwax.runtime.local import acting


class Learner:
  """Updates `N` members, each on batches of its own, as `learning.learn` does.

  Attributes:
    replay: tables of the agent or of auxiliary tasks, leaves [N, ...]; `()` if
      neither needs them.
    num_queued: number of trajectories of each member that wait for an update.
    num_taken: number of trajectories of each member that `update` takes.
    num_updates: number of updates that it does on them.
  """

  def __init__(
    self,
    parts: prepare.Prepared,
    num_members: int,
    mesh: jax.sharding.Mesh,
    num_actors: int = 1,
  ):
    """Prepares the functions, and empty tables.

    Args:
      parts: provide agent, network and replay.
      num_members: N.
      mesh: devices over which members or, with a single member, batches are
        sharded.
      num_actors: number of actors, each with rows of its own.

    Raises:
      ValueError: if devices cannot share members or batches evenly.
    """
    agent = parts.experiment.agent
    check_devices(mesh, num_members, agent.batch_size)
    self.replay: Any = ()
    self._sources: Any = None
    self.num_queued = 0
    self.num_taken, self.num_updates, self._num_rows = agent.batch_size, 1, 1
    if agent.learns_from_replay:
      # Whole rollouts, whose rows continue those of the rollout before.
      sizes = sizes_lib.make_sizes(parts)
      self._num_rows = sizes.num_rows
      self.num_taken = sizes.num_rollouts * sizes.num_rows
      self.num_updates = sizes.num_updates
    self._num_members = num_members
    self._num_actors = num_actors
    self._mesh = mesh
    self._core = parts.learner
    self._sharding: Any = mesh.devices.item(0)
    self._options: dict[str, Any] = {}
    if mesh.size > 1:
      self._sharding = sharding.spread(mesh)
      if num_members == 1:
        self._core = sharding.place_learner_core(mesh, parts.learner)
        self._sharding = sharding.replicated(mesh)
      self._options['out_shardings'] = self._sharding, self._sharding, None
    # Trajectories, updates that led to the policy that wrote them, and actor.
    self._queue: collections.deque[tuple[types.Trajectory, int, int]] = (
      collections.deque()
    )
    self._make_update(parts)

  def init(self, key: types.Key) -> types.TrainingState:
    """Returns the initial members, leaves [N, ...]."""
    init = compilation.jit_unoptimized(jax.vmap(self._core.init))
    members: types.TrainingState = init(
      jax.random.split(key, self._num_members)
    )
    return self.place(members)

  def place(self, tree: Any) -> Any:
    """Puts members, or their tables, where updates leave them.

    Members that come from elsewhere would compile the updates again.
    """
    return jax.device_put(tree, self._sharding)

  def insert(
    self,
    trajectories: types.Trajectory,
    num_updates: int,
    actor: int = 0,
    internal_rewards: types.NumpyArray | None = None,
  ) -> None:
    """Queues trajectories.

    Args:
      trajectories: leaves [T + 1 or T, N, any number, ...]; with values if all
        of it is one batch, of the present members.
      num_updates: number of updates that led to the policy that wrote them.
      actor: index of the actor that wrote them.
      internal_rewards: of the members; not used, as tables have those of the
        update.
    """
    del internal_rewards
    self._queue.append((trajectories, num_updates, actor))
    self.num_queued += trajectories.timestep.step_type.shape[2]

  def update(
    self, members: types.TrainingState
  ) -> tuple[types.TrainingState, dict[str, Any], int]:
    """Does `num_updates` on the oldest trajectories, of which there are enough.

    Args:
      members: before, leaves [N, ...].

    Returns:
      The new members; metrics, a number or [N], means over updates; and the
      largest number of updates that one of them skipped in a row.
    """
    batch, ages, actors = self._take()
    num_updates = int(np.max(np.asarray(members.steps)))
    members, self.replay, (metrics, skipped) = self._update(
      members, self.replay, batch, self._sources, actors
    )
    metrics = {
      name: leaf[0] if self._num_members == 1 else leaf
      for name, leaf in jax.device_get(metrics).items()
    }
    metrics['sample_age_steps'] = num_updates - np.mean(ages)
    return members, metrics, int(np.max(np.asarray(skipped)))

  def close(self) -> None:
    """Does nothing: the queue is in this process."""

  def _make_update(self, parts: prepare.Prepared) -> None:
    """Makes the tables, and the function that updates members and tables."""
    is_source = parts.experiment.agent.learns_from_replay
    num_rows = self._num_rows if is_source else self.num_taken
    has_streams = is_source and self._num_actors > 1
    num_streams = num_rows * (self._num_actors if has_streams else 1)
    replay = parts.replays.make(num_streams)
    if replay is not None:
      # Others than the keys of the members.
      key = jax.random.fold_in(parts.key, self._num_members)
      keys = jax.random.split(key, self._num_members)
      self.replay = self.place(jax.jit(jax.vmap(replay.init))(keys))
    learn = functools.partial(
      learning.learn, self._core, replay, self.num_updates
    )
    whole = sharding.replicated(self._mesh)
    self._sources = jax.device_put(recorded_lib.load(parts), whole)

    def update(
      members: types.TrainingState,
      replay: Any,
      batch: Any,
      sources: Any,
      actors: Any,
    ) -> Any:
      over_members = sharding.over_members(
        functools.partial(
          learn, sources=sources, actors=actors if has_streams else None
        ),
        self._num_members,
        in_axes=(0, 0, types.Trajectory(2, 2, 2, 1, 2, 2)),
        out_axes=(0, 0, 1),
        in_turn=sharding.takes_turns(),
        mesh=self._mesh,
      )
      # [R, T, N, M, ...]
      batch = _split(batch, num_rows)
      members, replay, (metrics, skipped) = over_members(members, replay, batch)
      if self.num_updates > 1:
        metrics = jax.tree.map(lambda x: jnp.mean(x, axis=0), metrics)
        return members, replay, (metrics, jnp.max(skipped, axis=0))
      return members, replay, trees.take((metrics, skipped), 0)

    # Tables are large, so updates change them in place.
    self._update = compilation.jit(update, donate_argnums=1, **self._options)

  def _take(self) -> tuple[types.Trajectory, list[int], types.NumpyArray]:
    """Takes the oldest trajectories of each member, and their origin.

    Returns:
      Trajectories, the age of each, and the actor of each rollout, int32 [R].
    """
    parts: list[types.Trajectory] = []
    ages: list[int] = []
    actors: list[int] = []
    while len(ages) < self.num_taken:
      trajectories, num_updates, actor = self._queue.popleft()
      missing = self.num_taken - len(ages)
      num_rows = trajectories.timestep.step_type.shape[2]
      if num_rows > missing:
        rest = acting.take(trajectories, slice(missing, None))
        self._queue.appendleft((rest, num_updates, actor))
        trajectories = acting.take(trajectories, slice(missing))
      parts.append(trajectories)
      ages += [num_updates] * min(num_rows, missing)
      actors += [actor] * min(num_rows, missing)
    self.num_queued -= self.num_taken
    # Rollouts are whole wherever it matters who wrote them.
    written_by = np.array(actors[:: self._num_rows], np.int32)
    if len(parts) == 1:
      return parts[0], ages, written_by
    joined: types.Trajectory = acting.map_rows(
      lambda axis, *leaves: np.concatenate(leaves, axis), *parts
    )
    return joined, ages, written_by


def _split(trajectories: types.Trajectory, num_rows: int) -> types.Trajectory:
  """Splits trajectories [T, N, R * M, ...] into rollouts [R, T, N, M, ...]."""

  def split(axis: int, leaf: types.Array) -> types.Array:
    # Not -1, since a leaf of the recurrent state may be empty.
    rows = leaf.shape[axis] // num_rows, num_rows
    shape = *leaf.shape[:axis], *rows, *leaf.shape[axis + 1 :]
    return jnp.moveaxis(leaf.reshape(shape), axis, 0)

  split_up: types.Trajectory = acting.map_rows(split, trajectories)
  return split_up


def check_devices(
  mesh: jax.sharding.Mesh, num_members: int, batch_size: int
) -> None:
  """Raises a ValueError unless devices can share members or rows evenly."""
  if num_members > 1:
    sharding.check_divides(mesh, num_members=num_members)
  else:
    sharding.check_divides(mesh, batch_size=batch_size)
