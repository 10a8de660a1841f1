"""The lineage of a population: all copies, their reasons and their changes.

It is a JSONL file. Its first row holds the initial traits of the members; then
there is a row for each copy, and for each member that drew new traits, which is
its own parent there. In between, nothing changes hyperparameters or internal
rewards, so that the file determines both at any time, and `replay` reproduces
an evolution from it to the last bit.

Floats are written with all their digits. Non-finite floats are written as
strings, since JSON does not support them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftwax.population import evolution
from ftwax.population import state as state_lib

Row = Mapping[str, Any]

# Reason of a row of a member that drew new traits since nobody won its games.
_UNDECIDED = 'undecided'


def birth_row(population: state_lib.PopulationState) -> dict[str, Any]:
  """Returns the first row: initial traits of all members, lists of [N]."""
  return {
    'generation': int(population.generation),
    'num_members': population.ratings.shape[0],
    **_values_by_name(evolution.traits(population.members)),
  }


def rows(generation: evolution.Generation, reason: str) -> list[dict[str, Any]]:
  """Returns a row for each member whose traits changed in a generation.

  Args:
    generation: a record from `evolution.evolve`.
    reason: name of the selection rule; `undecided` stands for those that drew
      new traits.
  """
  parents = np.asarray(generation.parent)
  is_redrawn = np.asarray(generation.is_redrawn)
  (members,) = np.nonzero((parents != np.arange(len(parents))) | is_redrawn)
  if not len(members):
    return []
  inherited = _values_by_name(generation.inherited)
  explored = _values_by_name(generation.explored)
  evidence = np.asarray(generation.evidence)
  games = np.asarray(generation.games)

  def row(member: int) -> dict[str, Any]:
    values = {
      part: {name: column[member] for name, column in columns.items()}
      for part, columns in explored.items()
    }
    return {
      'generation': int(generation.number),
      'member': member,
      'parent': int(parents[member]),
      'games': int(games[member]),
      'reason': _UNDECIDED if is_redrawn[member] else reason,
      'evidence': _plain(evidence[member]),
      'changed': {
        f'{part}/{name}': [inherited[part][name][member], value]
        for part, named in values.items()
        for name, value in named.items()
        if inherited[part][name][member] != value
      },
      **values,
    }

  return [row(int(member)) for member in members]


def replay(
  population: state_lib.PopulationState, lineage: Sequence[Row]
) -> state_lib.PopulationState:
  """Repeats all generations of `lineage` on a population.

  The result equals the final members if nothing was trained in between.
  Otherwise, call it with the rows of one generation at a time, at the step at
  which that generation evolved.

  Args:
    population: the population before the first of the generations.
    lineage: rows in the order of `read`.

  Returns:
    The population after the last generation.

  Raises:
    ValueError: if the lineage belongs to a population of another size.
  """
  num_members = population.ratings.shape[0]
  generations: dict[int, list[Row]] = {}
  for row in lineage:
    if row.get('num_members', num_members) != num_members:
      raise ValueError(
        f'population (of {num_members} members) must be of the size of the'
        f' lineage ({row["num_members"]} members); give the population that it'
        ' was written for.'
      )
    if 'parent' in row:
      generations.setdefault(row['generation'], []).append(row)
  # In NumPy, which is faster for thousands of small operations.
  population = jax.tree.map(np.asarray, population)
  for number, group in generations.items():
    population = _replay_generation(population, group)._replace(
      generation=jnp.int32(number)
    )
  return jax.tree.map(jnp.asarray, population)


def _replay_generation(
  population: state_lib.PopulationState, group: Sequence[Row]
) -> state_lib.PopulationState:
  """Copies rows at once, as `evolve` does, then sets the explored traits."""
  parent = np.arange(population.ratings.shape[0])
  is_redrawn = np.zeros(len(parent), bool)
  for row in group:
    parent[row['member']] = row['parent']
    is_redrawn[row['member']] = row['parent'] == row['member']
  population = evolution.copy_rows(population, parent, is_redrawn)
  traits = evolution.traits(population.members)
  named = {part: dict(_leaves(tree)) for part, tree in _parts(traits)}
  for part, columns in named.items():
    for name, column in columns.items():
      values = np.array(column)
      for row in group:
        values[row['member']] = _number(row[part][name])
      columns[name] = values
  new_traits = {
    part: jax.tree.unflatten(jax.tree.structure(tree), named[part].values())
    for part, tree in _parts(traits)
  }
  return population._replace(members=population.members._replace(**new_traits))


def _parts(traits: evolution.Traits) -> Iterable[tuple[str, Any]]:
  return traits._asdict().items()


def _leaves(tree: Any) -> list[tuple[str, Any]]:
  """Returns the leaves of `tree` by name; a single one is named `weights`."""
  return [
    (jax.tree_util.keystr(path, simple=True, separator='.') or 'weights', leaf)
    for path, leaf in jax.tree.leaves_with_path(tree)
  ]


def _values_by_name(traits: evolution.Traits) -> dict[str, dict[str, Any]]:
  """Returns traits as plain values: a list of [N] for each name."""
  return {
    part: {name: _plain(leaf) for name, leaf in _leaves(tree)}
    for part, tree in _parts(traits)
  }


def _plain(value: Any) -> Any:
  """Converts arrays to numbers and nested lists of numbers."""
  plain = np.asarray(value).tolist()
  if isinstance(plain, list):
    return [_plain(entry) for entry in plain]
  if isinstance(plain, float) and not math.isfinite(plain):
    return str(plain)
  return plain


def _number(value: Any) -> Any:
  """Inverts `_plain`, for numbers and lists of numbers."""
  if isinstance(value, list):
    return [_number(entry) for entry in value]
  return float(value) if isinstance(value, str) else value
