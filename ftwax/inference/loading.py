"""Loads agents of earlier runs, to play, to serve as opponents or to analyze.

An agent is rebuilt from the records in the directory of its run, without the
experiment or the environment. `export` and `LoadedAgent.save` write folders
that can be shared; the library includes such populations (`TRAINED`).
"""

import contextlib
import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from ftwax import compilation, import_guard, trees, types
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.environments import game_vectors, games
from ftwax.inference import loaded_agent, sharing
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
from ftwax.runtime import experiment as experiment_lib

# Directory of the populations included in the library, by name.
TRAINED = pathlib.Path(__file__).parents[1] / 'trained'


class _Origin(NamedTuple):
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


@compilation.usual_settings()
def load(
  source: str | os.PathLike[str],
  member: int = 0,
  greedy: bool = True,
  experiment: experiment_lib.ExperimentConfig | None = None,
  step: int | str | None = None,
) -> loaded_agent.LoadedAgent:
  """Loads an agent of an earlier run.

  Args:
    source: the directory of a run of any runtime, whose newest checkpoint is
      used; a directory written by `export`; or the name of a population
      included in the library, such as 'capture_the_flag'.
    member: index of the agent in the population.
    greedy: whether it takes the most probable action.
    experiment: the experiment that the run was started with. Only needed if its
      network is not that of a named agent.
    step: step of the checkpoint; by default the newest. 'best' for the
      checkpoint that `callbacks.BestCheckpoint` keeps.

  Returns:
    The agent.

  Raises:
    CheckpointError: if there is no checkpoint or it belongs to another
      experiment.
    ValueError: if the records are missing or damaged, the agent cannot be
      rebuilt from them, or there is no such member.
  """
  directory = find(source)
  with _guarded(experiment):
    origin = _find_origin(directory, experiment)
    last = len(origin.members) - 1
    if not 0 <= member <= last:
      raise ValueError(f'member ({member}) must be from 0 to {last}; choose 0.')
    (agent,) = _load(directory, origin, [member], greedy, step)
  return agent


@compilation.usual_settings()
def load_members(
  source: str | os.PathLike[str],
  greedy: bool = True,
  experiment: experiment_lib.ExperimentConfig | None = None,
  step: int | str | None = None,
) -> list[loaded_agent.LoadedAgent]:
  """Loads all agents of a population at once; see `load`."""
  directory = find(source)
  with _guarded(experiment):
    origin = _find_origin(directory, experiment)
    return _load(directory, origin, range(len(origin.members)), greedy, step)


def initial_variables(
  source: str | os.PathLike[str],
  seed: int = 0,
  experiment: experiment_lib.ExperimentConfig | None = None,
) -> types.ActorVariables:
  """Draws the initial variables of a member of a run.

  Allows a comparison of an agent with its untrained state.

  Args:
    source: see `load`.
    seed: seed of the variables.
    experiment: see `load`.
  """
  with _guarded(experiment):
    origin = _find_origin(find(source), experiment)
    return origin.draw(jax.random.PRNGKey(seed))


def read_network(
  source: str | os.PathLike[str],
  experiment: experiment_lib.ExperimentConfig | None = None,
) -> types.RecurrentNetwork:
  """Returns the agents' network, for outputs other than actions."""
  with _guarded(experiment):
    return _find_origin(find(source), experiment).network


def export(
  source: str | os.PathLike[str],
  directory: str | os.PathLike[str],
  about: Mapping[str, Any] | None = None,
) -> None:
  """Writes the population of a run to a folder that can be shared.

  The folder contains the parameters (safetensors), the configuration, the
  lineage, the specs of the environment, the versions, a card (`README.md`) and
  the newest film, if any.

  Args:
    source: see `load`.
    directory: a new directory.
    about: further information for the card, as JSON. By default the command,
      the seed, the steps and the scores of the last evaluation, as far as they
      are recorded.

  Raises:
    CheckpointError: if there is no checkpoint.
    FileExistsError: if the directory exists.
    ValueError: if the records are missing or damaged, or the agent cannot be
      rebuilt from them.
  """
  source = find(source)
  with import_guard.guarded():
    origin = _find_origin(source)
    variables = _read_variables(source, origin)
    sharing.write_folder(
      source, pathlib.Path(directory), origin.members, variables, about
    )


def find(source: str | os.PathLike[str]) -> pathlib.Path:
  """Returns the directory of a population; see `load`.

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


def _guarded(
  experiment: experiment_lib.ExperimentConfig | None,
) -> contextlib.AbstractContextManager[None]:
  """Guards the imports of all that records alone describe."""
  if experiment is None:
    return import_guard.guarded()
  return contextlib.nullcontext()  # It may import modules of the program.


def _load(
  directory: pathlib.Path,
  origin: _Origin,
  members: Sequence[int],
  greedy: bool,
  step: int | str | None,
) -> list[loaded_agent.LoadedAgent]:
  variables = _read_variables(directory, origin, step)
  policy = origin.agent.make_policy(
    origin.network, origin.game_spec.environment, evaluation=greedy
  )

  # Otherwise each leaf compiles an indexing of its own.
  select = jax.jit(trees.take)
  return [
    loaded_agent.LoadedAgent(
      policy,
      select(variables, member),
      origin.game_spec,
      directory,
      origin.members[member],
    )
    for member in members
  ]


def _find_origin(
  directory: pathlib.Path,
  experiment: experiment_lib.ExperimentConfig | None = None,
) -> _Origin:
  """Returns the agent of an experiment or, without one, of a run's records."""
  members: Sequence[int]
  if experiment is not None:
    agent = experiment.agent
    spec = game_vectors.read_spec(
      experiment.environment_factory, experiment.name
    )
    members = range(experiment.population.num_members)
  else:
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

  def draw(key: types.Key) -> types.ActorVariables:
    return types.actor_variables(core.init(key))

  try:
    network = agent.make_network(spec.environment)
    core = agent.make_learner_core(network, spec.environment)
    keys = jax.random.split(jax.random.PRNGKey(0), len(members))
    template = jax.eval_shape(jax.vmap(draw), keys)
    return _Origin(agent, network, spec, members, draw, template)
  except Exception as error:
    if experiment is not None or isinstance(error, ValueError):
      raise
    path = directory / run_directory.CONFIG_FILE
    raise ValueError(
      f'{path} must describe an agent, and its network cannot be made'
      f' ({files.first_line(error):.200}); restore it from a copy.'
    ) from None


def _read_variables(
  directory: pathlib.Path, origin: _Origin, step: int | str | None = None
) -> types.ActorVariables:
  """Reads the variables of all members, leaves [N, ...]."""
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
    return sharing.read_variables(directory, template, find_missing)
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
