"""Acts as a pure function: many steps of many environments in one scan.

Trajectories have the layout that the Reverb adder writes: `T + 1` consecutive
timesteps that may span the ends of episodes; the last timestep is also the
first of the next trajectory. Acting needs no gradients, so convolutions may
stay inside this scan; see `sizes.make_sizes`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp

from ftwax import trees, types
from ftwax.agents.actor_critic import acting
from ftwax.environments import validation
from ftwax.replay import trajectories

# `(state, action) -> (state, timestep, results)` of environments that reset
# themselves; `results` are those of the games that ended, or `()`.
Step = Callable[[Any, types.ArrayTree], tuple[Any, dm_env.TimeStep, Any]]


class RolloutState(NamedTuple):
  """State of the environments and their actor, leaves [B, ...].

  `B` may stand for several axes, such as members and seats.

  Attributes:
    environment: state of the environments.
    timestep: the last timestep, for which no action is chosen yet.
    actor: state of the actor.
    episode_return: float32 [B] or [B, num_events], undiscounted sum of the
      rewards of the current episode.
    episode_length: int32 [B], number of actions in the current episode.
    anchor: `Anchor` of seats that may be absent, else `()`.
  """

  environment: Any
  timestep: dm_env.TimeStep
  actor: types.ActorState
  episode_return: types.Array
  episode_length: types.Array
  anchor: Any = ()


class Anchor(NamedTuple):
  """The last timestep of each seat that was not `ABSENT`, leaves [B, ...].

  A trajectory that begins while a seat waits begins with it, so that the action
  taken there is learned from when its outcome is known.

  Attributes:
    row: timestep, previous action, logits, seed and value.
    recurrent_state: of the actor before the timestep.
  """

  row: Any
  recurrent_state: types.RecurrentState


class Episodes(NamedTuple):
  """Episode statistics at each step of a rollout, leaves [T, B].

  Attributes:
    moved: bool [T, B], whether the step took an action rather than reset.
    ended: bool [T, B], whether the step ended an episode.
    returns: float32 [T, B] or [T, B, num_events], of the episode so far.
    lengths: int32 [T, B], of the episode so far.
    results: the results of `Step` at each step, leaves [T, ...].
    faults: bool [T, num_demands], whether any row violated a demand; see
      `environments.validation.make_fields`.
  """

  moved: types.Array
  ended: types.Array
  returns: types.Array
  lengths: types.Array
  results: Any
  faults: types.Array


def start(
  environment_state: Any,
  timestep: dm_env.TimeStep,
  actor: types.ActorState,
  absences: bool = False,
) -> RolloutState:
  """Returns the rollout state at the first timestep of the environments.

  Args:
    environment_state: state of the environments.
    timestep: `FIRST` in all rows that are not absent, leaves [B, ...].
    actor: initial state of the actor.
    absences: whether rows may be absent.
  """
  row = _row(timestep, actor, actor)
  return RolloutState(
    environment=environment_state,
    timestep=timestep,
    actor=actor,
    episode_return=jnp.zeros_like(timestep.reward),
    episode_length=jnp.zeros_like(timestep.step_type),
    anchor=Anchor(row, actor.recurrent_state) if absences else (),
  )


def _row(
  timestep: dm_env.TimeStep, before: types.ActorState, after: types.ActorState
) -> tuple[Any, ...]:
  """Returns the row of a timestep, given the actor before and after it."""
  # The logits of the action chosen here belong to this timestep; the reward of
  # that action is in the next row.
  return (
    timestep,
    acting.previous_action_of(timestep, before.action),
    _zero_at_last(timestep, after.logits),
    before.seed,
    after.value,
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
    spec: spec of one environment.
    step: steps the environments.
    select_action: selects actions for all rows.
    variables: variables of the policy.
    state: before the first step.
    num_steps: T.

  Returns:
    The state after the last step; the trajectory, leaves [T + 1 or T, B, ...]
    with a recurrent state [B, ...]; and the episodes at each step.
  """

  def act(carry: RolloutState, _: None) -> tuple[RolloutState, tuple[Any, ...]]:
    action, actor = select_action(variables, carry.timestep, carry.actor)
    row = _row(carry.timestep, carry.actor, actor)
    if spec.absences:
      own = Anchor(row, carry.actor.recurrent_state)
      carry = carry._replace(anchor=_newer(own, carry.anchor))
    environment, timestep, results = step(carry.environment, action)
    carry, statistics = _advance(carry, environment, timestep, actor)
    return carry, (row, (*statistics, results))

  # The state before the first timestep, from which the learner unrolls.
  recurrent_state, anchor = state.actor.recurrent_state, state.anchor
  state, (rows, statistics) = jax.lax.scan(act, state, length=num_steps)
  timesteps, previous_actions, logits, seeds, values = rows
  last_action = acting.previous_action_of(state.timestep, state.actor.action)
  # The last timestep's action is chosen in the next rollout, its value here.
  _, last = select_action(variables, state.timestep, state.actor)
  trajectory = types.Trajectory(
    timestep=_append(timesteps, state.timestep),
    previous_action=_append(previous_actions, last_action),
    logits=logits,
    recurrent_state=recurrent_state,
    seed=_append(seeds, state.actor.seed),
    value=_append(values, last.value),
  )
  fields = validation.make_fields(spec)
  faults = validation.find_faults(fields, trajectory.timestep)
  if spec.absences:
    trajectory = _without_absences(trajectory, anchor)
  moved, ended, returns, lengths, results = statistics
  return (
    state,
    trajectory,
    Episodes(moved, ended, returns, lengths, results, faults),
  )


def _newer(own: Anchor, before: Anchor) -> Anchor:
  """Returns `own` for the seats that are not absent, else the one before."""
  is_absent = own.row[0].step_type == types.ABSENT
  newer: Anchor = trees.where_rows(is_absent, before, own)
  return newer


def _without_absences(
  trajectory: types.Trajectory, anchor: Anchor
) -> types.Trajectory:
  """Begins a trajectory with a decision and leaves absent timesteps out."""
  fields = trajectory._replace(recurrent_state=())
  order = (0, 1, 2, 4, 5)  # Of the fields of a row.
  rows = [jax.tree.map(lambda leaf: leaf[0], fields[i]) for i in order]
  first = _newer(Anchor(tuple(rows), trajectory.recurrent_state), anchor)
  timestep, previous_action, logits, seed, value = (
    jax.tree.map(lambda leaf, row: leaf.at[0].set(row), fields[i], row)
    for i, row in zip(order, first.row, strict=True)
  )
  return trajectories.compact(
    types.Trajectory(
      timestep, previous_action, logits, first.recurrent_state, seed, value
    )
  )


def _advance(
  state: RolloutState,
  environment: Any,
  timestep: dm_env.TimeStep,
  actor: types.ActorState,
) -> tuple[RolloutState, tuple[types.Array, ...]]:
  """Adds `timestep` to the running sums of its episode.

  Returns:
    The next state, and the fields of `Episodes` before `results`.
  """
  # A reset brings no reward and is not an action.
  moved = state.timestep.step_type < types.LAST
  returns = state.episode_return + timestep.reward
  lengths = state.episode_length + moved
  # A seat that is out when its game ends repeats `LAST`.
  ended = (timestep.step_type == types.LAST) & (lengths > 0)
  after = RolloutState(
    environment=environment,
    timestep=timestep,
    actor=actor,
    anchor=state.anchor,
    episode_return=jnp.where(trees.align(ended, returns), 0.0, returns),
    episode_length=jnp.where(ended, 0, lengths),
  )
  return after, (moved, ended, returns, lengths)


def _zero_at_last(
  timestep: dm_env.TimeStep, logits: types.ArrayTree
) -> types.ArrayTree:
  """Zeroes logits [B, num_actions] at the last timesteps of episodes."""
  ended = timestep.step_type == types.LAST
  return jax.tree.map(
    lambda leaf: jnp.where(trees.align(ended, leaf), 0.0, leaf), logits
  )


def _append(rows: types.ArrayTree, last: types.ArrayTree) -> types.ArrayTree:
  """Appends `last` [B, ...] to `rows` [T, B, ...]."""
  return jax.tree.map(
    lambda leaf, end: jnp.concatenate([leaf, end[None]]), rows, last
  )
