"""Acting as a pure function: many steps of many environments in one scan.

Trajectories are those that the adder of the Reverb path writes: `T + 1`
timesteps that run across the ends of episodes, the last of which is the first
of the next trajectory. Acting needs no gradients, so that convolutions may
stand inside of this scan; see `sizes.make_sizes`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp

from ftwax import trees, types
from ftwax.agents.actor_critic import acting
from ftwax.runtime.device import timestep_checks

# `(state, action) -> (state, timestep)` of environments that reset themselves.
Step = Callable[[Any, types.ArrayTree], tuple[Any, dm_env.TimeStep]]


class RolloutState(NamedTuple):
  """State of environments and their actor; leaves are [B, ...].

  `B` may be several axes, such as members and seats.

  Attributes:
    environment: state of the environments.
    timestep: the last one, at which no action is chosen yet.
    actor: state of the actor.
    episode_return: float32 [B] or [B, num_events], rewards of the episode so
      far, not discounted.
    episode_length: int32 [B], actions of the episode so far.
  """

  environment: Any
  timestep: dm_env.TimeStep
  actor: types.ActorState
  episode_return: types.Array
  episode_length: types.Array


class Episodes(NamedTuple):
  """Episodes at each step of a rollout; leaves are [T, B].

  Attributes:
    moved: bool, whether an action was taken rather than an episode started.
    ended: bool, whether the step ended an episode.
    returns: float32 [T, B] or [T, B, num_events], of the episode so far.
    lengths: int32, of the episode so far.
    faults: bool [T, num_demands], whether a row was off a demand; see
      `timestep_checks`.
  """

  moved: types.Array
  ended: types.Array
  returns: types.Array
  lengths: types.Array
  faults: types.Array


def start(
  environment_state: Any, timestep: dm_env.TimeStep, actor: types.ActorState
) -> RolloutState:
  """Returns the state of a rollout at the first timestep of environments.

  Args:
    environment_state: state of the environments.
    timestep: `FIRST` in all rows, leaves [B, ...].
    actor: state of a new actor.
  """
  return RolloutState(
    environment=environment_state,
    timestep=timestep,
    actor=actor,
    episode_return=jnp.zeros_like(timestep.reward),
    episode_length=jnp.zeros_like(timestep.step_type),
  )


def rollout(
  spec: types.EnvironmentSpec,
  step: Step,
  select_action: types.SelectAction,
  variables: types.ActorVariables,
  state: RolloutState,
  num_steps: int,
) -> tuple[RolloutState, types.Trajectory, Episodes]:
  """Acts for `T` steps.

  Args:
    spec: of one environment.
    step: of the environments.
    select_action: of the actor.
    variables: of the actor's learner.
    state: before the first step.
    num_steps: T.

  Returns:
    The state after the last step; the trajectory, leaves [T + 1 or T, B, ...]
    and the recurrent state [B, ...]; and the episodes at each step.
  """

  def act(
    carry: RolloutState, _: None
  ) -> tuple[RolloutState, tuple[Any, Episodes]]:
    action, actor = select_action(variables, carry.timestep, carry.actor)
    row = (
      carry.timestep,
      acting.previous_action_of(carry.timestep, carry.actor.action),
      _zero_at_last(carry.timestep, actor.logits),
    )
    environment, timestep = step(carry.environment, action)
    faults = timestep_checks.find_faults(spec, carry.timestep, timestep)
    carry, episodes = _advance(carry, environment, timestep, actor, faults)
    return carry, (row, episodes)

  recurrent_state = state.actor.recurrent_state
  state, (rows, episodes) = jax.lax.scan(act, state, length=num_steps)
  timesteps, previous_actions, logits = rows
  last_action = acting.previous_action_of(state.timestep, state.actor.action)
  trajectory = types.Trajectory(
    timestep=_append(timesteps, state.timestep),
    previous_action=_append(previous_actions, last_action),
    logits=logits,
    recurrent_state=recurrent_state,
  )
  return state, trajectory, episodes


def _advance(
  state: RolloutState,
  environment: Any,
  timestep: dm_env.TimeStep,
  actor: types.ActorState,
  faults: types.Array,
) -> tuple[RolloutState, Episodes]:
  """Takes the step to `timestep` into the sums of its episode."""
  moved = jnp.logical_not(acting.is_first(timestep))
  ended = timestep.step_type == types.LAST
  returns = state.episode_return + timestep.reward
  lengths = state.episode_length + moved
  after = RolloutState(
    environment=environment,
    timestep=timestep,
    actor=actor,
    episode_return=jnp.where(trees.align(ended, returns), 0.0, returns),
    episode_length=jnp.where(ended, 0, lengths),
  )
  return after, Episodes(moved, ended, returns, lengths, faults)


def _zero_at_last(
  timestep: dm_env.TimeStep, logits: types.ArrayTree
) -> types.ArrayTree:
  """Zeroes logits [B, num_actions] where no action is taken."""
  ended = timestep.step_type == types.LAST
  return jax.tree.map(
    lambda leaf: jnp.where(trees.align(ended, leaf), 0.0, leaf), logits
  )


def _append(rows: types.ArrayTree, last: types.ArrayTree) -> types.ArrayTree:
  """Appends `last` [B, ...] to `rows` [T, B, ...]."""
  return jax.tree.map(
    lambda leaf, end: jnp.concatenate([leaf, end[None]]), rows, last
  )
