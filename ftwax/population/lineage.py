"""The lineage of a population: all copies, their reasons and their changes.

It is a JSONL file. Its first row holds the initial traits of the members; then
there is a row for each copy, and for each member that drew new traits, which is
its own parent there. In between, nothing changes hyperparameters or internal
rewards, so that the file determines both at any time, to the last bit.

Floats are written with all their digits. Non-finite floats are written as
strings, since JSON does not support them.
"""

import functools
import math
from typing import Any

import jax
import numpy as np

from ftwax.population import evolution, exploring
from ftwax.population import state as state_lib

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


def _values_by_name(traits: exploring.Traits) -> dict[str, dict[str, Any]]:
  """Returns traits as plain values: a list of [N] for each name.

  The name of a single array is `weights`.
  """
  name_of = functools.partial(jax.tree_util.keystr, simple=True, separator='.')
  return {
    part: {
      name_of(path) or 'weights': _plain(leaf)
      for path, leaf in jax.tree.leaves_with_path(tree)
    }
    for part, tree in traits._asdict().items()
  }


def _plain(value: Any) -> Any:
  """Converts arrays to numbers and nested lists of numbers."""
  plain = np.asarray(value).tolist()
  if isinstance(plain, list):
    return [_plain(entry) for entry in plain]
  if isinstance(plain, float) and not math.isfinite(plain):
    return str(plain)
  return plain
