"""Any agent in any environment: `ftwax train MountainCar-v0` runs this.

The environment is the id of a Gymnasium environment, or FILE.py:NAME or
MODULE:NAME of a class or function that makes one.
"""

import dataclasses
import importlib
from typing import Any

import ftwax
from ftwax import import_guard
from ftwax.agents import named
from ftwax.cli import flags, launch
from ftwax.environments import adapting, jax_adapters
from ftwax.networks import cores


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  eval_every: int = 50_000
  environment: str = flags.flag(
    'CartPole-v1', 'A Gymnasium id, FILE.py:NAME or MODULE:NAME.'
  )
  agent: str = flags.flag('ppo', 'The agent.', named.STANDARD)
  core: str | None = flags.flag(
    None,
    "The recurrent core; the agent's own by default.",
    tuple(cores.NAMED),
  )


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  core: dict[str, Any] = {} if options.core is None else {'core': options.core}
  return ftwax.ExperimentConfig(
    agent=named.AGENTS[options.agent](**core),
    environment=_find(options.environment),
    **options.fields(),
  )


def _find(source: str) -> adapting.Environment:
  """Returns what a name on the command line stands for."""
  if '.py:' in source:
    return launch.find_name(source)
  module, colon, name = source.partition(':')
  if not colon or module in jax_adapters.LIBRARIES:
    return source
  import_guard.release()
  # A package may also register its environments with Gymnasium.
  return getattr(importlib.import_module(module), name, name)


if __name__ == '__main__':
  launch.main(__file__)
