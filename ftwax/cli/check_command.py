"""Checks an environment by random actions, and gives advice.

ftwax check CartPole-v1
ftwax check my_env.py:MyEnv           a class, or a function that makes one
"""

import dataclasses

from ftwax.cli import flags, sources


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of `ftwax check`."""

  environment: str = flags.argument(
    'FILE.py:NAME, or the name of a Gymnasium environment.'
  )
  steps: int = flags.flag(1000, 'Number of steps.')
  seed: int = flags.flag(0, 'Random seed.')


def run(options: Options) -> int:
  """Prints what was seen and the advice; the status is 0 without errors."""
  flags.check_seed(options)
  flags.check_positive(options, 'steps')
  environment = options.environment
  if '.py:' in environment:
    sources.check_experiment(environment)
  # Slow imports: a wrong path or flag fails before them.
  from ftwax.cli import launch
  from ftwax.environments import checking

  found = checking.check(
    launch.find_name(environment) if '.py:' in environment else environment,
    options.steps,
    options.seed,
  )
  width = max(map(len, found.facts))
  for name, text in found.facts.items():
    print(f'{name:{width}}  {text}')
  for sentence in found.advice:
    print(f'\nAdvice: {sentence}')
  if not found.advice:
    print('\nAll checks passed.')
  return 0
