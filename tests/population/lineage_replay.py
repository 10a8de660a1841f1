"""Repeats an evolution from its lineage, which must hold all that changed."""

import jax
import jax.numpy as jnp
import numpy as np

from ftwax.population import evolution
from ftwax.population import lineage as lineage_lib


def replay(population, lineage):
  """Repeats all generations of `lineage` on a population.

  The result equals the final members if nothing was trained in between.
  Otherwise, call it with the rows of one generation at a time, at the step at
  which that generation evolved.

  Args:
    population: the population before the first of the generations.
    lineage: rows in the order of the file.

  Returns:
    The population after the last generation.
  """
  generations = {}
  for row in lineage:
    if 'parent' in row:
      generations.setdefault(row['generation'], []).append(row)
  # In NumPy, which is faster for thousands of small operations.
  population = jax.tree.map(np.asarray, population)
  for number, group in generations.items():
    population = _replay_generation(population, group)._replace(
      generation=jnp.int32(number)
    )
  return jax.tree.map(jnp.asarray, population)


def _replay_generation(population, group):
  """Copies rows at once, as `evolve` does, then sets the explored traits."""
  parent = np.arange(population.ratings.shape[0])
  is_redrawn = np.zeros(len(parent), bool)
  for row in group:
    parent[row['member']] = row['parent']
    is_redrawn[row['member']] = row['parent'] == row['member']
  population = evolution.copy_rows(population, parent, is_redrawn)
  traits = evolution.traits(population.members)
  names = lineage_lib._values_by_name(traits)
  new_traits = {}
  for part, tree in traits._asdict().items():
    leaves, structure = jax.tree.flatten(jax.tree.map(np.array, tree))
    for leaf, name in zip(leaves, names[part], strict=True):
      for row in group:
        leaf[row['member']] = _number(row[part][name])
    new_traits[part] = jax.tree.unflatten(structure, leaves)
  return population._replace(members=population.members._replace(**new_traits))


def _number(value):
  """Returns a number, or a list of numbers, of a row."""
  if isinstance(value, list):
    return [_number(entry) for entry in value]
  return float(value) if isinstance(value, str) else value
