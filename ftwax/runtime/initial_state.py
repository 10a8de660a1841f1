"""Initializes new runs from the results of an earlier run.

Parameters come from the newest checkpoint of the earlier run, as do running
statistics and the optimizer state where they match, or from a folder of shared
agents, which has no optimizer state. Everything else belongs to
the new run: hyperparameters, internal rewards, counts, ratings and random keys.
"""

import pathlib
from typing import Any

import jax
import numpy as np
from absl import logging

from ftwax import trees
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.population import state as state_lib
from ftwax.records import array_files, checkpoints, rebuilding, run_directory
from ftwax.runtime import saved_agents

# Fields of a training state that are restored, each on its own: checkpoints are
# read by path, and each may be missing or differ.
_PARTS = (
  'params',
  'opt_state',
  'observation_statistics',
  'return_statistics',
  'target_params',
)


def check(init_from: str | None) -> None:
  """Raises a ValueError if `init_from` is set and is not a run."""
  if init_from is not None:
    _read_source(init_from)


def start_from(
  init_from: str | None,
  optimizer: Any,
  population: state_lib.PopulationState,
) -> state_lib.PopulationState:
  """Returns the population, initialized from `init_from` if that is set.

  Members take those of the earlier run cyclically: all members take its single
  agent, or member 5 of eight takes member 1 of four.

  Args:
    init_from: directory of the earlier run, or the name of a population of
      the library.
    optimizer: the optimizer of the new run.
    population: population of the new run.

  Raises:
    ValueError: if there is no such run or its network differs; the message
      names the first array that differs.
  """
  if init_from is None:
    return population
  members = population.members
  directory, agent, size = _read_source(init_from)
  turns = np.arange(len(members.internal_rewards)) % size
  changes: dict[str, Any] = {}
  for name in _PARTS:
    part = getattr(members, name)
    if name == 'opt_state' and type(agent.optimizer) is not type(optimizer):
      logging.warning(
        'The optimizer differs from that of init_from, and starts from its'
        ' initial state.'
      )
    elif jax.tree.leaves(part):
      try:
        restored = _read_part(directory, name, _template(part, size))
      except checkpoints.CheckpointError as error:
        _skip(init_from, name, str(error).partition(';')[0])
      else:
        changes[name] = trees.take(restored, turns)
  members = members._replace(**changes)
  return population._replace(members=members)


def _read_part(directory: pathlib.Path, name: str, template: Any) -> Any:
  """Reads a part of the states, from a checkpoint or from shared agents."""
  if (directory / array_files.MANIFEST_FILE).exists():
    return array_files.read(directory, template, name)[0]
  with checkpoints.Checkpointer(directory / 'checkpoints') as checkpointer:
    return checkpointer.restore({name: template}, part='members')[0][name]


def _template(part: Any, num_members: int) -> Any:
  """Returns the shapes of a part of a state, as saved by the earlier run."""
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(
      (num_members, *leaf.shape[1:]), leaf.dtype
    ),
    part,
  )


def _skip(init_from: str, name: str, problem: str) -> None:
  """Raises a ValueError for parameters; warns about other skipped parts."""
  if name == 'params':
    raise ValueError(
      f'init_from ({init_from!r}) must have the parameters of this network, but'
      f' {problem}; choose the observations, actions and options of the network'
      ' that it was trained with.'
    )
  logging.warning('Not restored from %s: %s.', init_from, problem)


def _read_source(
  init_from: str,
) -> tuple[pathlib.Path, config_lib.ActorCriticConfig, int]:
  """Returns the directory, agent and size of an earlier population."""
  try:
    directory = saved_agents.find(init_from)
    agent, num_members = rebuilding.read_parts(
      directory,
      {
        'agent': config_lib.ActorCriticConfig,
        'population.num_members': int,
      },
    )
  except ValueError as error:
    raise ValueError(
      f'init_from ({init_from!r}) must be the directory of a run: {error}'
    ) from None
  members = run_directory.read_members(directory)
  return directory, agent, len(members) or num_members
