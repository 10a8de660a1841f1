"""Memory test: recall a bit that was shown many steps earlier.

The task is `environments.memory_chain`, after bsuite's memory_len, and the
agent IMPALA. A feed-forward agent cannot exceed chance, a return of 0.

Run `uv run experiments/memory.py --core=lstm`, and with `--core=feed_forward`
for comparison.
"""

import dataclasses
import functools
import math

import ftwax
from ftwax.agents import impala
from ftwax.agents.actor_critic import optimization
from ftwax.cli import flags, launch
from ftwax.environments import memory_chain
from ftwax.networks import cores


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 500_000
  num_environments: int = 16
  eval_every: int = 100_000
  core: str = flags.flag('lstm', 'The recurrent core.', tuple(cores.NAMED))
  setting: int = flags.flag(15, "Setting N of bsuite's memory_len/N, 0 to 22.")


# Steps from the bit to the question for each setting of bsuite's sweep.
_LENGTHS = (*range(1, 11), 12, 14, 17, 20, 25, *range(30, 101, 10))

# Longer than an episode, so that the gradients of most answers reach the step
# that showed the bit.
_SEQUENCE_LENGTH = 64


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  if not 0 <= options.setting < len(_LENGTHS):
    raise ValueError(
      f'setting ({options.setting}) must be from 0 to {len(_LENGTHS) - 1}, of'
      ' memory_len/0 to memory_len/22; choose 15.'
    )
  return ftwax.ExperimentConfig(
    name=f'memory_{options.core}',
    agent=impala.IMPALAConfig.atari_paper(
      core=cores.find(options.core).with_size(128),
      sequence_length=_SEQUENCE_LENGTH,
      batch_size=16,
      learning_rate=1e-3,
      optimizer=optimization.RMSProp(1e-5),
      max_abs_reward=math.inf,
    ),
    environment=functools.partial(memory_chain.make, _LENGTHS[options.setting]),
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
