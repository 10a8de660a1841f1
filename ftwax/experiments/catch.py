"""IMPALA with default settings learns bsuite's catch within a minute.

Run `uv run experiments/catch.py`; `--help` lists the flags. With
`--runtime=device` the game is `environments.catch`, compiled together with the
agent. `--agent=a2c` and `--agent=a3c` learn it too. A3C updates from one
environment at a time, so use few environments: `--runtime=distributed
--num_environments=2`.
"""

import functools

from absl import flags

from ftwax.agents import named
from ftwax.environments import catch, functional, game_vectors
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=100_000, num_environments=8, eval_every=20_000
)
_AGENT = flags.DEFINE_enum('agent', 'impala', named.STANDARD, 'The agent.')


def make_functional(seed: int) -> functional.FunctionalEnvironment:
  """Returns catch in JAX; its random keys come from the run."""
  del seed
  return catch.make()


def make_environment_factory() -> game_vectors.EnvironmentFactory:
  """Returns the environment factory for the chosen runtime."""
  if launch.FLAGS.runtime == 'device':
    return make_functional
  from ftwax.environments import bsuite_adapter

  return functools.partial(bsuite_adapter.make, 'catch/0')


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment described by the flags."""
  config = named.AGENTS[_AGENT.value]()
  return experiment.ExperimentConfig(
    name='catch' if _AGENT.value == 'impala' else f'catch_{_AGENT.value}',
    agent=config,
    environment=make_environment_factory(),
    **launch.experiment_options(),
  )


if __name__ == '__main__':
  launch.run(build_experiment)
