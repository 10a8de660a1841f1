"""Auxiliary tasks: losses in addition to those of the policy and the value.

A task has a name, a source of data, and a loss that is weighted by a cost, a
hyperparameter of the task. The learner adds the losses of all tasks to the
policy's loss and takes one step on the sum. Replayed trajectories are
concatenated with the fresh ones, so that the network is unrolled once for all
tasks.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from ftwax import types

# Sources of tasks: fields of `types.LearnerBatch`.
TRAJECTORY = 'trajectory'
REPLAY = 'replay'
REWARD_PREDICTION = 'reward_prediction'
DEMONSTRATIONS = 'demonstrations'
# Fresh trajectories, and what a frozen policy would do in them.
FROZEN = 'frozen'

_NEVER_EMPTY = (TRAJECTORY, FROZEN)


class Unrolled(NamedTuple):
  """Trajectories and the outputs of the learner's network on them.

  Attributes:
    trajectory: leaves [T + 1 or T, B, ...], its rewards the agent's own.
    output: leaves [T + 1, B, ...].
  """

  trajectory: types.Trajectory
  output: types.NetworkOutput

  def mean(self, losses: types.Array) -> types.Array:
    """Returns the mean of losses [B, T] over the actions of trajectories."""
    is_last = self.trajectory.timestep.step_type[:-1] == types.LAST
    return jnp.sum(losses) / jnp.maximum(1.0, jnp.sum(~is_last))


class TaskInputs(NamedTuple):
  """Arguments of the loss of a task.

  Attributes:
    params: parameters of the network.
    heads: the network's auxiliary heads, by name.
    agent: the config of the agent, in which hyperparameters have their values.
    fresh: trajectories from the queue.
    replay: past trajectories; None unless a task of the agent learns from them.
    reward_prediction: sequences whose rewards, float32 [B], are the agent's
      own; None unless a task of the agent learns from them.
    observation_spec: specs of the environment's observations, static; None if
      the learner was made without them.
    return_scale: float32 [], see `policy_loss.make_transitions`.
    demonstrations: recorded games; None unless a task of the agent learns from
      them.
    frozen: logits of frozen policies at the steps of `fresh`, leaves
      [T, B, ...], by the names of tasks.
  """

  params: types.Params
  heads: Mapping[str, types.NetworkHead]
  agent: Any
  fresh: Unrolled
  replay: Unrolled | None
  reward_prediction: types.RewardPredictionBatch | None
  observation_spec: types.SpecTree = None
  return_scale: types.Array | None = None
  demonstrations: Unrolled | None = None
  frozen: Mapping[str, types.ArrayTree] = {}


# A weighted loss, float32 [], and metrics by name.
Loss = tuple[types.Array, dict[str, types.Array]]


class AuxiliaryTask(NamedTuple):
  """An auxiliary task of your own; `tasks` has those of the library.

  Attributes:
    name: unique among the tasks of an agent.
    source: `TRAJECTORY`, `REPLAY`, `REWARD_PREDICTION`, `DEMONSTRATIONS` or
      `FROZEN`.
    loss: computes the weighted loss of the task, and its metrics.
  """

  name: str
  source: str
  loss: Callable[[TaskInputs], Loss]

  def check(self, agent: Any) -> None:
    """Allows any agent."""

  def agree_with(self, torsos: Mapping[str, str]) -> 'AuxiliaryTask':
    """Returns itself."""
    del torsos
    return self

  def make_heads(self, environment_spec: types.EnvironmentSpec) -> Any:
    """Returns no heads."""
    del environment_spec
    return {}


# Tasks of an agent: each is an `AuxiliaryTask`, or a part with its fields.
Tasks = tuple[Any, ...]


def sum_losses(
  tasks: Tasks,
  inputs: TaskInputs,
  is_live: Mapping[str, types.Array],
) -> Loss:
  """Sums the losses of all tasks, omitting those whose source is still empty.

  Args:
    tasks: tasks of the agent.
    inputs: inputs of the losses.
    is_live: bool [] for each source that may be empty, whether it has data.

  Returns:
    The sum, float32 [], and metrics: `<task>_loss`, the task's own metrics and,
    if its source may be empty, `<task>_live`.
  """
  total = jnp.zeros(())
  metrics: dict[str, types.Array] = {}
  for task in tasks:
    loss, task_metrics = task.loss(inputs)
    if task.source not in _NEVER_EMPTY:
      live = is_live[task.source]
      loss = jnp.where(live, loss, 0.0)
      task_metrics = {**task_metrics, 'live': live.astype(jnp.float32)}
    total += loss
    metrics |= {f'{task.name}_{k}': v for k, v in task_metrics.items()}
    metrics[f'{task.name}_loss'] = loss
  return total, metrics


def check_tasks(tasks: Tasks) -> None:
  """Raises a ValueError if tasks share a name or have an unknown source."""
  names = [task.name for task in tasks]
  if twice := [name for name in names if names.count(name) > 1]:
    raise ValueError(
      f'tasks ({names}) must have one name each, which also tells their numbers'
      f' apart; choose another for one, such as name="{twice[0]}_2".'
    )
  known = (TRAJECTORY, REPLAY, REWARD_PREDICTION, DEMONSTRATIONS, FROZEN)
  for task in tasks:
    if task.source not in known:
      raise ValueError(
        f'source ({task.source!r}) of the auxiliary task {task.name!r} must be'
        f' one of {known}; choose one.'
      )


def frame_entries(tasks: Tasks) -> frozenset[str]:
  """Returns the paths of observation entries that tasks learn to control."""
  entries = (getattr(task, 'frame_entry', None) for task in tasks)
  return frozenset(entry for entry in entries if entry is not None)


def sources(tasks: Tasks) -> frozenset[str]:
  """Returns the data sources that the tasks use."""
  return frozenset(task.source for task in tasks)
