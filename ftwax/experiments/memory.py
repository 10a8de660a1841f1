"""Memory test: recall a bit that was shown many steps earlier.

The task is `environments.memory_chain`, after bsuite's memory_len. With
`--core` lstm, gru or feed_forward the agent is IMPALA; with rpth, dnc or
rpth_dnc it is FTW without auxiliary tasks. A feed-forward agent cannot exceed
chance, a return of 0.

Run `uv run experiments/memory.py --core=lstm`, and with `--core=feed_forward`
for comparison.
"""

import dataclasses
import functools
import math

import ftwax
from ftwax.agents import ftw, impala
from ftwax.agents.actor_critic import optimization, tasks
from ftwax.cli import flags, launch
from ftwax.environments import memory_chain
from ftwax.networks import cores

_IMPALA_CORES = ('lstm', 'gru', 'feed_forward')
_FTW_CORES = ('rpth', 'dnc', 'rpth_dnc')


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 500_000
  num_environments: int = 16
  eval_every: int = 100_000
  core: str = flags.flag(
    'lstm', 'The recurrent core.', [*_IMPALA_CORES, *_FTW_CORES]
  )
  setting: int = flags.flag(15, "Setting N of bsuite's memory_len/N, 0 to 22.")


# Steps from the bit to the question for each setting of bsuite's sweep.
_LENGTHS = (*range(1, 11), 12, 14, 17, 20, 25, *range(30, 101, 10))

_MEMORY = cores.Memory(num_slots=16, word_size=16, num_reads=1, linkage='none')

# Longer than an episode, so that the gradients of most answers reach the step
# that showed the bit.
_SEQUENCE_LENGTH = 64


# Units of FTW's cores and layers.
_SIZE = 64

# Forget gates start open, so that the bit is kept from the start. With a bias
# of 1, an LSTM learned the task in two of three seeds and a hierarchy in none.
_HIERARCHY = cores.RPTH(cores.LSTM(_SIZE), memory=_MEMORY)
_DNC = cores.DNC(_SIZE, memory=_MEMORY, output_size=_SIZE)


def make_impala(core: str) -> impala.IMPALAConfig:
  """Returns IMPALA with a core."""
  return impala.IMPALAConfig.atari_paper(
    core=cores.find(core).with_size(128),
    sequence_length=_SEQUENCE_LENGTH,
    batch_size=16,
    learning_rate=1e-3,
    optimizer=optimization.RMSProp(1e-5),
    max_abs_reward=math.inf,
  )


def make_ftw(core: str) -> ftw.FTWConfig:
  """Returns FTW with a core."""
  kl = tasks.LatentKL(posterior_prior_cost=1e-4, prior_fixed_cost=1e-5)
  return ftw.FTWConfig(
    core=_DNC if core == 'dnc' else ftw.named_core(core, _HIERARCHY),
    tasks=() if core == 'dnc' else (kl,),
    sequence_length=_SEQUENCE_LENGTH,
    learning_rate=1e-3,
    max_gradient_norm=40.0,
    entropy_cost=0.01,
  ).with_size(_SIZE)


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  core, setting = options.core, options.setting
  if not 0 <= setting < len(_LENGTHS):
    raise ValueError(
      f'setting ({setting}) must be from 0 to {len(_LENGTHS) - 1}, of'
      ' memory_len/0 to memory_len/22; choose 15.'
    )
  return ftwax.ExperimentConfig(
    name=f'memory_{core}',
    agent=make_impala(core) if core in _IMPALA_CORES else make_ftw(core),
    environment=functools.partial(memory_chain.make, _LENGTHS[setting]),
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
