"""A memory test for FTW's cores: symbols are shown, then repeated in order.

Run `uv run experiments/ftw_memory.py --core=rpth_dnc`, and with `--core=lstm`
and `--core=rpth` for comparison; all cores have the same size. The task suits a
memory that links its slots in the order of writing.
"""

import dataclasses
import functools

import ftwax
from ftwax.agents import ftw
from ftwax.cli import flags, launch
from ftwax.environments import copying
from ftwax.networks import cores


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 2_500_000
  num_environments: int = 32
  runtime: str = 'device'
  core: str = flags.flag('rpth_dnc', 'The recurrent core.', tuple(cores.NAMED))
  length: int = flags.flag(10, 'Symbols in an episode.')
  hidden_size: int = flags.flag(32, 'Units of each core.')


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  hierarchy = cores.RPTH(
    options.hidden_size,
    memory=cores.Memory(num_slots=16, word_size=16, num_reads=1),
    slow_period=4,
  )
  config = ftw.FTWConfig(
    core=ftw.named_core(options.core, hierarchy),
    tasks=(),
    optimizer='adam',
    # A whole episode and the first step of the next, so that gradients reach
    # from each answer to the step that showed it.
    sequence_length=2 * options.length + 1,
    batch_size=32,
    learning_rate=2e-3,
    entropy_cost=0.015,
    # Actions have no effect on later rewards.
    discount=0.0,
  ).with_size(options.hidden_size)
  return ftwax.ExperimentConfig(
    name=f'ftw_memory_{options.core}',
    agent=config,
    environment=functools.partial(copying.make, options.length),
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
