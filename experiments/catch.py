"""IMPALA learns to catch falling balls (bsuite's catch) in a minute.

Run as `uv run experiments/catch.py`; `--help` tells the flags. With
`--runtime=device` the game is that of `environments.catch`, compiled together
with the agent.
"""

import functools

from ftwax.agents import impala
from ftwax.environments import catch, functional
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=400_000, num_environments=32, eval_every=50_000
)


def make_functional(seed: int) -> functional.FunctionalEnvironment:
  """Returns catch in JAX, whose keys come from the run's seed."""
  del seed
  return catch.make()


def make_environment_factory():
  """Returns the game for the runtime that is asked for."""
  if launch.FLAGS.runtime == 'device':
    return make_functional
  from ftwax.environments import bsuite_adapter  # Installs on Python 3.10.

  return functools.partial(bsuite_adapter.make, 'catch/0')


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment that the flags describe."""
  config = impala.IMPALAConfig()
  return experiment.ExperimentConfig(
    name='catch',
    builder=impala.make_builder(config),
    network_factory=functools.partial(impala.make_network, config=config),
    environment_factory=make_environment_factory(),
    **launch.experiment_options(),
  )


if __name__ == '__main__':
  launch.run(build_experiment)
