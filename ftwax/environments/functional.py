"""Environments and team games as pure JAX functions.

An environment is two functions, `reset(key) -> (state, timestep)` and
`step(state, action) -> (state, timestep)`, so that it can live inside a
compiled loop beside the agent (Hessel et al., 2021, "Podracer architectures",
call this Anakin). Both describe one environment, without a batch axis; what
runs is `vectorize(environment, num_environments)`.

Timesteps are `dm_env.TimeStep`s of arrays under the conventions of
`types.Trajectory`: `step_type` int32, `reward` float32 [] or [num_events],
`discount` float32; reward 0 and discount 1 at `FIRST`; an episode that is
cut off rather than over is `LAST` with discount 1.

A game has `P` players: all leaves of its timesteps and actions get a leading
axis [P], and the step type is the same for all of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import dm_env
import jax
import jax.numpy as jnp
from dm_env import specs

from ftwax import trees, types
from ftwax.environments import game_pages

# A pytree of arrays that only the environment reads.
State = Any

# `(key, state, player) -> action` of one player, an integer, who may see all of
# the state of a game.
Script = Callable[[types.Key, State, types.Array], types.ArrayTree]

Reset = Callable[[types.Key], tuple[State, dm_env.TimeStep]]
Step = Callable[[State, types.ArrayTree], tuple[State, dm_env.TimeStep]]


class FunctionalEnvironment(NamedTuple):
  """An environment of a single agent.

  Attributes:
    spec: shapes and dtypes, without a batch axis.
    reset: starts an episode.
    step: continues one; the state must not be one at `LAST`, unless the
      environment comes from `vectorize`.
    page: how the browser shows it; None for nothing.
  """

  spec: types.EnvironmentSpec
  reset: Reset
  step: Step
  page: game_pages.GamePage | None = None


class Display(NamedTuple):
  """What films and reports show of a game.

  Attributes:
    render: draws the state of one game, uint8 [H, W, 3].
    score: returns what each team has scored in it, [num_teams].
    team_names: of the teams, e.g. their colours.
    legend: labels and the colours that they explain, red, green and blue.
  """

  render: Callable[[State], types.Array]
  score: Callable[[State], types.Array]
  team_names: tuple[str, ...]
  legend: tuple[tuple[str, tuple[int, int, int]], ...] = ()


class FunctionalGame(NamedTuple):
  """A game of teams.

  Attributes:
    spec: shapes and dtypes of one player, without batch and player axes.
    reset: starts a game; leaves of the timestep are [P, ...].
    step: continues one, given actions [P]; as in `FunctionalEnvironment`.
    teams: the team of each player, length P; teams count from zero.
    event_names: what the entries of a vector reward count, or ('reward',).
    outcome: float32 [num_teams], 1 where the team has won, 0 for a draw and
      -1 where it has lost; valid only where the timestep is `LAST`.
    scripts: scripted players of the game by name, which evaluations play
      against; the first one anchors ratings.
    display: how to show a game; None if it cannot be shown.
    page: how the browser shows a game; None for its `display`.
  """

  spec: types.EnvironmentSpec
  reset: Reset
  step: Step
  teams: tuple[int, ...]
  event_names: tuple[str, ...]
  outcome: Callable[[State], types.Array]
  scripts: Mapping[str, Script] = {}
  display: Display | None = None
  page: game_pages.GamePage | None = None


AnyEnvironment = TypeVar(
  'AnyEnvironment', FunctionalEnvironment, FunctionalGame
)


class VectorState(NamedTuple):
  """State of `B` environments that reset by themselves; leaves are [B, ...].

  Attributes:
    state: of each environment.
    is_last: bool, whether its last timestep was `LAST`.
    key: each environment's own, for its next episodes.
  """

  state: State
  is_last: types.Array
  key: types.Key


def restart(
  observation: types.ArrayTree, num_events: int | None = None
) -> dm_env.TimeStep:
  """Returns the `FIRST` timestep of one environment.

  Args:
    observation: what is seen first.
    num_events: length of a vector reward, None for a scalar one.
  """
  shape = () if num_events is None else (num_events,)
  return dm_env.TimeStep(
    jnp.asarray(dm_env.StepType.FIRST, jnp.int32),
    jnp.zeros(shape, jnp.float32),
    jnp.ones((), jnp.float32),
    observation,
  )


def transition(
  reward: types.Array,
  observation: types.ArrayTree,
  is_terminal: types.Array,
  is_truncated: types.Array | bool = False,
) -> dm_env.TimeStep:
  """Returns a `MID` or `LAST` timestep of one environment.

  Args:
    reward: of the action taken, [] or [num_events].
    observation: what is seen after it.
    is_terminal: whether the episode is over: `LAST` with discount 0.
    is_truncated: whether it is cut off here: `LAST`, with discount 1 unless it
      is over too.
  """
  is_last = jnp.logical_or(is_terminal, is_truncated)
  return dm_env.TimeStep(
    jnp.where(is_last, dm_env.StepType.LAST, dm_env.StepType.MID).astype(
      jnp.int32
    ),
    jnp.asarray(reward, jnp.float32),
    1.0 - jnp.asarray(is_terminal, jnp.float32),
    observation,
  )


def vectorize(
  environment: AnyEnvironment, num_environments: int
) -> AnyEnvironment:
  """Returns `B` environments side by side, which reset by themselves.

  `reset(key)` starts all of them; `step(state, action)` takes leaves [B, ...]
  and gives the `FIRST` timestep of a new episode, its action ignored, wherever
  the timestep before was `LAST`. Each row's stream depends on the key and on
  its own actions only.

  New episodes are drawn under a `lax.cond`, all `B` of them or none, so that
  they cost nothing in steps where no episode has ended. An outer `vmap`, of a
  population, turns the condition into a selection that pays for `B` resets at
  every step: where resets are dear, make one vector of all members'
  environments instead and give each member its rows.

  Args:
    environment: one environment or game.
    num_environments: `B`.

  Returns:
    The same kind of thing; leaves of its states, timesteps and actions are
    [B, ...], and its `spec` is still that of a single environment.

  Raises:
    ValueError: if `num_environments` is not positive.
  """
  if num_environments < 1:
    raise ValueError(
      f'num_environments ({num_environments}) must be at least 1; choose how'
      ' many environments run side by side.'
    )

  def reset(key: types.Key) -> Any:
    keys = jax.random.split(key, num_environments)
    return _start(environment, keys)

  def step(vector_state: VectorState, action: types.ArrayTree) -> Any:
    state, timestep = jax.vmap(environment.step)(vector_state.state, action)
    stepped = VectorState(state, _is_last(timestep), vector_state.key), timestep

    def with_new_episodes() -> Any:
      started = _start(environment, vector_state.key)
      return trees.where_rows(vector_state.is_last, started, stepped)

    return jax.lax.cond(
      jnp.any(vector_state.is_last), with_new_episodes, lambda: stepped
    )

  vector = environment._replace(reset=reset, step=step)
  if isinstance(vector, FunctionalGame):
    outcome = jax.vmap(vector.outcome)
    vector = vector._replace(outcome=lambda state: outcome(state.state))
  return vector


def _start(
  environment: FunctionalEnvironment | FunctionalGame, keys: types.Array
) -> tuple[VectorState, dm_env.TimeStep]:
  """Starts an episode for each of the keys [B, 2]."""
  split = jax.vmap(jax.random.split)(keys)
  next_keys, reset_keys = split[:, 0], split[:, 1]
  state, timestep = jax.vmap(environment.reset)(reset_keys)
  return VectorState(state, _is_last(timestep), next_keys), timestep


def _is_last(timestep: dm_env.TimeStep) -> types.Array:
  """Returns bool [B]; the step type is [B], or [B, P] with P equal columns."""
  num_rows = timestep.step_type.shape[0]
  return timestep.step_type.reshape(num_rows, -1)[:, 0] == types.LAST


def as_game(environment: FunctionalEnvironment) -> FunctionalGame:
  """Returns the game of one player that `environment` is; always a draw."""

  def add_player(timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    return jax.tree.map(lambda leaf: leaf[None], timestep)

  def reset(key: types.Key) -> Any:
    state, timestep = environment.reset(key)
    return state, add_player(timestep)

  def step(state: State, action: types.ArrayTree) -> Any:
    action = jax.tree.map(lambda leaf: leaf[0], action)
    state, timestep = environment.step(state, action)
    return state, add_player(timestep)

  def outcome(state: State) -> types.Array:
    del state
    return jnp.zeros((1,), jnp.float32)

  return FunctionalGame(
    spec=environment.spec,
    reset=reset,
    step=step,
    teams=(0,),
    event_names=event_names_of(environment.spec),
    outcome=outcome,
    page=environment.page,
  )


def cast_like(tree: types.ArrayTree, like: types.ArrayTree) -> types.ArrayTree:
  """Casts leaves to the dtypes of `like`, which loops over steps demand."""
  return jax.tree.map(
    lambda leaf, other: jnp.asarray(leaf, other.dtype), tree, like
  )


def array_specs(tree: types.ArrayTree) -> types.SpecTree:
  """Returns the specs of arrays or of what `jax.eval_shape` gives for them."""
  return jax.tree.map(lambda leaf: specs.Array(leaf.shape, leaf.dtype), tree)


def event_names_of(spec: types.EnvironmentSpec) -> tuple[str, ...]:
  """Returns ('reward',), or a numbered name for each entry of the reward."""
  if not spec.rewards.shape:
    return ('reward',)
  return tuple(f'event_{i}' for i in range(spec.rewards.shape[0]))
