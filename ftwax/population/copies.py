"""Copies of members that several learners hold, each of them some.

A generation is drawn where traits and ratings are known, and done where the
parameters are. In between the learner of a copy fetches what it takes from the
learner of the parent, so that the copies of each learner are a generation of
their own: those that came to pass. All arrays are NumPy's.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from ftwax import trees, types
from ftwax.population import evolution
from ftwax.population import state as state_lib


class Copies(NamedTuple):
  """What the `n` members of one learner copy at a time.

  Attributes:
    number: int32 [], of the learner's copies, from 1; 0 before the first.
    member: int32 [n], the learner's members, as the population counts them.
    parent: int32 [n], the member that each copies; itself for no copy.
    evidence: float32 [n], see `evolution.Generation`.
    inherited: traits [n, ...] as they are to be copied.
    explored: traits [n, ...] to continue with.
  """

  number: types.NumpyArray
  member: types.NumpyArray
  parent: types.NumpyArray
  evidence: types.NumpyArray
  inherited: evolution.Traits
  explored: evolution.Traits

  @property
  def rows(self) -> list[int]:
    """The rows of members that copy another."""
    rows: list[int] = np.flatnonzero(self.parent != self.member).tolist()
    return rows


def no_copies(traits: evolution.Traits, member: types.NumpyArray) -> Copies:
  """Returns the copies of a learner that has made none.

  Args:
    traits: of its members, leaves [n, ...].
    member: int32 [n].
  """
  traits = jax.tree.map(np.asarray, traits)
  return Copies(
    number=np.array(0, np.int32),
    member=np.asarray(member, np.int32),
    parent=np.asarray(member, np.int32),
    evidence=np.zeros(len(member), np.float32),
    inherited=traits,
    explored=traits,
  )


def take(
  generation: evolution.Generation, member: types.NumpyArray, number: int
) -> Copies:
  """Returns the part of a generation that one learner does.

  Args:
    generation: as it was drawn.
    member: int32 [n], of the learner.
    number: of its copies.
  """

  def own(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[member], tree)

  return Copies(
    number=np.array(number, np.int32),
    member=np.asarray(member, np.int32),
    parent=own(generation.parent),
    evidence=own(generation.evidence),
    inherited=own(generation.inherited),
    explored=own(generation.explored),
  )


def keep(
  copies: Copies, is_kept: npt.NDArray[np.bool_], traits: evolution.Traits
) -> Copies:
  """Drops copies that cannot be made.

  Args:
    copies: of a learner.
    is_kept: [n]; false where there is to be no copy.
    traits: of its members as they are, leaves [n, ...].
  """
  nothing = no_copies(traits, copies.member)
  kept: Copies = jax.tree.map(
    lambda new, old: np.where(trees.align(is_kept, new), new, old),
    copies._replace(number=nothing.member),  # Of n rows, as the others.
    nothing._replace(number=nothing.member),
  )
  return kept._replace(number=copies.number)


def receive(
  members: types.TrainingState,
  copies: Copies,
  heritages: Mapping[int, Mapping[str, Any]],
) -> types.TrainingState:
  """Does the copies of a learner.

  Args:
    members: of the learner, leaves [n, ...].
    copies: that it is to do.
    heritages: what parents of other learners give, see `evolution.heritage`,
      by the row of `members` that takes it.

  Returns:
    The members after it.
  """
  own: dict[int, Any] = {
    row: int(copies.parent[row] - copies.member[0])
    for row in copies.rows
    if row not in heritages
  }

  def write(before: Any, *new: Any) -> types.NumpyArray:
    written = np.array(before)
    for row, parent in own.items():
      written[row] = before[parent]
    for row, leaf in zip(heritages, new, strict=True):
      written[row] = leaf
    return written

  taken = jax.tree.map(write, evolution.heritage(members), *heritages.values())
  return members._replace(**taken, **copies.explored._asdict())


def as_generation(
  copies: Copies, population: state_lib.PopulationState
) -> evolution.Generation:
  """Returns the generation in which one learner's copies came to pass.

  Args:
    copies: of the learner.
    population: before them; of its members the traits are enough.
  """

  def write(before: Any, own: Any) -> Any:
    written = np.array(before)
    written[copies.member] = own
    return written

  traits = evolution.traits(population.members)
  num_members = population.ratings.shape[0]
  return evolution.Generation(
    number=population.generation + 1,
    games=population.games,
    parent=write(np.arange(num_members, dtype=np.int32), copies.parent),
    evidence=write(np.zeros(num_members, np.float32), copies.evidence),
    inherited=jax.tree.map(write, traits, copies.inherited),
    explored=jax.tree.map(write, traits, copies.explored),
  )


def members_of_traits(traits: evolution.Traits) -> types.TrainingState:
  """Returns members of which nothing is known but their traits [N, ...]."""
  nothing: Any = ()
  return types.TrainingState(
    params=nothing,
    opt_state=nothing,
    **traits._asdict(),
    key=nothing,
    steps=nothing,
    skipped=nothing,
    skipped_in_a_row=nothing,
  )
