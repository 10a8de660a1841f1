"""Agents of earlier runs: to play, to meet as opponents, to look at."""

import pathlib
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.population import players
from ftwax.records import checkpoints
from ftwax.runtime import experiment as experiment_lib


class LoadedAgent:
  """A trained agent that acts in one environment and does not learn.

  Attributes:
    variables: of the agent, without a member axis.
    player: the agent as a player; see `ExperimentConfig.opponents`.
  """

  def __init__(
    self,
    actor: types.ActorCore,
    variables: types.ActorVariables,
    key: types.Key,
  ):
    """Takes functions and variables of the agent's actor."""
    self.variables = variables
    self.player = players.frozen(actor, variables)
    self._state = actor.init(key, 1)
    self._select = jax.jit(actor.select_action)

  def act(self, timestep: dm_env.TimeStep) -> types.ArrayTree:
    """Returns the action for a timestep of one environment.

    The memory is reset where the timestep is `FIRST`.

    Args:
      timestep: without a batch axis; reward and discount may be None at
        `FIRST`.
    """
    num_events = len(self.variables.internal_rewards)
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


def load(
  experiment: experiment_lib.ExperimentConfig,
  run_dir: str | pathlib.Path,
  member: int = 0,
  greedy: bool = True,
) -> LoadedAgent:
  """Loads an agent from the newest checkpoint of a run, of any runtime.

  Args:
    experiment: the one that the run was started with.
    run_dir: directory of the run.
    member: index of the agent in the population.
    greedy: whether it takes the most probable action.

  Raises:
    CheckpointError: there is no checkpoint, or it is of another experiment.
    ValueError: there is no such member.
  """
  num_members = experiment.population.num_members
  if not 0 <= member < num_members:
    raise ValueError(
      f'member ({member}) must be from 0 to {num_members - 1}; choose 0.'
    )
  spec = experiment.read_game_spec().environment
  builder = experiment.builder
  network = experiment.network_factory(spec)
  core = builder.make_learner_core(network, spec)

  def make(key: types.Key) -> types.ActorVariables:
    members = jax.vmap(core.init)(jax.random.split(key, num_members))
    return types.actor_variables(members)

  key = jax.random.PRNGKey(experiment.seed)
  template: Any = jax.eval_shape(make, key)
  directory = pathlib.Path(run_dir) / 'checkpoints'
  with checkpoints.Checkpointer(directory) as checkpointer:
    variables, _ = checkpointer.restore(template, part='.members')
  return LoadedAgent(
    builder.make_policy(network, spec, evaluation=greedy),
    jax.tree.map(lambda leaf: leaf[member], variables),
    key,
  )
