"""IMPALA with default settings learns catch within a minute.

Run `uv run experiments/catch.py`; `--help` lists the flags. `--agent=a2c` and
`--agent=a3c` learn it too; A3C is meant for `--runtime=distributed`.
"""

import dataclasses

import ftwax
from ftwax.agents import named
from ftwax.cli import flags, launch
from ftwax.environments import catch


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  eval_every: int = 20_000
  agent: str = flags.flag('impala', 'The agent.', named.STANDARD)


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  name = options.agent
  return ftwax.ExperimentConfig(
    name='catch' if name == 'impala' else f'catch_{name}',
    agent=named.AGENTS[name](),
    environment=catch.make,
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
