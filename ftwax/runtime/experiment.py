"""An experiment: one object that every runtime can run.

The names are those of `acme.jax.experiments.ExperimentConfig` on acme's main
branch.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import dm_env

from ftwax import types
from ftwax.environments import functional, games
from ftwax.population import evolution, selection
from ftwax.population import population_config as population_config
from ftwax.records import checkpoints

# (label, steps_key, instance) -> an object with write() and close().
LoggerFactory = Callable[[str, str | None, int | None], Any]

EnvironmentFactory = Callable[
  [int],
  dm_env.Environment
  | games.GameEnvironment
  | functional.FunctionalEnvironment
  | functional.FunctionalGame,
]


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
  """What to train, where, and for how long.

  Attributes:
    builder: makes the parts of the agent.
    network_factory: makes the network for an environment's spec.
    environment_factory: makes an environment, given a seed. A functional one,
      which the device runtime needs, it makes once for all rows.
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
  environment_factory: EnvironmentFactory
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


@dataclasses.dataclass(frozen=True)
class PopulationExperimentConfig(ExperimentConfig):
  """An experiment with a population.

  Its factory makes a `functional.FunctionalGame`, or a `FunctionalEnvironment`
  for a single-agent task; in runtimes with replay servers also a
  `games.GameEnvironment` or a `dm_env.Environment`. `num_environments` are the
  games side by side, and `max_num_actor_steps` the actions of all players
  together. With `replay_port` the server of the first member listens there, and
  those of the others on the ports that follow.

  Attributes:
    population: of the population; must be given.
    steps_per_round: steps of each game in a round, rounded up to whole
      iterations; of a game of teams not less than its length, or no game
      would end.
    select: who copies whom.
    explore: what a copy tries.
  """

  population: population_config.PopulationConfig | None = None
  steps_per_round: int = 1000
  select: selection.SelectionRule = selection.win_probability
  explore: evolution.ExploreRule = evolution.perturb

  def __post_init__(self):
    """Checks the options of the population."""
    super().__post_init__()
    if self.population is None:
      raise ValueError(
        'population (None) must be a PopulationConfig; choose'
        ' PopulationConfig(num_members=4).'
      )
    if self.steps_per_round < 1:
      raise ValueError(
        f'steps_per_round ({self.steps_per_round}) must be at least 1; choose'
        ' the length of a game.'
      )
