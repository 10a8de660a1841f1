"""An experiment: one object that every runtime can run.

The names are those of `acme.jax.experiments.ExperimentConfig` on acme's main
branch.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import dm_env

from ftwax import types
from ftwax.agents import builders
from ftwax.environments import game_vectors, games, process_games
from ftwax.population import (
  evolution,
  players,
  population_config,
  seating,
  selection,
)
from ftwax.population import state as state_lib
from ftwax.records import checkpoints, loggers
from ftwax.replay import replay_options


class RunView(NamedTuple):
  """A run, as observers see it.

  Attributes:
    directory: of the run.
    counts: its progress; see `run_records.Counts`.
    snapshot: returns what a checkpoint of this moment holds.
  """

  directory: pathlib.Path
  counts: Mapping[str, Any]
  snapshot: Callable[[], Any]


class Observer:
  """Watches training; a class of one's own overrides what it needs.

  Timesteps and actions have a row for each seat. The device runtime shows no
  single steps. In distributed runs each process has a copy: those of actors see
  steps, that of the first learner sees evaluations, a little after they were
  made, and that of the process that holds the population sees generations.
  """

  def observe_first(
    self, environment: dm_env.Environment, timestep: dm_env.TimeStep
  ) -> None:
    """Sees the first timesteps of a round."""

  def observe(
    self,
    environment: dm_env.Environment,
    timestep: dm_env.TimeStep,
    action: types.ArrayTree,
  ) -> None:
    """Sees the timesteps that followed `action`."""

  def get_metrics(self) -> Mapping[str, float]:
    """Returns values for the rows of the training log."""
    return {}

  def observe_evaluation(self, row: Mapping[str, Any], run: RunView) -> bool:
    """Sees the row of an evaluation; returns whether the run is to end."""
    del row, run
    return False

  def observe_generation(self, population: state_lib.PopulationState) -> None:
    """Sees the population after each round, when members may have copied."""

  @property
  def sees_steps(self) -> bool:
    """Whether it watches single steps."""
    own = type(self)
    return (
      own.observe is not Observer.observe
      or own.observe_first is not Observer.observe_first
    )


# What a local run does when an environment raises.
ON_ENVIRONMENT_ERROR = ('stop', 'restart')

NetworkFactory = Callable[[types.EnvironmentSpec], types.RecurrentNetwork]


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
  """An agent or a population, its task, and the length of its training.

  Every task is a game: an environment of one agent is a game of one seat. Every
  experiment has a population: one agent is a population of one that does not
  evolve.

  Attributes:
    builder: makes the parts of the agent.
    network_factory: makes the network for an environment's spec.
    environment_factory: makes an environment or a game, given a seed. One in
      JAX, which the device runtime needs, is made once for all rows, and so is
      the vector of a `vector.VectorFactory`.
    max_num_actor_steps: actions of all members in all environments together.
    seed: of parameters, actors and environments.
    name: names the run's directory and its plots.
    num_environments: G, environments or games that one actor steps at a time.
    environment_processes: processes that step the environments of one actor,
      and those of evaluations, at the same time; 0 for that of the actor. Of
      environments in Python; results are the same.
    environment_timeout_s: seconds that a step of all environments of an actor
      may take in other processes and in distributed runs. Nobody can end a call
      in the process of a local run.
    on_environment_error: `stop`, or `restart` for local runs that make all
      environments anew and drop their unfinished trajectories, ten times in
      five minutes at most. Distributed runs always do, within the limits of
      their settings.
    game_spec: specs of the game; read off a game if None.
    population: size and evolution of the population.
    steps_per_round: steps of each game between two generations, rounded up to
      whole trajectories and, in a game of teams, to whole games.
    select: chooses the parents that members copy.
    explore: changes the values that a copy inherits.
    opponents: players by name that do not learn, scripts or frozen agents.
      They play in a share of the training games, and in evaluations beside
      the scripts that the game has.
    opponent_share: fraction of the training games in which an opponent takes
      one team.
    evaluation_greedy: whether evaluation takes the most probable action.
    evaluation_environment_factory: makes the environment or game of evaluations
      where that is another one of the same specs, such as harder levels; None
      for that of training.
    init_from: directory of an earlier run; a new run starts from what it
      learned, with this config and environment. See `runtime.initial_state`.
    observers: watch training; see `Observer`, and `runtime.callbacks` for those
      that end a run early or keep its best checkpoint.
    logger_factory: makes the loggers; by default those of the run's directory.
    trackers: experiment trackers that these write to as well, of
      `records.trackers.TRACKERS`.
    replay: what local runs keep trajectories in: `reverb`, or `functional` for
      a queue in this process and tables on the device; None for Reverb where it
      is installed. It changes no result but the draws of auxiliary tasks.
    replay_port: port of the Reverb server of the first member, those of the
      others follow; any free ports if None.
    expose: whether other machines may reach the ports of Reverb and Courier,
      which ask nobody for a password. Otherwise they are closed, and where the
      system does not allow that, a run is refused.
    checkpointing: when to save; None for never.
    watch: whether to serve a page that follows the run while it trains, on this
      machine alone; see `runtime.live_page`.
  """

  builder: builders.Builder
  network_factory: NetworkFactory
  environment_factory: game_vectors.EnvironmentFactory
  max_num_actor_steps: int
  seed: int = 0
  name: str = 'experiment'
  num_environments: int = 8
  environment_processes: int = 0
  environment_timeout_s: float = 60.0
  on_environment_error: str = 'stop'
  game_spec: games.GameSpec | None = None

  # The population.
  population: population_config.PopulationConfig = (
    population_config.PopulationConfig(num_members=1, exploits=False)
  )
  steps_per_round: int = 1000
  select: selection.SelectionRule = selection.win_probability
  explore: evolution.ExploreRule = evolution.perturb
  opponents: Mapping[str, players.Player] = dataclasses.field(
    default_factory=dict
  )
  opponent_share: float = 0.5

  evaluation_greedy: bool = True
  evaluation_environment_factory: game_vectors.EnvironmentFactory | None = None
  init_from: str | None = None
  observers: Sequence[Observer] = ()
  logger_factory: loggers.LoggerFactory | None = None
  trackers: tuple[str, ...] = ()
  replay: str | None = None
  replay_port: int | None = None
  expose: bool = False
  checkpointing: checkpoints.CheckpointingConfig | None = dataclasses.field(
    default_factory=checkpoints.CheckpointingConfig
  )
  watch: bool = False

  def __post_init__(self) -> None:
    """Checks counts."""
    for name in ('num_environments', 'max_num_actor_steps', 'steps_per_round'):
      value = getattr(self, name)
      if value < 1:
        raise ValueError(f'{name} ({value}) must be at least 1; choose 1.')
    if not 0 <= self.seed < 2**32:  # Those that give a key of their own.
      raise ValueError(
        f'seed ({self.seed}) must be from 0 to {2**32 - 1}; choose 0.'
      )
    if self.replay_port is not None and not 1 <= self.replay_port < 2**16:
      raise ValueError(
        f'replay_port ({self.replay_port}) must be from 1 to {2**16 - 1};'
        ' choose None for any that is free.'
      )
    if self.replay not in (None, *replay_options.KINDS):
      raise ValueError(
        f"replay ({self.replay!r}) must be 'reverb', 'functional' or None for"
        ' Reverb where it is installed; choose one.'
      )
    if self.on_environment_error not in ON_ENVIRONMENT_ERROR:
      raise ValueError(
        f'on_environment_error ({self.on_environment_error!r}) must be one of'
        f' {ON_ENVIRONMENT_ERROR}; choose one.'
      )
    if self.environment_processes < 0:
      raise ValueError(
        f'environment_processes ({self.environment_processes}) must not be'
        ' negative; choose 0 to step environments in the process of the actor.'
      )
    if not self.environment_timeout_s > 0:
      raise ValueError(
        f'environment_timeout_s ({self.environment_timeout_s}) must be'
        f' positive; choose {ExperimentConfig.environment_timeout_s:g}.'
      )
    if not 0.0 <= self.opponent_share <= 1.0:
      raise ValueError(
        f'opponent_share ({self.opponent_share}) must be in [0, 1]; choose 0.5.'
      )

  def replace(self, **changes: Any) -> 'ExperimentConfig':
    """Returns a copy with some fields changed."""
    return dataclasses.replace(self, **changes)

  def read_game_spec(self) -> games.GameSpec:
    """Returns `game_spec`, read off a game of its own if it is None."""
    if self.game_spec is not None:
      return self.game_spec
    return game_vectors.read_spec(self.environment_factory, self.name)

  def make_games(
    self,
    environment_factory: game_vectors.EnvironmentFactory,
    seeds: Sequence[int],
    name: str,
  ) -> game_vectors.GameVector:
    """Makes games side by side, in other processes if there are to be some.

    Args:
      environment_factory: that of training or of evaluation.
      seeds: one for each game.
      name: of the games, for messages.
    """
    if not self.environment_processes:
      return game_vectors.make_games(environment_factory, seeds, name)
    return process_games.ProcessGames(
      environment_factory,
      seeds,
      name,
      self.environment_processes,
      self.environment_timeout_s,
    )

  @property
  def evaluation_factory(self) -> game_vectors.EnvironmentFactory:
    """Makes the environment or game of evaluations."""
    return self.evaluation_environment_factory or self.environment_factory

  def observe_evaluation(self, row: Mapping[str, Any], run: RunView) -> bool:
    """Shows observers an evaluation; returns whether one ends the run."""
    ends = [
      observer.observe_evaluation(row, run) for observer in self.observers
    ]
    return any(ends)

  def make_seating(self) -> seating.Seating:
    """Returns the seats of members and opponents in the games of one actor.

    Raises:
      ValueError: teams, games, members and opponents do not fit.
    """
    return seating.make_seating(
      self.read_game_spec().teams,
      self.population.num_members,
      self.num_environments,
      len(self.opponents),
      self.opponent_share,
    )
