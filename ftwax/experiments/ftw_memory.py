"""Memory tests for FTW's cores: copying, and recall by random keys.

Run `uv run experiments/ftw_memory.py --core=rpth_dnc`, and with `--core=lstm`
and `--core=rpth` for comparison; all cores have the same size. `--compare=3`
runs all three with three seeds each and prints a table.

In copying, symbols are shown and must then be repeated in order, which suits a
memory that links its slots in the order of writing. `--task=recall` asks for
the values of keys instead. Keys are random vectors, redrawn in every episode,
so no unit can specialize in one. An agent that remembers the values of six
pairs, but not which key has which value, reaches a return of about 0.45; a
higher return requires looking up values by their keys.
"""

import functools

from absl import flags

from ftwax.agents import ftw
from ftwax.environments import copying, functional, recall
from ftwax.networks.dnc import interfaces
from ftwax.runtime import comparison, experiment, launch

launch.define_flags(
  max_num_actor_steps=2_500_000,
  num_environments=32,
  eval_every=0,
  runtime='device',
)
_CORE = flags.DEFINE_enum('core', 'rpth_dnc', ftw.CORES, 'The recurrent core.')
_TASK = flags.DEFINE_enum('task', 'copying', ['copying', 'recall'], 'The task.')
_LENGTH = flags.DEFINE_integer(
  'length', None, 'Symbols (default 10) or pairs (default 6) in an episode.'
)
_MIN_LENGTH = flags.DEFINE_integer(
  'min_length',
  None,
  'Fewest symbols or pairs; by default --length.',
)
_KEY_SIZE = flags.DEFINE_integer('key_size', 12, 'Size of the key vectors.')
_HIDDEN_SIZE = flags.DEFINE_integer('hidden_size', 32, 'Units of each core.')

_LENGTHS = {'copying': 10, 'recall': 6}
_MEMORIES = {
  'copying': interfaces.MemoryConfig(num_slots=16, word_size=16, num_reads=1),
  'recall': interfaces.MemoryConfig(
    num_slots=16, word_size=24, num_reads=4, linkage='none'
  ),
}


def _length() -> int:
  return _LENGTHS[_TASK.value] if _LENGTH.value is None else _LENGTH.value


def make_environment(seed: int) -> functional.FunctionalEnvironment:
  """Returns the task; its episodes depend on the seed of the run."""
  del seed
  if _TASK.value == 'copying':
    return copying.make(_length(), min_length=_MIN_LENGTH.value)
  return recall.make(
    _length(), min_pairs=_MIN_LENGTH.value, key_size=_KEY_SIZE.value
  )


def build_experiment(
  core: str | None = None, seed: int | None = None
) -> experiment.ExperimentConfig:
  """Returns the experiment described by flags and arguments."""
  core = core or _CORE.value
  config = ftw.FTWConfig.paper(
    core=core,
    memory=_MEMORIES[_TASK.value],
    use_pixel_control=False,
    use_reward_prediction=False,
    optimizer='adam',
    # A whole episode and the first step of the next, so that gradients reach
    # from each answer to the step that showed it.
    sequence_length=2 * _length() + 1,
    batch_size=32,
  ).with_size(_HIDDEN_SIZE.value)
  config = config.fix(
    learning_rate=2e-3,
    entropy_cost=0.015,
    # Actions have no effect on later rewards.
    discount=0.0,
    kl_posterior_prior_cost=0.0,
    kl_prior_fixed_cost=0.0,
    slow_period=4,
    fast_to_slow_gradient_scale=1.0,
  )
  return experiment.ExperimentConfig(
    name=f'ftw_memory_{core}',
    agent=config,
    environment=make_environment,
    **launch.experiment_options(seed),
  )


def make_variants() -> comparison.Variants:
  """Returns the variants of `--compare`: one for each core."""
  return {core: functools.partial(build_experiment, core) for core in ftw.CORES}


if __name__ == '__main__':
  launch.run(build_experiment, make_variants=make_variants)
