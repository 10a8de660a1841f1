"""What the cores of FTW remember: pairs shown once and asked for later.

Run as `uv run experiments/ftw_memory.py --core=rpth_dnc`, and with
`--core=lstm` and `--core=rpth` for the comparison; all have cores of the same
size.
"""

import functools

from absl import flags

from ftwax.agents import ftw
from ftwax.environments import functional, recall
from ftwax.networks.dnc import interfaces
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=3_000_000,
  num_environments=32,
  eval_every=0,
  runtime='device',
)
_CORE = flags.DEFINE_enum('core', 'rpth_dnc', ftw.CORES, 'The recurrent core.')
_NUM_PAIRS = flags.DEFINE_integer('num_pairs', 6, 'Pairs to remember.')
_HIDDEN_SIZE = flags.DEFINE_integer('hidden_size', 64, 'Units of each core.')


def make_environment(seed: int) -> functional.FunctionalEnvironment:
  """Returns the task, whose keys come from the run's seed."""
  del seed
  return recall.make(_NUM_PAIRS.value)


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment that the flags describe."""
  size = _HIDDEN_SIZE.value
  config = ftw.FTWConfig(
    core=_CORE.value,
    hidden_size=size,
    latent_size=size,
    embedding_size=size,
    vector_hidden_sizes=(size,),
    head_hidden_size=size,
    memory=interfaces.MemoryConfig(
      num_slots=16, word_size=16, num_reads=1, linkage='none'
    ),
    use_pixel_control=False,
    use_reward_prediction=False,
    sequence_length=24,
    batch_size=32,
  ).fix(
    learning_rate=1e-3,
    rms_prop_epsilon=1e-4,
    max_gradient_norm=40.0,
    entropy_cost=5e-3,
    kl_posterior_prior_cost=1e-4,
    kl_prior_fixed_cost=1e-5,
    slow_period=4,
    fast_to_slow_gradient_scale=1.0,
  )
  return experiment.ExperimentConfig(
    name=f'ftw_memory_{_CORE.value}',
    builder=ftw.FTWBuilder(config),
    network_factory=functools.partial(ftw.make_network, config=config),
    environment_factory=make_environment,
    **launch.experiment_options(),
  )


if __name__ == '__main__':
  launch.run(build_experiment)
