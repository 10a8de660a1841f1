"""Memory test: recall a bit that was shown many steps earlier.

The task is `environments.memory_chain`, after bsuite's memory_len. With
`--core` lstm, gru or feed_forward the agent is IMPALA; with rpth, dnc or
rpth_dnc it is FTW without auxiliary tasks. A feed-forward agent cannot exceed
chance, a return of 0.

Run `uv run experiments/memory.py --core=lstm`, and with `--core=feed_forward`
for comparison. To run all recurrent cores with three seeds each, use `uv run
experiments/memory.py --runtime=device --compare=3`.
"""

import dataclasses
import functools
import math

import ftwax
from ftwax.agents import ftw, impala
from ftwax.cli import flags, launch
from ftwax.environments import memory_chain
from ftwax.networks import rpth_level
from ftwax.networks.dnc import core as dnc_core
from ftwax.networks.dnc import interfaces

_IMPALA_CORES = ('lstm', 'gru', 'feed_forward')
_FTW_CORES = ('rpth', 'dnc', 'rpth_dnc')


@dataclasses.dataclass(frozen=True)
class Options(launch.VariantOptions):
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

_MEMORY = interfaces.MemoryConfig(
  num_slots=16, word_size=16, num_reads=1, linkage='none'
)

# Longer than an episode, so that the gradients of most answers reach the step
# that showed the bit.
_SEQUENCE_LENGTH = 64


# Forget gates start open, so that the bit is kept from the start. With a bias
# of 1, an LSTM learned the task in two of three seeds and `rpth` in none.
_FORGET_BIAS = 3.0

# Units of FTW's cores and layers.
_SIZE = 64

# In place of a named core.
_DNC = functools.partial(
  dnc_core.DNC,
  dnc_core.DNCConfig(_MEMORY, hidden_size=_SIZE, output_size=_SIZE),
)


def make_impala(core: str) -> impala.IMPALAConfig:
  """Returns IMPALA with a core."""
  return impala.IMPALAConfig.atari_paper(
    core=core,
    hidden_size=128,
    forget_bias=_FORGET_BIAS,
    sequence_length=_SEQUENCE_LENGTH,
    batch_size=16,
  ).replace(learning_rate=1e-3, rms_prop_epsilon=1e-5, max_abs_reward=math.inf)


def make_ftw(core: str) -> ftw.FTWConfig:
  """Returns FTW with a core."""
  return ftw.FTWConfig.paper(
    core=_DNC if core == 'dnc' else core,
    hidden_size=_SIZE,
    latent_size=_SIZE,
    level_options=rpth_level.LevelOptions(forget_bias=_FORGET_BIAS),
    vector_hidden_sizes=(_SIZE,),
    head_hidden_size=_SIZE,
    memory=_MEMORY,
    use_pixel_control=False,
    use_reward_prediction=False,
    sequence_length=_SEQUENCE_LENGTH,
  ).replace(
    learning_rate=1e-3,
    max_gradient_norm=40.0,
    entropy_cost=0.01,
    kl_posterior_prior_cost=1e-4,
    kl_prior_fixed_cost=1e-5,
    slow_period=8,
    fast_to_slow_gradient_scale=1.0,
  )


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


def variants(options: Options) -> dict[str, Options]:
  """Returns the options of each variant: each recurrent core."""
  return {
    core: dataclasses.replace(options, core=core)
    for core in ('lstm', *_FTW_CORES)
  }


if __name__ == '__main__':
  launch.main(__file__)
