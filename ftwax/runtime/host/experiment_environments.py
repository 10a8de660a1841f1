"""The environments of an experiment, as runtimes with a replay server use them.

Those of Python come from a seed each, below 2**31; one in JAX is made once, and
compiled for all rows together.
"""

import contextlib
from typing import Any

import numpy as np

from ftwax import types
from ftwax.environments import functional, validation, vector
from ftwax.runtime import experiment as experiment_lib


def read_spec(
  experiment: experiment_lib.ExperimentConfig,
) -> types.EnvironmentSpec:
  """Returns the spec, read off an environment of its own if not given."""
  if experiment.environment_spec is not None:
    return experiment.environment_spec
  made: Any = experiment.environment_factory(0)
  if isinstance(made, functional.FunctionalEnvironment):
    validation.check_spec(made.spec, experiment.name)
    return made.spec
  with contextlib.closing(made):
    validated = validation.ValidatedEnvironment(made, experiment.name)
    return types.make_environment_spec(validated)


def make_vector(
  experiment: experiment_lib.ExperimentConfig,
  num_environments: int,
  entropy: tuple[int, ...],
  label: str,
) -> vector.VectorEnvironment | vector.CompiledVectorEnvironment:
  """Makes environments with seeds of their own, side by side.

  Args:
    experiment: tells the factory, which makes one functional environment for
      all rows, and a part of the seeds.
    num_environments: E.
    entropy: the other part of the seeds; other numbers give other seeds.
    label: names the environments in errors.
  """
  seeds = make_seeds((experiment.seed, *entropy), num_environments)
  made: Any = experiment.environment_factory(seeds[0])
  if isinstance(made, functional.FunctionalEnvironment):
    return vector.CompiledVectorEnvironment(
      made, num_environments, seeds[0], label
    )
  rest = [experiment.environment_factory(seed) for seed in seeds[1:]]
  return vector.VectorEnvironment(
    [
      validation.ValidatedEnvironment(environment, f'{label}[{index}]')
      for index, environment in enumerate([made, *rest])
    ]
  )


def make_seeds(entropy: tuple[int, ...], num_environments: int) -> list[int]:
  """Returns a seed below 2**31 for each environment."""
  sequence = np.random.SeedSequence(entropy)
  return [int(x) >> 1 for x in sequence.generate_state(num_environments)]
