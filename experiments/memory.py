"""What memory is for: bsuite's memory_len, with an LSTM and without.

A bit is shown at the first step and asked for after `memory_length` steps.
An LSTM learns to keep it; without memory the return stays that of chance, 0.

Run as `uv run experiments/memory.py --core=lstm`, and with
`--core=feed_forward` for the comparison.
"""

import functools

from absl import flags

from ftwax import hyperparameters
from ftwax.agents import impala
from ftwax.environments import bsuite_adapter
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=500_000, num_environments=16, eval_every=100_000
)
_CORE = flags.DEFINE_enum(
  'core', 'lstm', ['lstm', 'gru', 'feed_forward'], 'The recurrent core.'
)
_SETTING = flags.DEFINE_integer(
  'setting', 15, "Number of the task in bsuite's sweep, memory_len/0 to 22."
)


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment that the flags describe."""
  # A trajectory is longer than an episode, and the forget gate starts open, so
  # that the gradient of most answers reaches the step that showed the bit.
  config = impala.IMPALAConfig(
    core=_CORE.value,
    hidden_size=128,
    forget_bias=3.0,
    sequence_length=64,
  )
  config = config.replace(
    priors=config.priors._replace(
      rms_prop_epsilon=hyperparameters.Constant(1e-5)
    )
  )
  return experiment.ExperimentConfig(
    name=f'memory_{_CORE.value}',
    builder=impala.make_builder(config),
    network_factory=functools.partial(impala.make_network, config=config),
    environment_factory=functools.partial(
      bsuite_adapter.make, f'memory_len/{_SETTING.value}'
    ),
    **launch.experiment_options(),
  )


if __name__ == '__main__':
  launch.run(build_experiment)
