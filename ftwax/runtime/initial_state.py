"""Initializes new runs from the results of an earlier run.

Parameters come from the newest checkpoint of the earlier run, as do running
statistics and the optimizer state where they match. Everything else belongs to
the new run: hyperparameters, internal rewards, counts, ratings and random keys.
"""

import os
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging

from ftwax import types
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.population import state as state_lib
from ftwax.records import checkpoints
from ftwax.runtime import rebuilding

# Path of the training states in a checkpoint.
_MEMBERS = 'members'


# One-field tuples name the subtrees to restore: checkpoints are read by path,
# and each part may be missing or differ on its own.
class _Params(NamedTuple):
  params: Any


class _Optimizer(NamedTuple):
  opt_state: Any


class _ObservationStatistics(NamedTuple):
  observation_statistics: Any


class _ReturnStatistics(NamedTuple):
  return_statistics: Any


_PARTS = (_Params, _Optimizer, _ObservationStatistics, _ReturnStatistics)


class _Source(NamedTuple):
  """The earlier run.

  Attributes:
    checkpoints: directory of its checkpoints.
    num_members: size of its population.
    optimizer: name of its optimizer.
  """

  checkpoints: pathlib.Path
  num_members: int
  optimizer: str


def check(init_from: str | None) -> None:
  """Raises a ValueError if `init_from` is set and is not a run."""
  if init_from is not None:
    _read_source(init_from)


def start_from(
  init_from: str | None,
  optimizer: str,
  population: state_lib.PopulationState,
) -> state_lib.PopulationState:
  """Returns the population, initialized from `init_from` if that is set.

  Members take those of the earlier run cyclically: all members take its single
  agent, or member 5 of eight takes member 1 of four.

  Args:
    init_from: directory of the earlier run.
    optimizer: name of the optimizer of the new run.
    population: population of the new run.

  Raises:
    ValueError: if there is no such run or its network differs; the message
      names the first array that differs.
  """
  members = start_members(init_from, optimizer, population.members)
  return population._replace(members=members)


def start_members(
  init_from: str | None,
  optimizer: str,
  members: types.TrainingState,
  first: int = 0,
) -> types.TrainingState:
  """Initializes some members of a new population; see `start_from`.

  Args:
    init_from: see `start_from`.
    optimizer: see `start_from`.
    members: training states, leaves [n, ...]. Parts without leaves are not
      read.
    first: index of the first of them in the population.
  """
  if init_from is None:
    return members
  source = _read_source(init_from)
  num_members = len(members.internal_rewards)
  turns = (first + np.arange(num_members)) % source.num_members
  changes: dict[str, Any] = {}
  with checkpoints.Checkpointer(source.checkpoints) as checkpointer:
    for kind in _PARTS:
      (name,) = kind._fields
      part = kind(getattr(members, name))
      if kind is _Optimizer and source.optimizer != optimizer:
        logging.warning(
          'The optimizer differs from that of init_from, and starts from its'
          ' initial state.'
        )
      elif jax.tree.leaves(part):
        try:
          restored, _ = checkpointer.restore(
            _template(part, source.num_members), part=_MEMBERS
          )
        except checkpoints.CheckpointError as error:
          _tell(init_from, kind, str(error).partition(';')[0])
        else:
          changes[name] = jax.tree.map(lambda leaf: leaf[turns], restored[0])
  return members._replace(**changes)


def _template(part: Any, num_members: int) -> Any:
  """Returns the shapes of a part of a state, as saved by the earlier run."""
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(
      (num_members, *leaf.shape[1:]), leaf.dtype
    ),
    part,
  )


def _tell(init_from: str, kind: type, problem: str) -> None:
  """Raises a ValueError for parameters; warns about other skipped parts."""
  if kind is _Params:
    raise ValueError(
      f'init_from ({init_from!r}) must have the parameters of this network, but'
      f' {problem}; choose the observations, actions and options of the network'
      ' that it was trained with.'
    )
  logging.warning('Not restored from %s: %s.', init_from, problem)


def _read_source(path: str | os.PathLike[str]) -> _Source:
  directory = pathlib.Path(path)
  try:
    config, num_members = rebuilding.read_parts(
      directory,
      {
        'agent': config_lib.ActorCriticConfig,
        'population.num_members': int,
      },
    )
  except ValueError as error:
    raise ValueError(
      f'init_from ({os.fspath(path)!r}) must be the directory of a run: {error}'
    ) from None
  return _Source(directory / 'checkpoints', num_members, config.optimizer)
