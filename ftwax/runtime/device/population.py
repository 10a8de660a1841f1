"""A population that plays and learns in one compiled function.

A round is a game on each place of the arena: members are seated anew, act,
learn from what happened on their own seats, and the results are recorded. In a
single-agent task it is so many steps, and episodes go on from round to round.

Members differ in parameters, hyperparameters and internal rewards; all else is
shared, and the population axis exists through `vmap` alone. Evolution is a call
of its own between rounds (`population.evolution.evolve` on the field
`population`).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.environments import functional
from ftwax.population import matchmaking, seating
from ftwax.population import population_config as config_lib
from ftwax.population import state as state_lib
from ftwax.runtime.device import arena as arena_lib
from ftwax.runtime.device import auxiliary_replay, loop, rollout


class PopulationLoopState(NamedTuple):
  """All that changes in a run of a population; a checkpoint holds just this.

  Attributes:
    population: members, ratings and all else that evolution reads.
    rollout: where acting is, leaves [N, M, ...].
    replay: what auxiliary tasks of each member learn from, leaves [N, ...];
      `()` if there are none that do.
    key: for seats, games and what actors draw.
  """

  population: state_lib.PopulationState
  rollout: rollout.RolloutState
  replay: Any
  key: types.Key

  @property
  def training(self) -> types.TrainingState:
    """The learners' states [N, ...]."""
    return self.population.members


class RoundReport(NamedTuple):
  """What came of a round; each is [N] but the first and the last three.

  Attributes:
    metrics: means over the updates.
    num_episodes: int32, episodes that ended on the member's seats.
    returns: float32 [N] or [N, num_events], mean over those episodes.
    lengths: float32, likewise.
    num_steps: int32, actions taken.
    num_updates: int32.
    skipped_in_a_row: int32, the most.
    seats: int32 [G, P], who sat where.
    outcome: float32 [G, num_teams] of the game on each place.
    is_played: bool [G], whether it ended.
  """

  metrics: types.Metrics
  num_episodes: types.Array
  returns: types.Array
  lengths: types.Array
  num_steps: types.Array
  num_updates: types.Array
  skipped_in_a_row: types.Array
  seats: types.Array
  outcome: types.Array
  is_played: types.Array


class PopulationLoop(NamedTuple):
  """The functions of a population on the device; jit them.

  Attributes:
    init: `(key) -> state`.
    round: `(state) -> (state, report)`; donate the state.
    sizes: of an iteration, for one member.
    num_iterations: K, of a round.
  """

  init: Callable[[types.Key], PopulationLoopState]
  round: Callable[
    [PopulationLoopState], tuple[PopulationLoopState, RoundReport]
  ]
  sizes: loop.Sizes
  num_iterations: int


class _Static(NamedTuple):
  arena: arena_lib.Arena
  actor: types.ActorCore
  learner: types.LearnerCore
  replay: auxiliary_replay.AuxiliaryReplay | None
  config: config_lib.PopulationConfig
  sizes: loop.Sizes
  num_iterations: int


def make_population_loop(
  game: functional.FunctionalGame,
  actor: types.ActorCore,
  learner: types.LearnerCore,
  config: config_lib.PopulationConfig,
  agent_config: Any,
  *,
  sources: frozenset[str] = frozenset(),
  has_convolutions: bool = False,
  num_games: int,
  num_iterations: int,
) -> PopulationLoop:
  """Makes the functions of a population.

  Args:
    game: what is played; of a single-agent task `functional.as_game`.
    actor: acts for each member.
    learner: learns for each member.
    config: of the population.
    agent_config: an `ActorCriticConfig`, which tells sizes.
    sources: what auxiliary tasks learn from.
    has_convolutions: see `loop.make_sizes`.
    num_games: G, games side by side.
    num_iterations: K, so that a game of teams ends within a round: at least
      its length divided by the steps of an iteration.

  Returns:
    The functions.

  Raises:
    ValueError: if the game's players are not those of the config, or seats,
      members and batches do not fit.
  """
  num_players = len(game.teams)
  seating.check_teams(game.teams, config)
  num_seats = seating.seats_per_member(
    config.num_members, num_games, num_players
  )
  sizes = loop.make_sizes(
    game.spec,
    agent_config.sequence_length,
    num_seats,
    agent_config.batch_size,
    has_convolutions,
  )
  arena = arena_lib.Arena(
    functional.vectorize(game, num_games), num_games, config.num_members
  )
  replay = auxiliary_replay.make_auxiliary_replay(
    sources, agent_config, game.spec, actor, num_seats
  )
  static = _Static(arena, actor, learner, replay, config, sizes, num_iterations)
  return PopulationLoop(
    init=functools.partial(_init, static),
    round=functools.partial(_round, static),
    sizes=sizes,
    num_iterations=num_iterations,
  )


def _init(static: _Static, key: types.Key) -> PopulationLoopState:
  population_key, start_key, replay_key, key = jax.random.split(key, 4)
  population = state_lib.init(
    population_key, static.learner.init, static.config
  )
  rollout_state = _start(static, start_key, population.ratings)
  replay_state: Any = ()
  if static.replay is not None:
    replay_state = jax.vmap(static.replay.init)(
      jax.random.split(replay_key, static.config.num_members)
    )
  return PopulationLoopState(population, rollout_state, replay_state, key)


def _start(
  static: _Static, key: types.Key, ratings: types.Array
) -> rollout.RolloutState:
  """Seats members and starts all games."""
  arena, config = static.arena, static.config
  seats_key, games_key, actor_key = jax.random.split(key, 3)
  seats = seating.draw_seats(
    seats_key,
    matchmaking.log_density(ratings, config.matchmaking_deviation),
    arena.num_games,
    arena.num_players,
  )
  arena_state, timestep = arena.reset(games_key, seats)
  init = functools.partial(
    static.actor.init, batch_size=static.sizes.num_environments
  )
  actor_state = jax.vmap(init)(jax.random.split(actor_key, config.num_members))
  return rollout.start(arena_state, timestep, actor_state)


def _round(
  static: _Static, state: PopulationLoopState
) -> tuple[PopulationLoopState, RoundReport]:
  """Seats members, lets them play and learn, and records the results."""
  start_key, key = jax.random.split(state.key)
  population, rollout_state = state.population, state.rollout
  if static.arena.num_players > 1:
    rollout_state = _start(static, start_key, population.ratings)
  loop_state, report = loop.repeat(
    static.arena.step,
    jax.vmap(static.actor.select_action),
    _make_learn(static),
    static.sizes,
    static.num_iterations,
    loop.LoopState(population.members, rollout_state, state.replay),
  )
  population = population._replace(members=loop_state.training)
  arena_state = loop_state.rollout.environment
  seats = static.arena.seats(arena_state)
  population = _record(static, population, seats, arena_state, report.episodes)
  state = PopulationLoopState(
    population, loop_state.rollout, loop_state.replay, key
  )
  return state, _summarize(report, seats, arena_state)


def _make_learn(static: _Static) -> loop.Learn:
  """Returns what does the updates of all members, each from its own seats."""
  learn = loop.make_learn(static.learner, static.replay, static.sizes)
  # Leaves are [R, T, N, M, ...], but those of the recurrent state [R, N, M].
  members = types.Trajectory(2, 2, 2, 1)
  return jax.vmap(learn, in_axes=(0, 0, members), out_axes=(0, 0, 1))


def _record(
  static: _Static,
  population: state_lib.PopulationState,
  seats: types.Array,
  arena_state: arena_lib.ArenaState,
  episodes: rollout.Episodes,
) -> state_lib.PopulationState:
  """Records what evolution decides by."""
  if static.arena.num_players == 1:
    return _record_returns(population, episodes)
  teams = seating.as_teams(seats, static.arena.games.teams)
  # Outcomes are from -1 to 1 for each team, ratings count wins of the first.
  outcomes = 0.5 * (1.0 + arena_state.outcome[:, 0])
  return state_lib.record_games(
    population, teams, outcomes, arena_state.is_played, static.config
  )


def _record_returns(
  population: state_lib.PopulationState, episodes: rollout.Episodes
) -> state_lib.PopulationState:
  """Records the returns of a single-agent task, events weighed as by each."""

  def in_order(leaf):  # [K, R, T, N, M, ...] to [N, K * R * T * M, ...].
    leaf = jnp.moveaxis(leaf, 3, 0)
    return leaf.reshape(leaf.shape[0], -1, *leaf.shape[5:])

  returns, ended = in_order(episodes.returns), in_order(episodes.ended)
  if returns.ndim > 2:
    weights = population.members.internal_rewards
    returns = jnp.sum(returns * weights[:, None], axis=-1)
  return state_lib.record_returns(population, returns, ended)


def _summarize(
  report: loop.Report, seats: types.Array, arena_state: arena_lib.ArenaState
) -> RoundReport:
  episodes = report.episodes
  ended = episodes.ended  # [K, R, T, N, M]
  axes = (0, 1, 2, 4)
  num_episodes = jnp.sum(ended, axes, dtype=jnp.int32)

  def mean_of_ended(leaf):
    mask = ended.reshape(ended.shape + (1,) * (leaf.ndim - ended.ndim))
    total = jnp.sum(jnp.where(mask, leaf, 0), axes).astype(jnp.float32)
    count = jnp.maximum(num_episodes, 1)
    return total / count.reshape(count.shape + (1,) * (total.ndim - 1))

  updates = report.skipped_in_a_row  # [K, U, N]
  return RoundReport(
    metrics=jax.tree.map(lambda x: jnp.mean(x, (0, 1)), dict(report.metrics)),
    num_episodes=num_episodes,
    returns=mean_of_ended(episodes.returns),
    lengths=mean_of_ended(episodes.lengths),
    num_steps=jnp.sum(episodes.moved, axes, dtype=jnp.int32),
    num_updates=jnp.full(updates.shape[2:], updates[..., 0].size, jnp.int32),
    skipped_in_a_row=jnp.max(updates, axis=(0, 1)),
    seats=seats,
    outcome=arena_state.outcome,
    is_played=arena_state.is_played,
  )
