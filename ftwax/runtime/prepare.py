"""Resolves an experiment into the parts that runtimes use.

Each process does this when it starts; that of a distributed run's coordinator
has done it before, to check the experiment. What is below gets the parts; they
include the experiment, `Prepared.experiment`, for its plain numbers and names.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from ftwax import compilation, encodings, internal_rewards, types
from ftwax.agents.actor_critic import replays
from ftwax.environments import (
  action_masks,
  curricula,
  episode_metrics,
  functional,
  game_vectors,
  games,
  process_games,
)
from ftwax.networks import embeddings
from ftwax.population import (
  evolution,
  exploring,
  players,
  seating,
  selection,
)
from ftwax.population import state as state_lib
from ftwax.replay import replay_options
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import memory_checks

# Makes games from one seed for each and the name of the games in messages.
MakeGames = Callable[[Sequence[int], str], game_vectors.GameVector]


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
  """An experiment, and what its fields are resolved into.

  Attributes:
    experiment: the experiment.
    opponents: its opponents, made for its game.
    held_out: opponents of evaluations alone, likewise.
    spec: specs of the game.
    network: the network that all members share.
    policy: functions of an actor in training.
    evaluation_policy: functions of an actor in evaluations.
    learner: functions of the learner of one member.
    priors: priors of all values that evolution may change.
    evolve: runs one generation, with a key of the population's.
    replays: makes the replays of the agent.
    seating: seats of members and opponents in the games of one actor.
    key: random key of the run.
    game: the training game, if it is written in JAX.
    evaluation_game: the game of evaluations, if it is written in JAX.
    make_games: makes parallel training games.
    make_evaluation_games: makes parallel games of evaluations.
  """

  experiment: experiment_lib.ExperimentConfig
  opponents: Mapping[str, players.Player]
  held_out: Mapping[str, players.Player]
  spec: games.GameSpec
  network: types.RecurrentNetwork
  policy: types.ActorCore
  evaluation_policy: types.ActorCore
  learner: types.LearnerCore
  priors: exploring.Traits
  evolve: evolution.Evolve
  replays: replays.Replays
  seating: seating.Seating
  key: types.Key
  game: functional.FunctionalGame | None
  evaluation_game: functional.FunctionalGame | None
  make_games: MakeGames
  make_evaluation_games: MakeGames


def prepare(experiment: experiment_lib.ExperimentConfig) -> Prepared:
  """Resolves an experiment.

  Raises:
    ValueError: if environment, agent, members and opponents do not fit
      together, or the data of the run do not fit into memory.
  """
  compilation.check_settings()
  agent, population = experiment.agent, experiment.population
  factory = experiment.environment_factory
  evaluation_factory = experiment.evaluation_factory
  spec, game = _read(experiment, factory)
  evaluation_game = game
  if experiment.evaluation.environment is not None:
    own_spec, evaluation_game = _read(experiment, evaluation_factory)
    _check_spec(own_spec, spec)
  memory_checks.check_fits(experiment, spec)
  own = spec.environment
  opponents = _make_opponents(experiment, own)
  _check_select(experiment, spec)
  _check_fitness(experiment, spec, game)
  for each in (game, evaluation_game):
    if each is not None:
      curricula.check_names(each.reset, experiment.curriculum)
  network = agent.make_network(own)
  memory_checks.check_network(network, experiment, spec)
  policy = agent.make_policy(network, own)
  made_replays = replays.Replays(agent, own, policy)
  memory_checks.check_replay(
    made_replays.num_bytes, population.num_members, agent.replay.capacity
  )
  num_events = internal_rewards.num_events(own.rewards)
  priors = exploring.Traits(
    agent.priors, agent.make_internal_rewards_prior(num_events)
  )
  return Prepared(
    experiment=experiment,
    opponents=opponents,
    held_out=_make_held_out(experiment, spec, evaluation_game, opponents),
    spec=spec,
    network=network,
    policy=policy,
    evaluation_policy=agent.make_policy(
      network, own, evaluation=experiment.evaluation.greedy
    ),
    learner=agent.make_learner_core(network, own, experiment.offline),
    priors=priors,
    evolve=_make_evolve(experiment, priors),
    replays=made_replays,
    seating=seating.make_seating(
      spec.teams,
      population.num_members,
      experiment.num_environments,
      players.find_teams(opponents, spec.teams, spec.roles),
      experiment.opponent_share,
      population.own_team_fraction,
    ),
    key=jax.random.PRNGKey(experiment.seed),
    game=game,
    evaluation_game=evaluation_game,
    make_games=_make_games(experiment, factory),
    make_evaluation_games=_make_games(
      experiment,
      evaluation_factory,
      whole_games=experiment.evaluation.environment is None,
    ),
  )


def describe_replay(parts: Prepared, is_local: bool = True) -> str:
  """Returns a line on the memory of what the agent learns from, or nothing.

  Args:
    parts: the parts of the experiment.
    is_local: whether the replay is in the process that saves checkpoints, which
      hold no other.
  """
  size, agent = parts.replays.num_bytes, parts.experiment.agent
  if not size.total:
    return ''
  members = parts.experiment.population.num_members
  total, observations, states = (members * count / 2**20 for count in size)
  saved = 'in memory and in each checkpoint'
  is_saved = is_local and parts.replays.is_saved
  is_saved &= parts.experiment.replay != replay_options.REVERB
  if not is_saved or parts.experiment.checkpointing is None:
    saved = 'in memory, and in no checkpoint'
  return (
    f'Replay: {members * agent.replay.capacity:,} trajectories of'
    f' {agent.sequence_length} steps, {total:,.1f} MiB {saved}'
    f' ({observations:,.1f} of observations, {states:,.1f} of recurrent'
    ' states).\n'
  )


def describe_inputs(parts: Prepared) -> str:
  """Returns a line on what the entries of the observation are taken for."""
  source = action_masks.describe(parts.spec.environment)
  masks = f' Action masks: from {source}.' if source else ''
  torso = parts.experiment.agent.torso
  if parts.experiment.agent.network is not None or callable(torso):
    return f'Observation: as your network or torso reads it.{masks}'
  entries = embeddings.named_leaves(parts.spec.environment.observations)
  chosen = getattr(torso, 'encodings', {})
  words = [
    f'{name} {encodings.describe(spec, chosen.get(name))}'.strip()
    for name, spec in entries.items()
  ]
  return f'Observation: {"; ".join(words)}.{masks}'


def _read(
  experiment: experiment_lib.ExperimentConfig,
  factory: game_vectors.EnvironmentFactory,
) -> tuple[games.GameSpec, functional.FunctionalGame | None]:
  """Makes a game; returns its specs and, if it is written in JAX, itself."""
  seed = experiment.seed % 2**31  # Many simulators take 32 bits with a sign.
  with contextlib.closing(
    game_vectors.make_games(factory, [seed], experiment.name)
  ) as vector:
    game = vector.game
    if game is not None:
      game = functional.choose_metrics(game, experiment.measured)
    return vector.spec, game


def _check_spec(spec: games.GameSpec, training_spec: games.GameSpec) -> None:
  """Raises a ValueError unless evaluation and training specs are equal."""
  # Spaces are another form of the same specs.
  if spec._replace(spaces='') != training_spec._replace(spaces=''):
    raise ValueError(
      'evaluation.environment must make a game with the specs of training'
      f' ({training_spec}), but made one with {spec}; choose one that differs'
      ' only in its levels.'
    )


def _make_opponents(
  experiment: experiment_lib.ExperimentConfig, spec: types.EnvironmentSpec
) -> dict[str, players.Player]:
  opponents = {
    name: player if isinstance(player, players.Player) else player(spec.actions)
    for name, player in experiment.opponents.items()
  }
  players.check_specs(opponents, spec)
  return opponents


def _make_held_out(
  experiment: experiment_lib.ExperimentConfig,
  spec: games.GameSpec,
  game: functional.FunctionalGame | None,
  opponents: Mapping[str, players.Player],
) -> dict[str, players.Player]:
  """Makes the opponents of evaluations alone; see `Prepared`.

  Raises:
    ValueError: if there is no such player, it is of another game, or training
      meets it, too.
  """
  given = experiment.held_out
  if not given:
    return {}
  if max(spec.teams) == 0:
    raise ValueError(
      f'held_out ({", ".join(given)}) must be empty in a game of one team'
      f' {spec.teams}, which has no opponents; leave it out.'
    )
  scripts = {} if game is None else game.scripts
  held_out = {}
  for name in given:
    player: Any = given[name] if isinstance(given, Mapping) else name
    if player == 'random':
      player = players.uniform
    if isinstance(player, str):
      if player not in scripts:
        raise ValueError(
          f'held_out ({player!r}) must be a script of the game or a player;'
          f' choose from {["random", *scripts]}, or RUN@MEMBER on the command'
          ' line.'
        )
      player = players.scripted(scripts[player])
    elif not isinstance(player, players.Player):
      player = player(spec.environment.actions)
    held_out[name] = player
  players.check_specs(held_out, spec.environment)
  for name, player in held_out.items():
    own = players.identify(player)
    for other, known in opponents.items():
      is_same = name == other or own == players.identify(known)
      if is_same and experiment.opponent_share:
        raise ValueError(
          f'held_out ({name!r}) must never be met in training, and is among the'
          f' opponents ({other!r}) with an opponent_share of'
          f' {experiment.opponent_share}; leave it out of one of them.'
        )
  return held_out


def _check_select(
  experiment: experiment_lib.ExperimentConfig, spec: games.GameSpec
) -> None:
  """Raises a ValueError if ratings decide where nobody wins."""
  population = experiment.population
  is_rated = isinstance(population.select, selection.WinProbability)
  is_team = spec.num_players > 1 and max(spec.teams) == 0
  if is_rated and is_team and population.exploits:
    raise ValueError(
      'select (win_probability) must judge by returns in a game of one team'
      f' {spec.teams}, which nobody wins; choose selection.Truncation().'
    )


def _check_fitness(
  experiment: experiment_lib.ExperimentConfig,
  spec: games.GameSpec,
  game: functional.FunctionalGame | None,
) -> None:
  """Raises a ValueError if members are not judged by the chosen metric."""
  population = experiment.population
  name, _ = episode_metrics.read_criterion('fitness', population.fitness)
  if not name and not population.fitness.startswith('-'):
    return
  if max(spec.teams) > 0:
    raise ValueError(
      f'fitness ({population.fitness!r}) must be'
      f' {episode_metrics.RETURN!r} in a game of teams {spec.teams}, whose'
      ' members are rated by who wins; leave it out.'
    )
  if population.exploits and isinstance(
    population.select, selection.WinProbability
  ):
    raise ValueError(
      'select (win_probability) must read the fitness'
      f' ({population.fitness!r}), and reads ratings; choose'
      ' selection.Truncation().'
    )
  if game is not None and name:
    functional.check_metric(game, 'fitness', name)


def _make_evolve(
  experiment: experiment_lib.ExperimentConfig, priors: exploring.Traits
) -> evolution.Evolve:
  """Returns the function that runs one generation."""

  def evolve(
    population: state_lib.PopulationState,
  ) -> tuple[state_lib.PopulationState, evolution.Generation]:
    key, evolve_key = jax.random.split(population.key)
    return evolution.evolve(
      evolve_key,
      population._replace(key=key),
      priors,
      experiment.population,
    )

  return evolve


def _make_games(
  experiment: experiment_lib.ExperimentConfig,
  factory: game_vectors.EnvironmentFactory,
  whole_games: bool = False,
) -> MakeGames:
  """Returns a function that makes games, in processes if configured.

  Args:
    experiment: the experiment.
    factory: of its training or evaluation environments.
    whole_games: see `game_vectors.GameVector.play_whole_games`.
  """
  stepping = experiment.stepping

  def make(seeds: Sequence[int], name: str) -> game_vectors.GameVector:
    made: game_vectors.GameVector
    if stepping.processes:
      made = process_games.ProcessGames(
        factory, seeds, name, stepping.processes, stepping.timeout_s
      )
    else:
      made = game_vectors.make_games(factory, seeds, name)
    if experiment.measured:
      made.measure(experiment.measured)
    if whole_games:
      made.play_whole_games()
    return made

  return make
