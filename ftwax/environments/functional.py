"""Environments and team games as pure JAX functions.

An environment is two functions, `reset(key) -> (state, timestep)` and
`step(state, action) -> (state, timestep)`, so it can be compiled into one loop
with the agent (called Anakin in Hessel et al., 2021, "Podracer architectures").
Both functions describe one environment, without a batch axis; runtimes use
`vectorize(environment, num_environments)`.

Timesteps are `dm_env.TimeStep`s of arrays under the conventions of
`types.Trajectory`: `step_type` int32, `reward` float32 [] or [num_events],
`discount` float32; reward 0 and discount 1 at `FIRST`; a truncated episode ends
in `LAST` with discount 1.

A game has `P` players: all leaves of its timesteps and actions get a leading
axis [P]. The step type is the same for all of them, unless `spec.absences` is
set: then each seat begins, ends and waits for itself; see `absences`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import dm_env
import jax
import jax.numpy as jnp
from dm_env import specs

from ftwax import scans, trees, types
from ftwax.environments import (
  absences,
  curricula,
  episode_metrics,
  game_pages,
  games,
  specified,
)

# A pytree of arrays that only the environment reads.
State = Any

# Returns what a state measures beside rewards, scalars by name; see
# `episode_metrics`.
Measure = Callable[[State], Mapping[str, types.Array]]

# `(key, state, player) -> action` of one player, given as an integer. A script
# may use the full state of the game.
Script = Callable[[types.Key, State, types.Array], types.ArrayTree]

Reset = Callable[..., tuple[State, dm_env.TimeStep]]
Step = Callable[[State, types.ArrayTree], tuple[State, dm_env.TimeStep]]


class FunctionalEnvironment(NamedTuple):
  """An environment of a single agent.

  Attributes:
    spec: shapes and dtypes, without a batch axis.
    reset: starts an episode, given a random key; and parameters, if it has
      any (see `curricula`).
    step: continues an episode; must not be called after `LAST`, unless the
      environment comes from `vectorize`.
    page: displays the environment in the browser; None if it cannot be shown.
    metrics: returns what the last state of an episode measures, scalars by
      name; None for nothing. See the option `metrics` of an experiment.
  """

  spec: types.EnvironmentSpec
  reset: Reset
  step: Step
  page: game_pages.GamePage | None = None
  metrics: Measure | None = None


class Display(NamedTuple):
  """Functions and labels that show a game in films and reports.

  Attributes:
    render: draws the state of one game, uint8 [H, W, 3].
    score: returns each team's score in that state, [num_teams].
    team_names: names of the teams, e.g. their colors.
    legend: labels with the RGB colors that they explain.
    look: draws what the player on a seat sees, uint8 [H, W, 3], given the state
      and the seat; None if there is no such picture.
  """

  render: Callable[[State], types.Array]
  score: Callable[[State], types.Array]
  team_names: tuple[str, ...]
  legend: tuple[tuple[str, tuple[int, int, int]], ...] = ()
  look: Callable[[State, types.Array], types.Array] | None = None


class FunctionalGame(NamedTuple):
  """A team game.

  Attributes:
    spec: shapes and dtypes of one player, without batch and player axes.
    reset: starts a game; the timestep has leaves [P, ...].
    step: continues a game, given actions [P, ...]; see `FunctionalEnvironment`.
    teams: the team of each player, length P; teams count from zero.
    event_names: names of the events that a vector reward counts, or
      ('reward',).
    outcome: returns the score of each team, float32 [num_teams]; see
      `games.GameEnvironment.outcome`. Only valid at `LAST`.
    scripts: scripted players of the game, by name; opponents in evaluations.
    display: shows a game in films and reports; None if it cannot be shown.
    page: displays a game in the browser; None to use its `display`.
    roles: the role of each player, length P; empty if there is one.
    headline: the event that logs give as the return; empty for the sum of all.
    metrics: see `FunctionalEnvironment`.
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
  roles: tuple[int, ...] = ()
  headline: str = ''
  metrics: Measure | None = None


AnyEnvironment = TypeVar(
  'AnyEnvironment', FunctionalEnvironment, FunctionalGame
)


class VectorState(NamedTuple):
  """State of `B` environments that reset automatically.

  Attributes:
    state: states of the environments, leaves [B, ...].
    is_last: bool [B], whether the last timestep was `LAST`.
    key: uint32 [B, 2], each environment's random key for its next episodes.
    owed: what seats are owed, if they may be absent; see `absences`.
    spares: from `make_spares`, or `()`, as in what `step` returns.
    parameters: float32 [B] by name, which the next episodes begin with, or
      `()`; see `curricula`.
  """

  state: State
  is_last: types.Array
  key: types.Key
  owed: Any = ()
  spares: Any = ()
  parameters: Any = ()


def restart(
  observation: types.ArrayTree, num_events: int | None = None
) -> dm_env.TimeStep:
  """Returns the `FIRST` timestep of one environment.

  Args:
    observation: the first observation.
    num_events: length of a vector reward; None for a scalar reward.
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
    reward: reward of the action, [] or [num_events].
    observation: observation after the action.
    is_terminal: whether the episode terminates: `LAST` with discount 0.
    is_truncated: whether the episode is truncated: `LAST`, with discount 1
      unless it also terminates.
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
  """Returns `B` parallel environments, which reset automatically.

  `reset(key, parameters)` starts all of them; a key of [B, 2] holds one for
  each. Parameters, numbers by name, may be left out; see `curricula`.
  `step(state, action)` takes leaves [B, ...]. Rows whose previous timestep was
  `LAST` ignore the action and return the `FIRST` timestep of a new episode.
  Each row depends only on the key and on its own actions.

  New episodes start in a loop, at most a sixteenth of the rows at a time, so a
  step pays for about as many resets as episodes have ended. The loop has no
  gradient in reverse mode. On accelerators, small resets such as CartPole's are
  made for all rows at each step instead, others ahead of it (`make_spares`).

  Args:
    environment: one environment or game.
    num_environments: `B`.

  Returns:
    An environment or game whose states, timesteps and actions have leaves
    [B, ...]; its `spec` is still that of a single environment.

  Raises:
    ValueError: if `num_environments` is not positive.
  """
  specified.check_at_least(1, 2**31 - 1, num_environments=num_environments)
  num_places = -(-num_environments // 16)
  row, padding = jnp.arange(num_environments), -num_environments % num_places
  place = row % num_places
  resets_all = scans.counts_launches() and (
    scans.num_operations(environment.reset, jax.random.PRNGKey(0)) <= 128
  )

  defaults = curricula.defaults(environment.reset)

  def reset(key: types.Key, parameters: Any = ()) -> Any:
    key = trees.raw_key(key)
    if key.ndim == 1:
      key = jax.random.split(key, num_environments)
    values: Any = ()
    if defaults:
      values = fill_parameters(defaults | dict(parameters), num_environments)
    return _start(environment, key, values)

  def step(vector_state: VectorState, action: types.ArrayTree) -> Any:
    # Rows after `LAST` are stepped as well; the result is replaced below.
    state, timestep = jax.vmap(environment.step)(vector_state.state, action)
    is_last, owed = _is_last(environment, timestep), vector_state.owed
    if environment.spec.absences:
      timestep, owed = absences.pay(owed, timestep)
    key, parameters = vector_state.key, vector_state.parameters
    stepped = (
      VectorState(state, is_last, key, owed, parameters=parameters),
      timestep,
    )
    if resets_all:
      started = _start(environment, key, parameters)
      return trees.where_rows(vector_state.is_last, started, stepped)

    def start_some(carry: Any) -> Any:
      waiting, current = carry
      # The first of each place that waits. Other rows keep their keys, so that
      # the episodes of a row do not depend on when others end.
      by_place = jnp.pad(waiting, (0, padding)).reshape(-1, num_places)
      first = by_place.argmax(axis=0) * num_places + jnp.arange(num_places)
      starts = waiting & (first[place] == row)
      own = trees.take(parameters, first)
      started = _start(environment, key[first], own)
      rows = trees.take(started, place)
      return waiting & ~starts, trees.where_rows(starts, rows, current)

    waiting = vector_state.is_last
    if vector_state.spares:
      keys, started = vector_state.spares
      # A row has another key as soon as it has started an episode.
      is_unused = (vector_state.key == keys).all(axis=-1)
      stepped = trees.where_rows(waiting & is_unused, started, stepped)
      waiting &= ~is_unused
    return scans.while_loop(
      lambda carry: carry[0].any(), start_some, (waiting, stepped)
    )[1]

  return _read_rows(environment)._replace(reset=reset, step=step)


def _read_rows(environment: AnyEnvironment) -> AnyEnvironment:
  """Returns an environment whose outcomes and metrics are those of rows."""
  vector = environment
  if isinstance(vector, FunctionalGame):
    outcome = jax.vmap(vector.outcome)
    vector = vector._replace(outcome=lambda state: outcome(state.state))
  if environment.metrics is not None:
    metrics = jax.vmap(environment.metrics)
    vector = vector._replace(metrics=lambda state: metrics(state.state))
  return vector


def choose_metrics(
  game: FunctionalGame, names: episode_metrics.Names
) -> FunctionalGame:
  """Returns a game that measures only what is asked for, or nothing.

  Args:
    game: a single game.
    names: see `episode_metrics.select`.
  """
  measure = game.metrics
  if measure is None:
    return game
  scalars = _measured_scalars(game)
  episode_metrics.Missing(names).check(scalars)
  chosen = tuple(episode_metrics.select(names, scalars))
  if not chosen:
    return game._replace(metrics=None)

  def measure_chosen(state: State) -> dict[str, types.Array]:
    measured = measure(state)
    return {name: jnp.asarray(measured[name], float) for name in chosen}

  return game._replace(metrics=measure_chosen)


def check_metric(game: FunctionalGame, field: str, name: str) -> None:
  """Raises a ValueError if a single game does not measure a scalar.

  Args:
    game: a single game.
    field: name of the option that names it, for messages.
    name: its name.
  """
  found = _measured_scalars(game)
  if name not in found:
    names = [episode_metrics.PREFIX + one for one in sorted(found)]
    raise ValueError(
      f"{field} ('{episode_metrics.PREFIX}{name}') must be a scalar that the"
      f' environment measures; choose from {[episode_metrics.RETURN, *names]}.'
    )


def _measured_scalars(game: FunctionalGame) -> dict[str, float]:
  """Returns zeros by the names of scalars that a single game measures."""
  if game.metrics is None:
    return {}
  state, _ = jax.eval_shape(game.reset, jax.random.PRNGKey(0))
  found = jax.eval_shape(game.metrics, state)
  return {name: 0.0 for name in found if found[name].shape == ()}


def make_spares(vector: AnyEnvironment, state: VectorState) -> Any:
  """Starts the next episode of each row ahead of some steps, if that is faster.

  On an accelerator the loop of a step is some 20 launches as soon as an episode
  has ended. Then it runs only for rows that end twice. Large resets would take
  longer than the loop.

  Args:
    vector: from `vectorize`.
    state: before the steps.

  Returns:
    The keys of the rows and what `reset` makes of them, for the state before
    each of the steps; or `()`.
  """
  is_faster = scans.counts_launches() and (
    scans.num_operations(vector.reset, state.key) <= 2_000
  )
  if not is_faster:
    return ()
  return state.key, vector.reset(state.key, state.parameters)


def fill_parameters(values: Any, num_rows: int) -> dict[str, types.Array]:
  """Returns parameters of rows, float32 [B], from numbers or rows by name."""
  return {
    name: jnp.broadcast_to(jnp.asarray(value, jnp.float32), (num_rows,))
    for name, value in values.items()
  }


def set_parameters(state: VectorState, values: curricula.Values) -> VectorState:
  """Returns the state of a vector whose next episodes have other parameters."""
  rows = {
    name: jnp.full_like(leaf, values.get(name, leaf))
    for name, leaf in state.parameters.items()
  }
  return state._replace(parameters=rows)


def _start(
  environment: FunctionalEnvironment | FunctionalGame,
  keys: types.Array,
  parameters: Any,
) -> tuple[VectorState, dm_env.TimeStep]:
  """Starts an episode for each of the keys [B, 2]."""
  split = jax.vmap(jax.random.split)(keys)
  next_keys, reset_keys = split[:, 0], split[:, 1]
  given = (parameters,) if parameters else ()
  state, timestep = jax.vmap(environment.reset)(reset_keys, *given)
  owed: Any = absences.start(timestep) if environment.spec.absences else ()
  is_last = _is_last(environment, timestep)
  vector_state = VectorState(
    state, is_last, next_keys, owed, parameters=parameters
  )
  return vector_state, timestep


def _is_last(
  environment: FunctionalEnvironment | FunctionalGame, timestep: dm_env.TimeStep
) -> types.Array:
  """Returns whether games are over, bool [B]."""
  step_type = timestep.step_type.reshape(timestep.step_type.shape[0], -1)
  if environment.spec.absences:
    return absences.is_over(step_type)
  # The columns are equal.
  return step_type[:, 0] == types.LAST


def see(
  environment: FunctionalEnvironment,
  view: Callable[[types.ArrayTree], types.ArrayTree],
  observations: types.SpecTree | None = None,
) -> FunctionalEnvironment:
  """Returns the environment of an agent that sees a view of observations.

  Args:
    environment: one environment, not a vector.
    view: maps an observation, without a batch axis, to what is seen.
    observations: specs of what is seen; found from `view` if None.
  """

  def show(result: tuple[State, dm_env.TimeStep]) -> Any:
    state, timestep = result
    return state, timestep._replace(observation=view(timestep.observation))

  reset = _map_reset(environment, show)
  _, first = jax.eval_shape(reset, jax.random.PRNGKey(0))
  seen = observations or array_specs(first.observation)
  return FunctionalEnvironment(
    environment.spec._replace(observations=seen),
    reset,
    lambda state, action: show(environment.step(state, action)),
    metrics=environment.metrics,
  )


def _map_reset(
  environment: FunctionalEnvironment, function: Callable[[Any], Any]
) -> Reset:
  """Returns a reset that applies a function, with the same parameters."""
  defaults = curricula.defaults(environment.reset)
  if not defaults:
    return lambda key: function(environment.reset(key))

  def reset(key: types.Key, parameters: Any = defaults) -> Any:
    own: Any = environment.reset
    return function(own(key, parameters))

  return reset


def as_game(environment: FunctionalEnvironment) -> FunctionalGame:
  """Returns the environment as a game of one player, which is always a draw."""

  def add_player(timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    return jax.tree.map(lambda leaf: leaf[None], timestep)

  def add_to(result: tuple[State, dm_env.TimeStep]) -> Any:
    state, timestep = result
    return state, add_player(timestep)

  def step(state: State, action: types.ArrayTree) -> Any:
    action = trees.take(action, 0)
    return add_to(environment.step(state, action))

  return FunctionalGame(
    spec=environment.spec,
    reset=_map_reset(environment, add_to),
    step=step,
    teams=(0,),
    event_names=games.event_names_of(environment.spec),
    outcome=lambda state: jnp.zeros((1,), jnp.float32),
    page=environment.page,
    metrics=environment.metrics,
  )


def cast_like(tree: types.ArrayTree, like: types.ArrayTree) -> types.ArrayTree:
  """Casts leaves to the dtypes of `like`, as loops over steps require."""
  return jax.tree.map(
    lambda leaf, other: jnp.asarray(trees.raw_key(leaf), other.dtype),
    tree,
    like,
  )


def array_specs(tree: types.ArrayTree) -> types.SpecTree:
  """Returns the specs of arrays or of results of `jax.eval_shape`."""
  return jax.tree.map(lambda leaf: specs.Array(leaf.shape, leaf.dtype), tree)
