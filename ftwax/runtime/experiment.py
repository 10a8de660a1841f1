"""An experiment: one object that every runtime can run.

The names are those of `acme.jax.experiments.ExperimentConfig` on acme's main
branch.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import dm_env

from ftwax import types
from ftwax.runtime import checkpoints

# (label, steps_key, instance) -> an object with write() and close().
LoggerFactory = Callable[[str, str | None, int | None], Any]


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
  """What to train, where, and for how long.

  Attributes:
    builder: makes the parts of the agent.
    network_factory: makes the network for an environment's spec.
    environment_factory: makes an environment, given a seed.
    max_num_actor_steps: actions in all environments together.
    seed: of parameters, actors and environments.
    name: names the run's directory and its plots.
    num_environments: environments that one actor acts in at a time.
    environment_spec: read off an environment if None.
    evaluation_greedy: whether evaluation takes the most probable action.
    observers: watch the training loop.
    logger_factory: makes the loggers; by default those of the run's directory.
    replay_port: where the Reverb server listens; any free port if None.
    checkpointing: when to save; None for never.
  """

  builder: Any
  network_factory: Callable[[types.EnvironmentSpec], types.RecurrentNetwork]
  environment_factory: Callable[[int], dm_env.Environment]
  max_num_actor_steps: int
  seed: int = 0
  name: str = 'experiment'
  num_environments: int = 8
  environment_spec: types.EnvironmentSpec | None = None
  evaluation_greedy: bool = True
  observers: Sequence[Any] = ()
  logger_factory: LoggerFactory | None = None
  replay_port: int | None = None
  checkpointing: checkpoints.CheckpointingConfig | None = dataclasses.field(
    default_factory=checkpoints.CheckpointingConfig
  )

  def __post_init__(self):
    """Checks counts."""
    for name in ('num_environments', 'max_num_actor_steps'):
      value = getattr(self, name)
      if value < 1:
        raise ValueError(f'{name} ({value}) must be at least 1; choose 1.')

  def replace(self, **changes: Any) -> 'ExperimentConfig':
    """Returns a copy with some fields changed."""
    return dataclasses.replace(self, **changes)
