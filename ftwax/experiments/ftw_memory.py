"""Memory tests for FTW's cores: copying, and recall by random keys.

Run `uv run experiments/ftw_memory.py --core=rpth_dnc`, and with `--core=lstm`
and `--core=rpth` for comparison; all cores have the same size.

In copying, symbols are shown and must then be repeated in order, which suits a
memory that links its slots in the order of writing. `--task=recall` asks for
the values of keys instead. Keys are random vectors, redrawn in every episode,
so no unit can specialize in one. An agent that remembers the values of six
pairs, but not which key has which value, reaches a return of about 0.45; a
higher return requires looking up values by their keys.
"""

import dataclasses
import functools

import ftwax
from ftwax.agents import ftw
from ftwax.cli import flags, launch
from ftwax.environments import copying, recall
from ftwax.networks import cores


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 2_500_000
  num_environments: int = 32
  runtime: str = 'device'
  core: str = flags.flag('rpth_dnc', 'The recurrent core.', tuple(cores.NAMED))
  task: str = flags.flag('copying', 'The task.', ['copying', 'recall'])
  length: int | None = flags.flag(
    None, 'Symbols (default 10) or pairs (default 6) in an episode.'
  )
  key_size: int = flags.flag(12, 'Size of the key vectors.')
  hidden_size: int = flags.flag(32, 'Units of each core.')


_LENGTHS = {'copying': 10, 'recall': 6}
_MEMORIES = {
  'copying': cores.Memory(num_slots=16, word_size=16, num_reads=1),
  'recall': cores.Memory(
    num_slots=16, word_size=24, num_reads=4, linkage='none'
  ),
}


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  length = options.length or _LENGTHS[options.task]
  environment = functools.partial(copying.make, length)
  if options.task == 'recall':
    environment = functools.partial(
      recall.make, length, key_size=options.key_size
    )
  hierarchy = cores.RPTH(
    options.hidden_size, memory=_MEMORIES[options.task], slow_period=4
  )
  config = ftw.FTWConfig(
    core=ftw.named_core(options.core, hierarchy),
    tasks=(),
    optimizer='adam',
    # A whole episode and the first step of the next, so that gradients reach
    # from each answer to the step that showed it.
    sequence_length=2 * length + 1,
    batch_size=32,
    learning_rate=2e-3,
    entropy_cost=0.015,
    # Actions have no effect on later rewards.
    discount=0.0,
  ).with_size(options.hidden_size)
  return ftwax.ExperimentConfig(
    name=f'ftw_memory_{options.core}',
    agent=config,
    environment=environment,
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
