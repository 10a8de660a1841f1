"""IMPALA learns to catch falling balls (bsuite's catch) in a minute.

Run as `uv run experiments/catch.py`; `--help` tells the flags.
"""

import functools

from ftwax.agents import impala
from ftwax.environments import bsuite_adapter
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=400_000, num_environments=32, eval_every=50_000
)


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment that the flags describe."""
  config = impala.IMPALAConfig()
  return experiment.ExperimentConfig(
    name='catch',
    builder=impala.make_builder(config),
    network_factory=functools.partial(impala.make_network, config=config),
    environment_factory=functools.partial(bsuite_adapter.make, 'catch/0'),
    **launch.experiment_options(),
  )


if __name__ == '__main__':
  launch.run(build_experiment)
