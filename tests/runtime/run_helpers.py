"""How tests of runtimes make experiments, run them and compare the states."""

import jax
import numpy as np

from ftwax.agents import impala
from ftwax.networks import torsos
from ftwax.records import checkpoints
from ftwax.runtime import experiment, runs

FEED_FORWARD = impala.IMPALAConfig(
  core='feed_forward',
  torso=torsos.Torso(hidden_sizes=(4,)),
  batch_size=4,
  sequence_length=4,
)


def make_experiment(
  config,
  environment,
  agent=impala,
  **options,
):
  """Makes a small experiment, which saves at its end alone."""
  options = {
    'max_num_actor_steps': 200,
    'num_environments': 4,
    'checkpointing': checkpoints.CheckpointingConfig(float('inf')),
    'name': 'test',
    **options,
  }
  return experiment.ExperimentConfig(
    agent=config,
    environment=environment,
    **options,
  )


def make_run(runtime, directory):
  """Returns what runs an experiment in a directory in this one."""

  def run(config, name='run', **options):
    return runs.run_experiment(
      config, runtime=runtime, run_dir=directory / name, **options
    )

  return run


def assert_same(tree, other):
  jax.tree.map(np.testing.assert_array_equal, tree, other)


def differ(tree, other):
  leaves = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
  return any(np.any(np.asarray(x) != np.asarray(y)) for x, y in leaves)
