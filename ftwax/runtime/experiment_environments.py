"""The environments of an experiment, as runtimes with a replay server use them.

Each comes from a seed below 2**31; environments in JAX get the face of one in
Python.
"""

import contextlib

import dm_env
import numpy as np

from ftwax import types
from ftwax.environments import functional, validation, vector
from ftwax.runtime import experiment as experiment_lib


def make(
  experiment: experiment_lib.ExperimentConfig, seed: int
) -> dm_env.Environment:
  """Makes an environment of Python, around one of JAX if need be."""
  made = experiment.environment_factory(seed)
  if isinstance(made, functional.FunctionalEnvironment):
    return functional.DmEnv(made, seed)
  return made


def read_spec(
  experiment: experiment_lib.ExperimentConfig,
) -> types.EnvironmentSpec:
  """Returns the spec, read off an environment of its own if not given."""
  if experiment.environment_spec is not None:
    return experiment.environment_spec
  with contextlib.closing(make(experiment, 0)) as made:
    validated = validation.ValidatedEnvironment(made, experiment.name)
    return types.make_environment_spec(validated)


def make_vector(
  experiment: experiment_lib.ExperimentConfig,
  num_environments: int,
  entropy: tuple[int, ...],
  label: str,
) -> vector.VectorEnvironment:
  """Makes environments with seeds of their own, side by side.

  Args:
    experiment: tells the factory and a part of the seeds.
    num_environments: E.
    entropy: the other part of the seeds; other numbers give other seeds.
    label: names the environments in errors.
  """
  seeds = make_seeds((experiment.seed, *entropy), num_environments)
  return vector.VectorEnvironment(
    [
      validation.ValidatedEnvironment(
        make(experiment, seed), f'{label}[{index}]'
      )
      for index, seed in enumerate(seeds)
    ]
  )


def make_seeds(entropy: tuple[int, ...], num_environments: int) -> list[int]:
  """Returns a seed below 2**31 for each environment."""
  sequence = np.random.SeedSequence(entropy)
  return [int(x) >> 1 for x in sequence.generate_state(num_environments)]
