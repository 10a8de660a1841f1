"""Agents of earlier runs: to play, to meet as opponents, to look at.

An agent is made again from the records in the directory of its run, without the
experiment or the environment. `export` writes it to a small directory of its
own, with parameters as plain arrays; some such populations come with the
library (`TRAINED`).
"""

import functools
import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.agents import builders, named
from ftwax.environments import games
from ftwax.population import players
from ftwax.records import (
  array_files,
  checkpoint_files,
  checkpoints,
  config_files,
  files,
  game_files,
  run_directory,
)
from ftwax.reporting import history
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import filming

# Populations that come with the library, by name.
TRAINED = pathlib.Path(__file__).parents[1] / 'trained'

VARIABLES_FILE = 'variables.npz'
ABOUT_FILE = 'about.json'

# What an exported population has in common with the directory of a run.
_RECORDS = (
  run_directory.CONFIG_FILE,
  run_directory.VERSIONS_FILE,
  game_files.GAME_FILE,
  history.LINEAGE_FILE,
)


class _Origin(NamedTuple):
  """The agent of a run, before its variables are read."""

  builder: builders.Builder
  network: types.RecurrentNetwork
  game_spec: games.GameSpec
  num_members: int


class LoadedAgent:
  """A trained agent that acts in one environment and does not learn.

  Attributes:
    actor: functions of the agent's actor.
    variables: of the agent, without a member axis.
    player: the agent as a player; see `ExperimentConfig.opponents`.
    game_spec: of the game that it was trained in.
    name: of the agent, in films.
  """

  def __init__(
    self,
    actor: types.ActorCore,
    variables: types.ActorVariables,
    game_spec: games.GameSpec,
    name: str,
  ):
    """Takes functions and variables of the agent's actor."""
    self.name = name
    self.actor = actor
    self.variables = variables
    self.game_spec = game_spec
    self.player = players.frozen(actor, variables, game_spec.environment)
    self._state = actor.init(jax.random.PRNGKey(0), 1)
    self._select = jax.jit(actor.select_action)

  def act(self, timestep: dm_env.TimeStep) -> types.ArrayTree:
    """Returns the action for a timestep of one environment.

    The memory is reset where the timestep is `FIRST`.

    Args:
      timestep: without a batch axis; reward and discount may be None at
        `FIRST`.

    Raises:
      ValueError: it is no timestep of the game that the agent was trained in.
    """
    num_events = len(self.variables.internal_rewards)
    if timestep.step_type == types.FIRST:
      self._check(timestep)
    reward, discount = timestep.reward, timestep.discount
    if reward is None:
      reward = 0.0 if num_events == 1 else np.zeros(num_events)
    rows = dm_env.TimeStep(
      step_type=np.array([timestep.step_type], np.int32),
      reward=np.array([reward], np.float32),
      discount=np.array([1.0 if discount is None else discount], np.float32),
      observation=jax.tree.map(
        lambda leaf: np.asarray(leaf)[None], timestep.observation
      ),
    )
    action, self._state = self._select(self.variables, rows, self._state)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], action)

  def record(
    self,
    environment: Any,
    path: str | os.PathLike[str],
    seats: Sequence['LoadedAgent | str'] | None = None,
    *,
    seed: int = 0,
    max_num_steps: int = 1_000,
    frames_per_second: float = 15.0,
  ) -> pathlib.Path:
    """Films an episode of the agent.

    Args:
      environment: in JAX or in Python, of one agent or a game. It is drawn by
        its `display` or its `render`, which returns uint8 [H, W, 3]; without
        these an image that the first player observes is shown. Gymnasium
        environments need `render_mode='rgb_array'`.
      path: of the GIF.
      seats: the player on each seat, or one for all: an agent, or the name of
        a script of the game, such as 'random'. By default this agent.
      seed: of the players, and of a game in JAX.
      max_num_steps: steps after which the film ends, if the episode does not.
      frames_per_second: of the film.

    Returns:
      The path.

    Raises:
      ValueError: the agents were trained in another game, there is no such
        script, or the environment cannot be drawn.
    """
    return filming.record(
      environment,
      path,
      [
        (seat, None) if isinstance(seat, str) else (seat.name, seat.player)
        for seat in (seats or [self])
      ],
      seed,
      max_num_steps,
      frames_per_second,
    )

  def _check(self, timestep: dm_env.TimeStep) -> None:
    """Raises a ValueError unless this is a timestep of the agent's game."""
    spec = self.game_spec.environment
    observation = timestep.observation
    seen = jax.tree.map(np.shape, observation)
    expected = jax.tree.map(lambda leaf: leaf.shape, spec.observations)
    if seen != expected:
      raise ValueError(
        f'observation (shape {seen}) must be of shape {expected}, as in the'
        ' game that the agent was trained in; give a timestep of that game.'
      )
    reward = np.shape(timestep.reward)
    if timestep.reward is not None and reward != spec.rewards.shape:
      raise ValueError(
        f'reward (shape {reward}) must be of shape {spec.rewards.shape}, as in'
        ' the game that the agent was trained in; give a timestep of that game.'
      )


def load(
  source: str | os.PathLike[str],
  member: int = 0,
  greedy: bool = True,
  experiment: experiment_lib.ExperimentConfig | None = None,
  step: int | None = None,
) -> LoadedAgent:
  """Loads an agent of an earlier run.

  Args:
    source: the directory of a run of any runtime, whose newest checkpoint
      counts; one that `export` has written; or the name of a population that
      comes with the library, such as 'capture_the_flag'.
    member: index of the agent in the population.
    greedy: whether it takes the most probable action.
    experiment: the one that the run was started with. Needed only where its
      network is not that of a named agent.
    step: of the checkpoint; by default the newest one.

  Raises:
    CheckpointError: there is no checkpoint, or it is of another experiment.
    ValueError: the records are missing or damaged, the agent cannot be made
      from them, or there is no such member.
  """
  directory = _find(source)
  origin = _find_origin(directory, experiment)
  if not 0 <= member < origin.num_members:
    raise ValueError(
      f'member ({member}) must be from 0 to {origin.num_members - 1}; choose 0.'
    )
  variables = _read_variables(directory, origin, step)
  spec = origin.game_spec.environment
  return LoadedAgent(
    origin.builder.make_policy(origin.network, spec, evaluation=greedy),
    jax.tree.map(lambda leaf: leaf[member], variables),
    origin.game_spec,
    f'member {member}' if origin.num_members > 1 else 'agent',
  )


def initial_variables(
  source: str | os.PathLike[str],
  seed: int = 0,
  experiment: experiment_lib.ExperimentConfig | None = None,
) -> types.ActorVariables:
  """Draws variables as a run begins with, of one member.

  With them an agent is compared with what it was before it learned.

  Args:
    source: see `load`.
    seed: for the draws.
    experiment: see `load`.
  """
  origin = _find_origin(_find(source), experiment)
  core = origin.builder.make_learner_core(
    origin.network, origin.game_spec.environment
  )
  return types.actor_variables(core.init(jax.random.PRNGKey(seed)))


def export(
  source: str | os.PathLike[str],
  directory: str | os.PathLike[str],
  about: Mapping[str, Any] | None = None,
) -> None:
  """Writes the population of a run without what only training needs.

  Args:
    source: the directory of the run.
    directory: a new one.
    about: what else is to be known, as JSON: a result, or where it is from.

  Raises:
    CheckpointError: there is no checkpoint.
    FileExistsError: there is such a directory.
    ValueError: the records are missing or damaged, or the agent cannot be made
      from them.
  """
  source, directory = _find(source), pathlib.Path(directory)
  variables = _read_variables(source, _read_origin(source))
  directory.mkdir(parents=True)
  for name in _RECORDS:
    if (source / name).exists():
      shutil.copyfile(source / name, directory / name)
  array_files.write(directory / VARIABLES_FILE, variables)
  text = json.dumps(dict(about or {}), indent=2)
  files.write_atomically(directory / ABOUT_FILE, text + '\n')


def _find(source: str | os.PathLike[str]) -> pathlib.Path:
  """Returns a directory that exists, of a run or of the library."""
  directory = pathlib.Path(source)
  if len(directory.parts) == 1 and (TRAINED / directory).is_dir():
    return TRAINED / directory
  if not directory.is_dir():
    known = sorted(path.name for path in TRAINED.glob('*') if path.is_dir())
    raise ValueError(
      f'source ({os.fspath(source)!r}) must be the directory of a run or one of'
      f' {known}; run an experiment, whose directory is printed at its end.'
    )
  return directory


def _find_origin(
  directory: pathlib.Path, experiment: experiment_lib.ExperimentConfig | None
) -> _Origin:
  if experiment is None:
    return _read_origin(directory)
  spec = experiment.read_game_spec()
  return _Origin(
    experiment.builder,
    experiment.network_factory(spec.environment),
    spec,
    experiment.population.num_members,
  )


def _read_origin(directory: pathlib.Path) -> _Origin:
  """Makes the agent of a run from its records."""
  path = directory / run_directory.CONFIG_FILE
  recorded, num_members, factory = files.parse_json(
    path,
    lambda plain: (
      plain['builder']['config'],
      int(plain['population']['num_members']),
      plain['network_factory'],
    ),
    'the configuration of a run',
  )
  config = config_files.from_json(recorded, 'builder.config')
  agent = _agent_of(config)
  made_by = functools.partial(agent.make_network, config=config)
  differences = config_files.differences(factory, config_files.to_json(made_by))
  # Options that are newer than the record have their defaults in both.
  if any(then != config_files.ABSENT for _, then, _ in differences):
    raise ValueError(
      f'network_factory in {path} must be that of a named agent to be made'
      ' again from its record, and is another; pass experiment=..., the one'
      ' that the run was started with.'
    )
  spec = game_files.read(directory)
  return _Origin(
    agent.make_builder(config), made_by(spec.environment), spec, num_members
  )


def _agent_of(config: Any) -> named.Agent:
  """Returns the agent that a config is of."""
  for agent in named.AGENTS.values():
    if agent.make_config is type(config):
      return agent
  raise ValueError(
    f'builder.config ({type(config).__name__}) must be that of an agent in'
    f' {list(named.AGENTS)}; pass experiment=..., the one that the run was'
    ' started with.'
  )


def _read_variables(
  directory: pathlib.Path, origin: _Origin, step: int | None = None
) -> types.ActorVariables:
  """Reads the variables of all members, leaves [N, ...]."""
  core = origin.builder.make_learner_core(
    origin.network, origin.game_spec.environment
  )

  def make(key: types.Key) -> types.ActorVariables:
    members = jax.vmap(core.init)(jax.random.split(key, origin.num_members))
    return types.actor_variables(members)

  template: Any = jax.eval_shape(make, jax.random.PRNGKey(0))
  variables: types.ActorVariables
  if (directory / VARIABLES_FILE).exists():
    variables = array_files.read(directory / VARIABLES_FILE, template)
    return variables
  with checkpoints.Checkpointer(directory / 'checkpoints') as checkpointer:
    if step is None:
      return checkpointer.restore(template, part='.members')[0]
    if step not in checkpointer.steps():
      raise ValueError(
        f'step ({step}) must be one of {checkpointer.steps()}, the checkpoints'
        f' in {directory}; choose the last.'
      )
  path = (directory / 'checkpoints' / f'{step:010d}').absolute()
  variables, _ = checkpoint_files.read(path, template, part='.members')
  return variables
