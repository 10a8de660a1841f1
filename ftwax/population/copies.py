"""Exploits across learners, each of which holds some of the members.

A generation is decided where traits and ratings are known, and applied where
the parameters are. In between, the learner of a copy fetches the parameters of
the parent from the parent's learner. The copies of each learner are recorded as
a generation of their own, which holds only those that succeeded. All arrays are
NumPy arrays.
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
  """One set of copies for the `n` members of a learner.

  Attributes:
    number: int32 [], index of the set, from 1; 0 before the first.
    member: int32 [n], the learner's members, by index in the population.
    parent: int32 [n], the member that each one copies; itself for no copy.
    is_redrawn: bool [n], whether a member draws new traits from their priors.
    evidence: float32 [n], see `evolution.Generation`.
    inherited: traits [n, ...] to copy.
    explored: traits [n, ...] to continue with.
  """

  number: types.NumpyArray
  member: types.NumpyArray
  parent: types.NumpyArray
  is_redrawn: types.NumpyArray
  evidence: types.NumpyArray
  inherited: evolution.Traits
  explored: evolution.Traits

  @property
  def rows(self) -> list[int]:
    """Rows of the members that copy another one or draw new traits."""
    is_changed = (self.parent != self.member) | self.is_redrawn
    rows: list[int] = np.flatnonzero(is_changed).tolist()
    return rows


def no_copies(traits: evolution.Traits, member: types.NumpyArray) -> Copies:
  """Returns the copies of a learner that has not made any.

  Args:
    traits: traits of its members, leaves [n, ...].
    member: int32 [n].
  """
  traits = jax.tree.map(np.asarray, traits)
  return Copies(
    number=np.array(0, np.int32),
    member=np.asarray(member, np.int32),
    parent=np.asarray(member, np.int32),
    is_redrawn=np.zeros(len(member), bool),
    evidence=np.zeros(len(member), np.float32),
    inherited=traits,
    explored=traits,
  )


def take(
  generation: evolution.Generation, member: types.NumpyArray, number: int
) -> Copies:
  """Returns the part of a generation that one learner applies.

  Args:
    generation: the whole generation.
    member: int32 [n], members of the learner.
    number: index of the copies.
  """

  def own(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[member], tree)

  return Copies(
    number=np.array(number, np.int32),
    member=np.asarray(member, np.int32),
    parent=own(generation.parent),
    is_redrawn=own(generation.is_redrawn),
    evidence=own(generation.evidence),
    inherited=own(generation.inherited),
    explored=own(generation.explored),
  )


def keep(
  copies: Copies, is_kept: npt.NDArray[np.bool_], traits: evolution.Traits
) -> Copies:
  """Drops copies that cannot be made.

  Args:
    copies: copies of a learner.
    is_kept: bool [n], false for copies to drop.
    traits: current traits of its members, leaves [n, ...].
  """
  nothing = no_copies(traits, copies.member)
  kept: Copies = jax.tree.map(
    lambda new, old: np.where(trees.align(is_kept, new), new, old),
    copies._replace(number=nothing.member),  # [n], like the other leaves.
    nothing._replace(number=nothing.member),
  )
  return kept._replace(number=copies.number)


def receive(
  members: types.TrainingState,
  copies: Copies,
  heritages: Mapping[int, Mapping[str, Any]],
) -> types.TrainingState:
  """Applies the copies of a learner.

  Args:
    members: members of the learner, leaves [n, ...].
    copies: copies to apply.
    heritages: data of parents on other learners, see `evolution.heritage`, by
      the row of `members` that receives it.

  Returns:
    The members after the copies.
  """
  # A learner's members are consecutive, so its first one gives the offset of
  # its rows. A member that drew new traits is its own parent.
  own: dict[int, Any] = {
    row: int(copies.parent[row] - copies.member[0])
    for row in copies.rows
    if row not in heritages
  }

  def write(before: Any, *new: Any) -> types.NumpyArray:
    written = np.array(before)
    for row, parent in own.items():
      # Reads `before`, never `written`: a parent may itself copy another
      # member.
      written[row] = before[parent]
    for row, leaf in zip(heritages, new, strict=True):
      written[row] = leaf
    return written

  taken = jax.tree.map(write, evolution.heritage(members), *heritages.values())
  return members._replace(**taken, **copies.explored._asdict())


def as_generation(
  copies: Copies, population: state_lib.PopulationState
) -> evolution.Generation:
  """Returns the generation that consists of one learner's copies.

  Args:
    copies: copies of the learner.
    population: the population before them; of its members only traits are used.
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
    is_redrawn=write(np.zeros(num_members, bool), copies.is_redrawn),
    evidence=write(np.zeros(num_members, np.float32), copies.evidence),
    inherited=jax.tree.map(write, traits, copies.inherited),
    explored=jax.tree.map(write, traits, copies.explored),
  )


def members_of_traits(traits: evolution.Traits) -> types.TrainingState:
  """Returns members with the given traits [N, ...] and nothing else."""
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
