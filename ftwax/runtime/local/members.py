"""Actors, batches and learners of all members, with single-agent interfaces.

Members share compiled functions. Each has its own replay, since its items must
not reach other members, and all have the same number of seats, so that their
trajectories complete at the same time and batches have a fixed shape. For a
population of one, the member axis is squeezed here: the learner's core and
batches have none.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.agents.acme import actor as actor_lib
from ftwax.agents.acme import learner as learner_lib
from ftwax.agents.acme import variables
from ftwax.records import loggers
from ftwax.replay import gatherer, samples
from ftwax.runtime import prepare, sharding


class Actors:
  """The actors of all members as one, on rows in the order of the members."""

  def __init__(
    self,
    actors: Sequence[actor_lib.Actor],
    adders: Sequence[gatherer.TrajectoryGatherer] = (),
  ):
    """Takes ownership of the actors.

    Args:
      actors: one actor for each member.
      adders: one adder for each member; none in evaluation.
    """
    self._actors = tuple(actors)
    self._adders = tuple(adders)
    self._chosen: tuple[types.ArrayTree, ...] = ()  # Actions of each member.
    self._action: types.ArrayTree = None  # Concatenated, as returned.

  @property
  def num_items(self) -> int:
    """Number of trajectories that each member has written."""
    return min(adder.num_items for adder in self._adders)

  def reset(self) -> None:
    """Drops unfinished trajectories."""
    for adder in self._adders:
      adder.reset()

  def select_action(self, observation: types.ArrayTree) -> types.ArrayTree:
    """Returns actions for the last observed timesteps, leaves [N * M, ...]."""
    del observation  # Actors keep the last timesteps.
    self._chosen = tuple(actor.select_action(None) for actor in self._actors)
    self._action = self._chosen[0]
    if len(self._chosen) > 1:
      self._action = jax.tree.map(
        lambda *leaves: np.concatenate(leaves), *self._chosen
      )
    return self._action

  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    """Observes the first timesteps; drops unfinished trajectories."""
    self.reset()
    for actor, rows in zip(self._actors, self._split(timestep), strict=True):
      actor.observe_first(rows)

  def observe(
    self, action: types.ArrayTree, next_timestep: dm_env.TimeStep
  ) -> None:
    """Observes the timesteps that follow `action`, leaves [N * M, ...]."""
    # Avoids splitting what `select_action` has just concatenated.
    chosen = self._chosen if action is self._action else self._split(action)
    rows = self._split(next_timestep)
    for actor, own, timestep in zip(self._actors, chosen, rows, strict=True):
      actor.observe(own, timestep)

  @property
  def at_start(self) -> bool:
    """Whether the next actions start new trajectories."""
    return all(adder.at_start for adder in self._adders)

  def save(self) -> tuple[types.ActorState, ...]:
    """Returns the state of each member's actor."""
    return tuple(actor.save() for actor in self._actors)

  def restore(
    self, states: tuple[types.ActorState, ...], timestep: dm_env.TimeStep
  ) -> None:
    """Continues from saved states and the last observed timesteps."""
    for actor, state, rows in zip(
      self._actors, states, self._split(timestep), strict=True
    ):
      actor.restore(state, rows)

  def update(self) -> None:
    """Fetches variables if they are due."""
    for actor in self._actors:
      actor.update()

  def _split(self, tree: Any) -> Sequence[Any]:
    """Splits rows by member into leaves [M, ...]."""
    num_members = len(self._actors)
    if num_members == 1:
      return [tree]

    def rows(member: int) -> Any:
      def cut(leaf: types.NumpyArray) -> types.NumpyArray:
        share = len(leaf) // num_members
        return leaf[member * share : (member + 1) * share]

      return jax.tree.map(cut, tree)

    return [rows(member) for member in range(num_members)]


def make_actors(
  key: types.Key,
  policy: types.ActorCore,
  sources: Sequence[variables.VariableSource],
  num_rows: int,
  adders: Sequence[gatherer.TrajectoryGatherer] = (),
) -> Actors:
  """Makes the actors of a population.

  Args:
    key: random key for the actors.
    policy: functions that all actors share.
    sources: variable source of each member; see `member_sources`.
    num_rows: M.
    adders: one adder for each member; none in evaluation.
  """
  actors = [
    actor_lib.Actor(
      policy,
      jax.random.fold_in(key, member),
      variables.VariableClient(source),
      adders[member] if adders else None,
      num_rows,
    )
    for member, source in enumerate(sources)
  ]
  return Actors(actors, adders)


def member_sources(
  source: variables.VariableSource, num_members: int
) -> list[variables.VariableSource]:
  """Returns a variable source for each member.

  Args:
    source: variable source of all members, leaves [N, ...].
    num_members: N.
  """
  take = jax.jit(_squeeze) if num_members == 1 else jax.jit(row)
  return [
    _MemberVariables(source, take, member) for member in range(num_members)
  ]


def row(tree: Any, index: types.Array | int) -> Any:
  """Returns row `index` of leaves [N, ...]."""
  return jax.tree.map(lambda leaf: leaf[index], tree)


def _squeeze(tree: Any, index: int) -> Any:
  del index  # Always 0.
  return jax.tree.map(lambda leaf: jnp.squeeze(leaf, 0), tree)


class _MemberVariables:
  """Variable source of one member, sliced from that of all members."""

  def __init__(
    self,
    source: variables.VariableSource,
    take: Callable[..., Any],
    member: int,
  ):
    self._source = source
    self._take = take
    self._member = member
    self._all: types.ActorVariables | None = None
    self._own: Any = None

  def get_variables(self, names: Sequence[str]) -> list[types.ActorVariables]:
    """Returns the member's variables, once for each name."""
    fetched = self._source.get_variables(names)
    # Slices only if a field is a new object, since unchanged variables are the
    # same objects.
    if self._all is None or not all(map(operator.is_, fetched[0], self._all)):
      self._all = fetched[0]
      self._own = self._take(fetched[0], self._member)
    return [self._own for _ in names]


class Batches(Iterator[samples.ReplaySample]):
  """Batches of all members, leaves [N, ...]; no axis N for one member."""

  def __init__(self, datasets: Sequence[Iterator[samples.ReplaySample]]):
    """Combines one dataset per member."""
    self._datasets = tuple(datasets)
    self._stack = jax.jit(
      lambda *trees: jax.tree.map(lambda *x: jnp.stack(x), *trees)
    )
    self._taken: list[samples.ReplaySample] = []

  def __next__(self) -> samples.ReplaySample:
    """Returns the next batch of each member.

    Raises:
      ReplayTimeoutError: if a member's batch does not come in time; batches
        already taken are kept for the next call.
    """
    for dataset in self._datasets[len(self._taken) :]:
      self._taken.append(next(dataset))
    taken, self._taken = self._taken, []
    if len(taken) == 1:
      return taken[0]
    setters = [sample.set_priorities for sample in taken]

    def set_priorities(priorities: types.Array) -> None:
      for set_own, own in zip(setters, priorities, strict=True):
        assert set_own is not None
        set_own(own)

    return samples.ReplaySample(
      batch=self._stack(*[sample.batch for sample in taken]),
      variables_steps=np.stack([sample.variables_steps for sample in taken]),
      written_at=np.stack([sample.written_at for sample in taken]),
      set_priorities=None if setters[0] is None else set_priorities,
    )


def make_learner(
  parts: prepare.Prepared,
  key: types.Key,
  num_members: int,
  batches: Iterator[samples.ReplaySample],
  logger_fn: Callable[..., loggers.Logger],
  mesh: jax.sharding.Mesh,
) -> learner_lib.Learner:
  """Makes a learner whose state holds all members, leaves [N, ...].

  Args:
    parts: provide agent, network and specs.
    key: random key for the initial members.
    num_members: N, the members of this learner.
    batches: see `Batches`.
    logger_fn: makes the logger of a label.
    mesh: devices over which members or, with a single member, batches are
      sharded.
  """
  core = sharding.place_members_core(parts.learner, mesh, num_members)
  learner = learner_lib.make_learner(
    parts.agent,
    key,
    parts.network,
    batches,
    logger_fn,
    parts.spec.environment,
    core,
  )
  # Evolved members are committed to their device. Commit the initial ones as
  # well; otherwise JAX would compile for both cases.
  learner.restore(learner.state)
  return learner


def check_devices(
  mesh: jax.sharding.Mesh, num_members: int, batch_size: int
) -> None:
  """Raises a ValueError unless devices can share members or rows evenly."""
  if num_members > 1:
    sharding.check_divides(mesh, num_members=num_members)
  else:
    sharding.check_divides(mesh, batch_size=batch_size)
