"""A population of four that copies much, and what its records must say."""

import jax
import jax.numpy as jnp
import numpy as np
import population_helpers

from ftwax.population import evolution, lineage, population_config
from ftwax.records import checkpoints
from ftwax.reporting import history
from ftwax.runtime import parts, run_records


def build():
  """Returns the experiment, which saves often and has no end of its own."""
  return population_helpers.make_experiment(
    num_environments=2,
    steps_per_round=6,
    max_num_actor_steps=10**9,
    population=population_config.PopulationConfig(
      4,
      burn_in_games=4,
      win_probability_threshold=0.5001,
      perturb_probability=0.5,
    ),
    checkpointing=checkpoints.CheckpointingConfig(2.0),
  )


def read_copies(directory):
  """Returns the rows of the lineage in which a member copied another."""
  rows = history.read_lineage(directory)
  return [row for row in rows if 'parent' in row]


def crosses_learners(row):
  """Returns whether two learners of two members each took part in a copy."""
  return row['member'] // 2 != row['parent'] // 2


def check_lineage(directory):
  """Checks that traits are those that the lineage leads to.

  Returns:
    What the checkpoint tells beside the population.
  """
  experiment = build()
  template = parts.make_template(experiment, experiment.read_game_spec())
  population, metadata = parts.restore(
    directory / 'checkpoints', template, run_records.POPULATION
  )
  assert not (directory / 'parts').exists()
  rows = lineage.read(directory / history.LINEAGE_FILE)
  assert rows[-1]['generation'] <= population.generation
  founders = jax.tree.map(jnp.zeros_like, population)
  replayed = lineage.replay(founders, rows)
  copied = np.unique([row['member'] for row in rows if 'parent' in row])
  assert len(copied)
  for actual, expected in zip(
    jax.tree.leaves(evolution.traits(population.members)),
    jax.tree.leaves(evolution.traits(replayed.members)),
    strict=True,
  ):
    np.testing.assert_array_equal(actual[copied], expected[copied])
  return metadata
