"""An experiment of a few steps for tests of distributed runs."""

import functools

import fakes

from ftwax.agents import impala
from ftwax.networks import cores
from ftwax.replay import replay_options
from ftwax.runtime import experiment

# Pickled by reference: processes of nodes import `fakes` from this one's path.
make_fake = functools.partial(
  fakes.FakeEnvironment, fakes.make_vector_spec(), 4, False
)


def make_experiment(**options):
  """Returns an experiment with `options`; its episodes take 4 steps."""
  config = impala.IMPALAConfig(
    core=cores.LSTM(8),
    sequence_length=5,
    batch_size=4,
    queue=replay_options.Queue(max_size=8),
  )
  return experiment.ExperimentConfig(
    **{
      'agent': config,
      'environment': make_fake,
      'max_num_actor_steps': 100,
      'num_environments': 2,
      'name': 'test',
      **options,
    }
  )
