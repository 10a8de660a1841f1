"""Loads agents of earlier runs, to play, to serve as opponents or to analyze.

An agent is rebuilt from the records in the directory of its run, without the
experiment or the environment. `export` and `LoadedAgent.save` write folders
that can be shared; the library includes such populations (`TRAINED`).
"""

import contextlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from ftwax import compilation, import_guard, trees, types
from ftwax.environments import game_vectors
from ftwax.inference import loaded_agent, sharing
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import saved_agents

TRAINED, find = saved_agents.TRAINED, saved_agents.find


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
    variables = saved_agents.read_variables(source, origin)
    sharing.write_folder(
      source, pathlib.Path(directory), origin.members, variables, about
    )


def _guarded(
  experiment: experiment_lib.ExperimentConfig | None,
) -> contextlib.AbstractContextManager[None]:
  """Guards the imports of all that records alone describe."""
  if experiment is None:
    return import_guard.guarded()
  return contextlib.nullcontext()  # It may import modules of the program.


def _load(
  directory: pathlib.Path,
  origin: saved_agents.Origin,
  members: Sequence[int],
  greedy: bool,
  step: int | str | None,
) -> list[loaded_agent.LoadedAgent]:
  variables = saved_agents.read_variables(directory, origin, step)
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
) -> saved_agents.Origin:
  """Returns the agent of an experiment or, without one, of a run's records."""
  if experiment is None:
    return saved_agents.read_origin(directory)
  return saved_agents.make_origin(
    experiment.agent,
    game_vectors.read_spec(experiment.environment_factory, experiment.name),
    range(experiment.population.num_members),
  )
