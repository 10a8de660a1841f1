"""The configuration of an experiment, which every runtime can run.

Names follow `acme.jax.experiments.ExperimentConfig` on acme's main branch.
"""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import dm_env

from ftwax import parts, registry, types
from ftwax.agents.actor_critic import actor_critic_config
from ftwax.environments import (
  adapting,
  curricula,
  episode_metrics,
  game_vectors,
  process_games,
)
from ftwax.population import players, population_config
from ftwax.population import state as state_lib
from ftwax.records import checkpoints
from ftwax.records import loggers as loggers_lib
from ftwax.replay import replay_options


class RunView(NamedTuple):
  """The view of a run that observers get.

  Attributes:
    directory: directory of the run.
    counts: progress of the run; see `run_records.Counts`.
    snapshot: returns the contents of a checkpoint at this moment.
  """

  directory: pathlib.Path
  counts: Mapping[str, Any]
  snapshot: Callable[[], Any]


class Observer:
  """Watches training; derive from it and override the methods you need.

  Timesteps and actions have a row for each seat. The device runtime does not
  show single steps. In distributed runs each process has its own copy: copies
  in actors see steps; that of the first learner sees evaluations, shortly after
  they happen; and that of the process that holds the population sees
  generations.
  """

  def observe_first(
    self, environment: dm_env.Environment, timestep: dm_env.TimeStep
  ) -> None:
    """Observes the first timesteps of a round."""

  def observe(
    self,
    environment: dm_env.Environment,
    timestep: dm_env.TimeStep,
    action: types.ArrayTree,
  ) -> None:
    """Observes the timesteps that followed `action`."""

  def get_metrics(self) -> Mapping[str, float]:
    """Returns values to add to the rows of the training log."""
    return {}

  def observe_evaluation(self, row: Mapping[str, Any], run: RunView) -> bool:
    """Observes an evaluation; returns whether to end the run.

    Args:
      row: the row of the evaluation log, such as `episode_return` and
        `actor_steps`; see `evaluation.make_row` and `run_records.Counts`.
      run: the run at this moment.
    """
    del row, run
    return False

  def observe_generation(self, population: state_lib.PopulationState) -> None:
    """Observes the population after each round, possibly after copies."""

  @property
  def sees_steps(self) -> bool:
    """Whether the observer overrides methods that observe single steps."""
    own = type(self)
    return (
      own.observe is not Observer.observe
      or own.observe_first is not Observer.observe_first
    )


# Makes a player from the action spec of one player of the game.
MakePlayer = Callable[[types.SpecTree], players.Player]


def _accept(part: Any) -> None:
  """Converts the `environment` of a part; raises if it takes no seed."""
  if part.environment is not None:
    environment = adapting.accept(part.environment)
    adapting.make_factory(environment)
    object.__setattr__(part, 'environment', environment)


@registry.register('evaluation')
@dataclasses.dataclass(frozen=True)
class Evaluation(parts.Part):
  """Where and how evaluations act.

  Attributes:
    environment: the environment or game of evaluations if it differs from
      training, such as harder levels with the same specs; None to evaluate in
      the training environment, in whole games where training ends episodes
      at the loss of a life.
    greedy: whether evaluations take the most probable action.
    max_num_steps: steps after which a game that has not ended is cut off, as a
      draw; None for 30,000.
    parameters: parameters of a curriculum by name, as pairs, that evaluations
      have in place of those of training at the time.
  """

  environment: adapting.Environment | None = None
  greedy: bool = True
  max_num_steps: int | None = parts.option(None, low=1)
  parameters: tuple[tuple[str, float], ...] = ()

  def __post_init__(self) -> None:
    """Checks the environment."""
    super().__post_init__()
    _accept(self)


@registry.register('experiment')
@dataclasses.dataclass(frozen=True)
class ExperimentConfig(parts.Part):
  """An agent or a population, its task, and the length of its training.

  Every task is a game: a single-agent environment is a game with one seat.
  Every experiment has a population: a single agent is a population of one that
  does not evolve.

  Attributes:
    agent: the agent's config.
    environment: the environment or game: the name of a Gymnasium environment; a
      class, made with a seed if it takes one; a function that makes one, given
      a seed; a `vector.VectorFactory`; or a JAX environment or game, which the
      device runtime requires.
    max_num_actor_steps: total number of actions of all members in all
      environments.
    seed: seed of parameters, actors and environments.
    name: name used for the run directory and in plots; by default, the agent
      and the environment.
    num_environments: G, number of environments or games that one actor steps at
      a time.
    stepping: processes and limits of Python environments, such as
      `process_games.Stepping(processes=4)`. Does not change results.
    population: size, evolution and rules of the population.
    steps_per_round: number of steps of each game between two generations,
      rounded up to complete trajectories and, in team games, to complete games.
    opponents: players that do not learn, by name: scripts, frozen agents, or
      functions that make one from the action spec, as `players.uniform`.
      They play in a share of the training games, and in evaluations in addition
      to the game's own scripts.
    opponent_share: fraction of the training games in which an opponent takes
      one team.
    held_out: opponents that evaluations meet, and training never, so that the
      score against them is the headline of the run: names of the game's
      scripts, or of `random`; or players by name, as in `opponents`, such as
      `ftwax.load(run, member).player`.
    curriculum: rules that change parameters of the environment while agents
      train; see `environments.curricula`.
    evaluation: where and how evaluations act.
    demonstrations: directory of recorded games, see `ftwax record`, for tasks
      that learn from them, such as `tasks.Clone`.
    offline: whether to learn from these alone, without a step in training
      environments. `max_num_actor_steps` then counts the recorded steps that
      updates draw; environments serve evaluations.
    init_from: directory of an earlier run, or the name of a population of the
      library, whose learned parameters a new run starts from, with this config
      and environment. See `runtime.initial_state`.
    metrics: names of numbers that the environment measures beside its rewards,
      such as entries of Gymnasium's `info`, to log as means over episodes: at
      their last step, or over all steps by names such as `energy/sum` and
      `energy/mean`; or `all`. `is_success` and `success` need no name. See
      `environments.episode_metrics`.
    observers: watch training; see `Observer`, and `runtime.callbacks` for
      observers that end a run early or keep its best checkpoint.
    loggers: names of experiment trackers that the run's loggers also write to,
      from `records.trackers.TRACKERS`; or a function that makes other loggers.
    replay: storage for the trajectories of local runs: `functional`, or None,
      for a queue in this process and tables on the device, or `reverb`. Affects
      only the samples of auxiliary tasks.
    expose: whether other machines may reach the ports of Reverb and Courier,
      which do not authenticate clients. If False, the ports are closed; where
      the system does not allow that, the run is refused.
    checkpointing: when to save checkpoints; None for never.
    watch: whether to serve a web page that follows the training, on this
      machine only; see `runtime.live_page`.
  """

  is_nested: ClassVar[bool] = False

  agent: actor_critic_config.ActorCriticConfig
  environment: adapting.Environment
  max_num_actor_steps: int = parts.option(
    dataclasses.MISSING, low=1, high=2**53
  )
  # Others would alias random keys.
  seed: int = parts.option(0, low=0, high=2**32 - 1)
  name: str = ''
  num_environments: int = parts.option(8, low=1)
  stepping: process_games.Stepping = process_games.Stepping()  # noqa: RUF009

  # The population.
  population: population_config.PopulationConfig = (
    population_config.PopulationConfig(num_members=1, exploits=False)
  )
  steps_per_round: int = parts.option(1000, low=1)
  opponents: Mapping[str, players.Player | MakePlayer] = dataclasses.field(
    default_factory=dict
  )
  opponent_share: float = parts.option(0.5, low=0, high=1)
  held_out: (
    tuple[str, ...] | Mapping[str, players.Player | MakePlayer | str]
  ) = ()

  curriculum: tuple[curricula.Rule, ...] = ()
  evaluation: Evaluation = Evaluation()  # noqa: RUF009
  demonstrations: str | None = None
  offline: bool = False
  init_from: str | None = None
  metrics: str | tuple[str, ...] = ()
  observers: Sequence[Observer] = ()
  loggers: tuple[str, ...] | loggers_lib.LoggerFactory = ()
  replay: str | None = parts.option(None, choices=replay_options.KINDS)
  expose: bool = False
  checkpointing: checkpoints.CheckpointingConfig | None = dataclasses.field(
    default_factory=checkpoints.CheckpointingConfig
  )
  watch: bool = False

  def __post_init__(self) -> None:
    """Checks the values of fields and names the experiment."""
    if not isinstance(self.agent, actor_critic_config.ActorCriticConfig):
      raise ValueError(
        f'agent ({self.agent!r}) must be the config of an agent; choose'
        ' ppo.PPOConfig().'
      )
    self.check_types()
    super().__post_init__()
    if isinstance(self.metrics, str) and self.metrics != episode_metrics.ALL:
      raise ValueError(
        f"metrics ({self.metrics!r}) must be names, or 'all'; choose"
        f' ({self.metrics!r},).'
      )
    _ = self.fitness_metric  # Checks it.
    curricula.check_rules(self.curriculum)
    for one in self.observers:
      if not isinstance(one, Observer):
        raise ValueError(
          f'observers ({one!r}) must be observers; derive'
          f' {type(one).__name__} from ftwax.runtime.Observer.'
        )
    _accept(self)
    if not self.name:
      object.__setattr__(self, 'name', self._default_name)

  @property
  def _default_name(self) -> str:
    task = adapting.describe(self.environment)
    return re.sub(r'[^\w.-]', '_', f'{self.agent.name}_{task}')

  def replace(self, **changes: Any) -> 'ExperimentConfig':
    """Returns a copy with some fields changed; a default name follows."""
    if self.name == self._default_name:
      changes = {'name': '', **changes}
    return dataclasses.replace(self, **changes)

  @property
  def fitness_metric(self) -> str:
    """The name of the metric that is the fitness; '' for the return."""
    fitness = self.population.fitness
    return episode_metrics.read_criterion('fitness', fitness)[0]

  @property
  def measured(self) -> episode_metrics.Names:
    """The metrics that are asked for: `metrics` and that of the fitness."""
    return episode_metrics.with_name(self.metrics, self.fitness_metric)

  @property
  def environment_factory(self) -> game_vectors.EnvironmentFactory:
    """The factory of training environments or games."""
    return adapting.make_factory(self.environment)

  @property
  def evaluation_factory(self) -> game_vectors.EnvironmentFactory:
    """The factory of evaluation environments or games."""
    return adapting.make_factory(
      self.evaluation.environment or self.environment
    )
