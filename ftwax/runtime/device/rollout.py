"""Acts as a pure function: many steps of many environments in one scan.

Trajectories have the layout that the Reverb adder writes: `T + 1` consecutive
timesteps that may span the ends of episodes; the last timestep is also the
first of the next trajectory. Acting needs no gradients, so convolutions may
stay inside this scan.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import scans, trees, types
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


# What a rollout leaves beside the state.
Played = tuple[types.Trajectory, Episodes]


class Choice(NamedTuple):
  """What a trajectory holds of a choice beside its timestep, leaves [B, ...].

  The reward of the action that is chosen is in the next row.

  Attributes:
    previous_action: the action that led to the timestep.
    logits: of the action that is chosen; zero at `LAST`.
    seed: int32 [B], of the policy's noise.
    value: float32 [B], of the timestep.
  """

  previous_action: types.ArrayTree
  logits: types.ArrayTree
  seed: types.Array
  value: types.Array


class Anchor(NamedTuple):
  """The last timestep of each seat that was not `ABSENT`, leaves [B, ...].

  A trajectory that begins while a seat waits begins with it, so that the action
  taken there is learned from when its outcome is known.

  Attributes:
    timestep: the timestep.
    choice: what was chosen there.
    recurrent_state: of the actor before the timestep.
  """

  timestep: dm_env.TimeStep
  choice: Choice
  recurrent_state: types.RecurrentState


def choose(
  select_action: types.SelectAction,
  variables: types.ActorVariables,
  timestep: dm_env.TimeStep,
  actor: types.ActorState,
) -> tuple[types.ArrayTree, types.ActorState, Choice]:
  """Returns actions, the new state of the actor, and what to store of them."""
  action, after = select_action(variables, timestep, actor)
  return action, after, choice_of(timestep, actor, after)


def choice_of(
  timestep: dm_env.TimeStep, before: types.ActorState, after: types.ActorState
) -> Choice:
  """Returns what to store of a choice, given the actor's states around it.

  Args:
    timestep: leaves [B, ...] of NumPy or JAX, as those of the states.
    before: the actor's state before it.
    after: the actor's state after it.
  """
  is_last = timestep.step_type == types.LAST
  where = trees.where_rows_of(is_last)
  zeros = jax.tree.map(lambda _: 0.0, after.logits)
  return Choice(
    acting.previous_action_of(timestep, before.action, where),
    where(is_last, zeros, after.logits),
    before.seed,
    after.value,
  )


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
  return RolloutState(
    environment=environment_state,
    timestep=timestep,
    actor=actor,
    episode_return=jnp.zeros_like(timestep.reward),
    episode_length=jnp.zeros_like(timestep.step_type),
    anchor=first_anchor(timestep, actor) if absences else (),
  )


def first_anchor(timestep: dm_env.TimeStep, actor: types.ActorState) -> Anchor:
  """Returns an anchor before any choice."""
  choice = Choice(
    acting.previous_action_of(timestep, actor.action),
    actor.logits,
    actor.seed,
    actor.value,
  )
  return Anchor(timestep, choice, actor.recurrent_state)


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
    action, actor, choice = choose(
      select_action, variables, carry.timestep, carry.actor
    )
    if spec.absences:
      own = Anchor(carry.timestep, choice, carry.actor.recurrent_state)
      carry = carry._replace(anchor=newer(own, carry.anchor))
    environment, timestep, results = step(carry.environment, action)
    row = carry.timestep, choice
    carry, statistics = _advance(carry, environment, timestep, actor)
    return carry, (row, (*statistics, results))

  # The state before the first timestep, from which the learner unrolls.
  recurrent_state, anchor = state.actor.recurrent_state, state.anchor
  state, ((timesteps, choices), statistics) = scans.scan(
    act, state, length=num_steps, in_blocks=True
  )
  # The last timestep's action is chosen in the next rollout, its value here.
  _, _, last = choose(select_action, variables, state.timestep, state.actor)
  trajectory = types.Trajectory(
    timestep=_append(timesteps, state.timestep),
    previous_action=_append(choices.previous_action, last.previous_action),
    logits=choices.logits,
    recurrent_state=recurrent_state,
    seed=_append(choices.seed, last.seed),
    value=_append(choices.value, last.value),
  )
  fields = validation.make_fields(spec)
  faults = validation.find_faults(fields, trajectory.timestep)
  if spec.absences:
    trajectory = without_absences(trajectory, anchor)
  moved, ended, returns, lengths, results = statistics
  return (
    state,
    trajectory,
    Episodes(moved, ended, returns, lengths, results, faults),
  )


def newer(own: Anchor, before: Anchor) -> Anchor:
  """Returns `own` for the seats that are not absent, else the one before.

  Args:
    own: of a timestep, leaves [B, ...] of NumPy or JAX.
    before: of the timesteps before it.
  """
  is_absent = own.timestep.step_type == types.ABSENT
  newest: Anchor = trees.where_rows_of(is_absent)(is_absent, before, own)
  return newest


def without_absences(
  trajectory: types.Trajectory, anchor: Anchor
) -> types.Trajectory:
  """Begins a trajectory with a decision and leaves absent timesteps out.

  Args:
    trajectory: leaves [T + 1 or T, B, ...], of NumPy or JAX.
    anchor: of the timesteps before the trajectory.
  """
  timestep, previous_action, logits, recurrent_state, seed, value = trajectory
  rows: Any = timestep, Choice(previous_action, logits, seed, value)
  begin, chosen = trees.take(rows, 0)
  first = newer(Anchor(begin, chosen, recurrent_state), anchor)

  def replace_first(leaf: Any, row: Any) -> Any:
    xp: Any = np if isinstance(leaf, np.ndarray) else jnp
    return xp.concatenate([row[None], leaf[1:]])

  timestep, choice = jax.tree.map(
    replace_first, rows, (first.timestep, first.choice)
  )
  return trajectories.compact(
    types.Trajectory(
      timestep,
      choice.previous_action,
      choice.logits,
      first.recurrent_state,
      choice.seed,
      choice.value,
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


def _append(rows: types.ArrayTree, last: types.ArrayTree) -> types.ArrayTree:
  """Appends `last` [B, ...] to `rows` [T, B, ...]."""
  return jax.tree.map(
    lambda leaf, end: jnp.concatenate([leaf, end[None]]), rows, last
  )
