"""Agents of earlier runs and of shared folders, rebuilt from their records.

Nothing here imports what a folder names: agents are rebuilt from parts that are
registered, and their variables are arrays.
"""

import functools
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from ftwax import types
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.environments import games
from ftwax.population import population_config
from ftwax.records import (
  array_files,
  checkpoints,
  files,
  game_files,
  rebuilding,
  run_directory,
)
from ftwax.runtime import callbacks

# Directory of the populations included in the library, by name.
TRAINED = pathlib.Path(__file__).parents[1] / 'trained'


class Origin(NamedTuple):
  """The agent of a run, before its variables are read.

  Attributes:
    agent: config of the agent.
    network: network of the agent.
    game_spec: spec of the game that it was trained in.
    members: indices of the members whose variables are available.
    draw: returns initial variables of one member.
    template: variables of all members, `jax.ShapeDtypeStruct` [N, ...].
  """

  agent: config_lib.ActorCriticConfig
  network: types.RecurrentNetwork
  game_spec: games.GameSpec
  members: Sequence[int]
  draw: Callable[[types.Key], types.ActorVariables]
  template: types.ActorVariables


def find(source: str | os.PathLike[str]) -> pathlib.Path:
  """Returns the directory of a population; see `loading.load`.

  Raises:
    ValueError: if there is none.
  """
  directory = pathlib.Path(source)
  if len(directory.parts) == 1 and (TRAINED / directory).is_dir():
    return TRAINED / directory
  if not directory.is_dir():
    known = sorted(path.name for path in TRAINED.glob('*') if path.is_dir())
    raise ValueError(
      f'source ({os.fspath(source)!r}) must be the directory of a run or one of'
      f' {known}; run an experiment, which prints its directory at the end.'
    )
  return directory


def make_origin(
  agent: config_lib.ActorCriticConfig,
  game_spec: games.GameSpec,
  members: Sequence[int],
) -> Origin:
  """Returns the origin of the members of an agent in a game."""

  def draw(key: types.Key) -> types.ActorVariables:
    return types.actor_variables(core.init(key))

  network = agent.make_network(game_spec.environment)
  core = agent.make_learner_core(network, game_spec.environment)
  keys = jax.random.split(jax.random.PRNGKey(0), len(members))
  template = jax.eval_shape(jax.vmap(draw), keys)
  return Origin(agent, network, game_spec, members, draw, template)


def read_origin(directory: pathlib.Path) -> Origin:
  """Returns the agent of a run's records, or of a shared folder.

  Raises:
    ValueError: if they are missing or damaged, or name what is not registered.
  """
  agent, num_members = rebuilding.read_parts(
    directory,
    {
      'agent': config_lib.ActorCriticConfig,
      'population.num_members': int,
    },
  )
  if not 1 <= num_members <= population_config.MAX_MEMBERS:
    raise ValueError(
      f'{directory / run_directory.CONFIG_FILE}: population.num_members'
      f' ({num_members}) must be from 1 to {population_config.MAX_MEMBERS};'
      ' restore it from a copy.'
    )
  spec = game_files.read(directory)
  members = run_directory.read_members(directory) or range(num_members)
  try:
    return make_origin(agent, spec, members)
  except Exception as error:
    if isinstance(error, ValueError):
      raise
    path = directory / run_directory.CONFIG_FILE
    raise ValueError(
      f'{path} must describe an agent, and its network cannot be made'
      f' ({files.first_line(error):.200}); restore it from a copy.'
    ) from None


def read_variables(
  directory: pathlib.Path, origin: Origin, step: int | str | None = None
) -> types.ActorVariables:
  """Reads the variables of all members, leaves [N, ...].

  Args:
    directory: directory of a run, or a shared folder.
    origin: its agent.
    step: step of the checkpoint; None for the newest, 'best' for that of
      `callbacks.BestCheckpoint`.

  Raises:
    CheckpointError: if there is no checkpoint, or it is of other agents.
    ValueError: if there is no such step, or a folder is damaged.
  """
  template = origin.template

  @functools.cache
  def draw() -> dict[str, Any]:
    keys = jax.random.split(jax.random.PRNGKey(0), len(origin.members))
    variables = jax.jit(jax.vmap(origin.draw))(keys)
    names = array_files.describe(variables)
    return dict(zip(names, jax.tree.leaves(variables), strict=True))

  def find_missing(path: str) -> Any:
    # A hyperparameter that is younger than the run: as its config has it.
    return draw()[path] if path.startswith('hyperparameters/') else None

  if (directory / array_files.MANIFEST_FILE).exists():
    return _read_shared(directory, template, find_missing)
  folder = callbacks.BEST_DIRECTORY if step == 'best' else 'checkpoints'
  with checkpoints.Checkpointer(directory / folder) as checkpointer:
    wanted = None if step == 'best' else step
    if wanted is not None and wanted not in checkpointer.steps():
      raise ValueError(
        f'step ({step}) must be one of {checkpointer.steps()}, the checkpoints'
        f' in {directory}; choose the last.'
      )
    return checkpointer.restore(
      template, part='members', step=wanted, find_missing=find_missing
    )[0]


def _read_shared(
  directory: pathlib.Path,
  template: types.ActorVariables,
  find_missing: Callable[[str], Any],
) -> types.ActorVariables:
  """Reads the variables of the agents in a shared folder."""
  try:
    variables, _ = array_files.read(
      directory, template, find_missing=find_missing
    )
  except array_files.DamagedError as error:
    raise ValueError(
      f'{directory} must hold shared agents as they were saved, but {error};'
      ' restore it from a copy.'
    ) from None
  return variables
