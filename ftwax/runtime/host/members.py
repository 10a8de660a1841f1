"""acme's actors and learner of a population, each in the place of one agent's.

Members share what is compiled. They have a replay server each, since items of
one must not reach another, and the same number of seats, so that trajectories
of all of them are complete at once and batches have one shape.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.networks import recurrent
from ftwax.replay.reverb import datasets as datasets_lib


class Actors:
  """Actors of all members as one, on rows in the order of the members.

  It is an `environment_loop.Actor`.
  """

  def __init__(self, actors: Sequence[Any], adders: Sequence[Any]):
    """Takes one actor and its adder for each member, for M rows each."""
    self._actors = tuple(actors)
    self._adders = tuple(adders)

  @property
  def num_items(self) -> int:
    """Trajectories that each member has written."""
    return min(adder.num_items for adder in self._adders)

  def reset(self) -> None:
    """Drops the trajectories that have begun."""
    for adder in self._adders:
      adder.reset()

  def select_action(self, observation: types.ArrayTree) -> types.ArrayTree:
    """Returns actions for the timesteps observed last, leaves [N * M]."""
    del observation  # It is that of the timesteps observed last.
    actions = [actor.select_action(None) for actor in self._actors]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *actions)

  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    """Observes where games start; trajectories begun before are dropped."""
    self.reset()
    for actor, rows in zip(self._actors, self._split(timestep), strict=True):
      actor.observe_first(rows)

  def observe(
    self, action: types.ArrayTree, next_timestep: dm_env.TimeStep
  ) -> None:
    """Observes what `action` led to, leaves [N * M, ...]."""
    del action  # It is the one selected last.
    rows = self._split(next_timestep)
    for actor, timestep in zip(self._actors, rows, strict=True):
      actor.observe(None, timestep)

  def update(self, wait: bool = False) -> None:
    """Fetches variables where it is time to."""
    for actor in self._actors:
      actor.update(wait)

  def _split(self, timestep: dm_env.TimeStep) -> list[dm_env.TimeStep]:
    """Returns the rows of each member, leaves [M, ...]."""
    share = len(timestep.step_type) // len(self._actors)
    return [
      jax.tree.map(
        lambda leaf, i=i: leaf[i * share : (i + 1) * share], timestep
      )
      for i in range(len(self._actors))
    ]


def make_actors(
  builder: Any,
  key: types.Key,
  policy: types.ActorCore,
  source: Any,
  adders: Sequence[Any],
  num_rows: int,
) -> Actors:
  """Makes the actors of a population.

  Args:
    builder: of the agent.
    key: for what they draw.
    policy: the functions that they share.
    source: of the variables of all members, leaves [N, ...].
    adders: one for each member.
    num_rows: M.
  """
  take = jax.jit(row)
  actors = [
    builder.make_actor(
      jax.random.fold_in(key, member),
      policy,
      _MemberVariables(source, take, member),
      adder,
      num_rows,
    )
    for member, adder in enumerate(adders)
  ]
  return Actors(actors, adders)


def row(tree: Any, index: types.Array | int) -> Any:
  """Returns row `index` of leaves [N, ...]."""
  return jax.tree.map(lambda leaf: leaf[index], tree)


class _MemberVariables:
  """The variables of one member, taken from those of all."""

  def __init__(self, source: Any, take: Callable[..., Any], member: int):
    self._source = source
    self._take = take
    self._member = member
    self._all: types.ActorVariables | None = None
    self._own: Any = None

  def get_variables(self, names: Sequence[str]) -> list[types.ActorVariables]:
    """Returns the member's variables, once for each name."""
    found = self._source.get_variables(names)
    if self._all is None or not _is_same(found[0], self._all):
      self._all = found[0]
      self._own = self._take(found[0], self._member)
    return [self._own for _ in names]


def _is_same(new: types.ActorVariables, old: types.ActorVariables) -> bool:
  return all(a is b for a, b in zip(new, old, strict=True))


class Batches(Iterator[datasets_lib.ReplaySample]):
  """The batches of all members, stacked: leaves [N, ...]."""

  def __init__(self, datasets: Sequence[Any]):
    """Takes over one dataset for each member, to close them in the end."""
    self._datasets = tuple(datasets)
    self._stack = jax.jit(
      lambda *trees: jax.tree.map(lambda *x: jax.numpy.stack(x), *trees)
    )
    self._taken: list[datasets_lib.ReplaySample] = []

  def __next__(self) -> datasets_lib.ReplaySample:
    """Returns the next batch of each member.

    Raises:
      ReplayTimeoutError: that of a member did not come in time; those that did
        come are kept for the next call.
    """
    for dataset in self._datasets[len(self._taken) :]:
      self._taken.append(next(dataset))
    samples, self._taken = self._taken, []
    return datasets_lib.ReplaySample(
      batch=self._stack(*[sample.batch for sample in samples]),
      variables_steps=np.stack([sample.variables_steps for sample in samples]),
      written_at=np.stack([sample.written_at for sample in samples]),
    )

  def close(self) -> None:
    """Closes the datasets."""
    for dataset in self._datasets:
      dataset.close()


def make_learner(
  builder: Any,
  key: types.Key,
  network: types.RecurrentNetwork,
  environment_spec: types.EnvironmentSpec,
  num_members: int,
  batches: Iterator[datasets_lib.ReplaySample],
  logger_fn: Callable[..., Any],
) -> Any:
  """Makes a learner whose state is that of all members, leaves [N, ...].

  Args:
    builder: of the agent; see its `make_learner`.
    key: for the first members.
    network: that they share.
    environment_spec: tells the events.
    num_members: N.
    batches: see `Batches`.
    logger_fn: makes the logger of a label.
  """
  place_core = functools.partial(
    make_core,
    num_members=num_members,
    at_once=jax.default_backend() != 'cpu',
    unroll=recurrent.has_convolutions(network),
  )
  learner = builder.make_learner(
    key, network, batches, logger_fn, environment_spec, place_core
  )
  # Evolved members are put on their device; so are the first ones, or JAX would
  # compile for both.
  learner.restore(learner.state)
  return learner


def make_core(
  core: types.LearnerCore, num_members: int, at_once: bool, unroll: bool
) -> types.LearnerCore:
  """Returns the functions of a learner of N members, leaves [N, ...].

  On a CPU, members at once take longer than one after another, by half and
  more: `vmap` gives each its own small matrices to multiply, or its own kernels
  to convolve with (benchmarks/population.py).

  Args:
    core: of one member.
    num_members: N.
    at_once: updates all members by `vmap`, or else one after another.
    unroll: compiles the update once for each member, where they take turns:
      gradients of convolutions are slow inside a loop of XLA's on a CPU.
  """

  def init(key):
    return jax.vmap(core.init)(jax.random.split(key, num_members))

  def update(state, batch):
    if at_once:
      return jax.vmap(core.update)(state, batch)
    return jax.lax.scan(
      lambda carry, row: (carry, core.update(*row)),
      None,
      (state, batch),
      unroll=num_members if unroll else 1,
    )[1]

  return types.LearnerCore(init, update)
