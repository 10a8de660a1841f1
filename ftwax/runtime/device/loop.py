"""Alternates acting and learning in one pure function (Hessel et al., 2021).

    iteration = rollouts with a fixed policy, then updates on their data
    call      = K iterations in one compiled function
    round     = calls between two generations

In games of several seats, members are seated anew at the start of each round.
In single-seat games, episodes continue across rounds. Every game that ends is
rated, in the order in which games end, by the call in which it ends.
Members differ in parameters, hyperparameters and internal rewards; everything
else is shared (see `sharding.over_members`). Evolution runs between rounds and
changes the field `population` (see `population.evolution`).
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import internal_rewards, trees, types
from ftwax.agents.actor_critic import learning
from ftwax.environments import episode_metrics, functional
from ftwax.population import evolution, population_config, routing
from ftwax.population import seating as seating_lib
from ftwax.population import state as state_lib
from ftwax.replay import auxiliary_replay
from ftwax.runtime import sharding
from ftwax.runtime.device import (
  compiled_arena,
  rollout,
)
from ftwax.runtime.device import sizes as sizes_lib


class Totals(NamedTuple):
  """Sums over the episodes that have ended in the current round.

  Attributes:
    num_iterations: int32 [], iterations done.
    num_episodes: int32 [N], number of seats on which an episode ended.
    returns: float32 [N, num_events], summed undiscounted returns.
    lengths: int32 [N], summed numbers of actions.
  """

  num_iterations: types.Array
  num_episodes: types.Array
  returns: types.Array
  lengths: types.Array


class LoopState(NamedTuple):
  """The complete mutable state of a run; a checkpoint holds exactly this.

  Attributes:
    population: members, ratings and everything else that evolution reads.
    rollout: environments and actors, leaves [N, M, ...].
    replay: trajectories that members or their auxiliary tasks learn from,
      leaves [N, ...]; `()` if none are needed.
    totals: statistics of the current round.
    key: random key for the seats, games and actors of later rounds.
  """

  population: state_lib.PopulationState
  rollout: rollout.RolloutState
  replay: Any
  totals: Totals
  key: types.Key

  @property
  def training(self) -> types.TrainingState:
    """The learners' states, leaves [N, ...]."""
    return self.population.members


class Report(NamedTuple):
  """Metrics and episodes of a call of `K` iterations.

  Attributes:
    metrics: metrics of each update, [K, U, N].
    episodes: episodes at each step, leaves [K, R, T, N, M].
    skipped_in_a_row: int32 [K, U, N], number of consecutive updates, up to and
      including each one, that were skipped because their gradient was not
      finite.
  """

  metrics: types.Metrics
  episodes: rollout.Episodes
  skipped_in_a_row: types.Array


@dataclasses.dataclass(frozen=True, eq=False)
class Loop:
  """The functions of a run; all methods are pure.

  Attributes:
    arena: the training games.
    actor: selects actions for one member.
    learner: updates one member.
    replay: replay of one member or its auxiliary tasks; None if they need
      none.
    config: configuration of the population.
    sizes: sizes of an iteration.
    evolve: returns the population after a generation, and its record; None for
      a population that does not evolve.
    in_turn: whether members learn one after another; see
      `sharding.takes_turns`.
    mesh: devices that share the members; see `placement.spread`.
  """

  arena: compiled_arena.Arena
  actor: types.ActorCore
  learner: types.LearnerCore
  replay: auxiliary_replay.AuxiliaryReplay | None
  config: population_config.PopulationConfig
  sizes: sizes_lib.Sizes
  evolve: evolution.Evolve | None = None
  in_turn: bool = False
  mesh: jax.sharding.Mesh | None = None

  def init(self, key: types.Key) -> LoopState:
    """Returns the initial state, at the start of a round."""
    return self.start(self.init_members(key))

  def init_members(self, key: types.Key) -> LoopState:
    """Returns the state before `start`, without a rollout."""
    population_key, replay_key, key = jax.random.split(trees.raw_key(key), 3)
    population = state_lib.init(
      population_key,
      self.learner.init,
      self.config,
      len(self.arena.router.opponents),
      self.arena.seating.team_size,
    )
    nothing: Any = ()
    return LoopState(
      population=population,
      rollout=nothing,
      replay=self.init_replay(replay_key),
      totals=self.start_totals(),
      key=key,
    )

  def init_replay(self, key: types.Key) -> Any:
    """Returns an empty replay for each member, leaves [N, ...], or `()`."""
    if self.replay is None:
      return ()
    keys = jax.random.split(key, self.config.num_members)
    return jax.vmap(self.replay.init)(keys)

  def begin_round(self, state: LoopState) -> LoopState:
    """Starts a round: draws new seats, if any, and restarts their games."""
    if self.arena.seating.is_solo:
      return state._replace(totals=self.start_totals())
    return self.start(state)

  def start(self, state: LoopState, parameters: Any = ()) -> LoopState:
    """Seats members and starts all games; replaces the rollout, if any.

    Args:
      state: before.
      parameters: of games in place of their defaults; see `curricula`.
    """
    seats_key, games_key, actor_key, key = jax.random.split(state.key, 4)
    seating, config = self.arena.seating, self.config
    log_density = config.matchmake(state.population)
    seats = seating_lib.draw_seats(seats_key, log_density, seating)
    arena_state, timestep = self.arena.reset(games_key, seats, parameters)
    init = functools.partial(self.actor.init, batch_size=self.sizes.num_rows)
    actors = jax.vmap(init)(jax.random.split(actor_key, config.num_members))
    absences = self.arena.games.spec.absences
    return state._replace(
      rollout=rollout.start(arena_state, timestep, actors, absences),
      totals=self.start_totals(),
      key=key,
    )

  def next_round(self, state: LoopState) -> tuple[LoopState, types.Array]:
    """Evolves the population, unless it never does, and starts a round.

    Returns:
      The new state; and the member that each one copied, int32 [N].
    """
    parent = jnp.arange(self.config.num_members, dtype=jnp.int32)
    if self.evolve is not None:
      population, generation = self.evolve(state.population)
      state = state._replace(population=population)
      parent = generation.parent.astype(jnp.int32)
    return self.begin_round(state), parent

  def same_round(self, state: LoopState) -> tuple[LoopState, types.Array]:
    """Returns what `next_round` does, for a round that has not ended."""
    return state, jnp.arange(self.config.num_members, dtype=jnp.int32)

  def summarize(self, state: LoopState, report: Report) -> types.Metrics:
    """Returns the metrics of a call; see `train.make_train`.

    Args:
      state: after the call.
      report: of the call.
    """
    totals = _add_up(self.start_totals(), report.episodes)
    num_episodes = totals.num_episodes
    count = jnp.where(num_episodes > 0, num_episodes, jnp.nan)
    return {
      **{
        name: jnp.mean(leaf, axis=(0, 1))  # [K, U, N] to [N].
        for name, leaf in report.metrics.items()
      },
      'episode_return': totals.returns.sum(axis=1) / count,
      'episode_length': totals.lengths / count,
      'num_episodes': num_episodes,
      'num_steps': jnp.sum(report.episodes.moved, dtype=jnp.int32),
      'rating': state.population.ratings[: self.config.num_members],
      'is_valid': ~jnp.any(report.episodes.faults),
      **self._summarize_metrics(report.episodes),
    }

  def _summarize_metrics(self, episodes: rollout.Episodes) -> types.Metrics:
    """Returns means [N] of what members' own games measured, by name."""
    if not (self.arena.seating.is_solo and episodes.results):
      return {}
    shape, axes = episodes.ended.shape, (0, 1, 2, 4)  # Not N.
    ended = episodes.results.ended.reshape(shape)
    return {
      f'{episode_metrics.PREFIX}{name}': jnp.mean(
        values.reshape(shape), axes, where=ended
      )
      for name, values in episodes.results.metrics.items()
    }

  def call(
    self,
    num_iterations: int,
    state: LoopState,
    sources: types.Sources = types.Sources(),  # noqa: B008 It is immutable.
  ) -> tuple[LoopState, Report]:
    """Runs K iterations.

    Args:
      num_iterations: K; static.
      state: before the iterations.
      sources: see `learning.learn`; all members have the same.

    Returns:
      The new state, and the metrics and episodes of all iterations.
    """
    population = state.population
    (members, rollout_state, replay), report = jax.lax.scan(
      lambda carry, _: self._iterate(*carry, sources),
      # Only what an iteration changes is carried.
      (population.members, state.rollout, state.replay),
      length=num_iterations,
    )
    match = rollout_state.environment.match
    population, totals = rate(
      self.arena.seating,
      self.config,
      population._replace(members=members),
      state.totals,
      None if match is None else match.routes.seats,
      report.episodes,
    )
    # Outcomes are recorded, and of no use to the host.
    results = report.episodes.results
    if results:
      results = results._replace(outcome=()) if results.metrics else ()
    report = report._replace(episodes=report.episodes._replace(results=results))
    return (
      state._replace(
        population=population,
        rollout=rollout_state,
        replay=replay,
        totals=totals._replace(
          num_iterations=totals.num_iterations + num_iterations
        ),
      ),
      report,
    )

  def start_totals(self) -> Totals:
    """Returns the totals at the start of a round."""
    num_events = internal_rewards.num_events(self.arena.games.spec.rewards)
    return start_totals(self.config.num_members, num_events)

  def _iterate(
    self,
    members: types.TrainingState,
    rollout_state: rollout.RolloutState,
    replay: Any,
    sources: types.Sources = types.Sources(),  # noqa: B008 It is immutable.
  ) -> tuple[tuple[types.TrainingState, rollout.RolloutState, Any], Report]:
    rollout_state, (trajectories, episodes) = self.act(members, rollout_state)
    # Leaves are [R, T, N, M, ...], those of the recurrent state [R, N, M, ...].
    update = sharding.over_members(
      functools.partial(
        learning.learn,
        self.learner,
        self.replay,
        self.sizes.num_updates,
        sources=sources,
      ),
      self.config.num_members,
      in_axes=(0, 0, types.Trajectory(2, 2, 2, 1, 2, 2)),
      out_axes=(0, 0, 1),
      in_turn=self.in_turn,
      mesh=self.mesh,
    )
    members, replay, (metrics, skipped) = update(members, replay, trajectories)
    report = Report(metrics, episodes, skipped)
    return (members, rollout_state, replay), report

  def act(
    self, members: types.TrainingState, rollout_state: rollout.RolloutState
  ) -> tuple[rollout.RolloutState, rollout.Played]:
    """Runs the rollouts of an iteration.

    Args:
      members: training states, leaves [N, ...].
      rollout_state: before the rollouts.

    Returns:
      The new rollout state; the trajectories, leaves
      [R, T + 1 or T, N, M, ...]; and their episodes, leaves [R, T, N, M].
    """
    variables = types.actor_variables(members)
    before = rollout_state.environment
    act = self.arena.over_devices(self._act)
    rollout_state, played = act(
      variables,
      rollout_state._replace(environment=self.arena.to_steps(before)),
    )
    after = self.arena.from_steps(rollout_state.environment, before)
    return rollout_state._replace(environment=after), played

  def _act(
    self,
    arena: compiled_arena.Arena,
    variables: types.ActorVariables,
    rollout_state: rollout.RolloutState,
  ) -> tuple[rollout.RolloutState, rollout.Played]:
    """Does what `act` does, in games that may be those of one device."""
    select_action = sharding.over_members(
      self.actor.select_action, arena.seating.num_members
    )

    def act(
      carry: rollout.RolloutState, _: None
    ) -> tuple[rollout.RolloutState, rollout.Played]:
      games = arena.games
      spares = functional.make_spares(games, carry.environment.games)

      def step(state: compiled_arena.ArenaState, action: Any) -> Any:
        with_spares = state.games._replace(spares=spares)
        return arena.step(state._replace(games=with_spares), action)

      carry, trajectory, episodes = rollout.rollout(
        games.spec,
        step,
        select_action,
        variables,
        carry,
        self.sizes.sequence_length,
      )
      return carry, (trajectory, episodes)

    return jax.lax.scan(act, rollout_state, length=self.sizes.num_rollouts)


def start_totals(num_members: int, num_events: int) -> Totals:
  """Returns the totals at the start of a round."""
  return Totals(
    num_iterations=jnp.int32(0),
    num_episodes=jnp.zeros((num_members,), jnp.int32),
    returns=jnp.zeros((num_members, num_events)),
    lengths=jnp.zeros((num_members,), jnp.int32),
  )


def rate(
  seating: seating_lib.Seating,
  config: population_config.PopulationConfig,
  population: state_lib.PopulationState,
  totals: Totals,
  seats: Any,
  episodes: rollout.Episodes,
) -> tuple[state_lib.PopulationState, Totals]:
  """Rates members by what was played, and adds it to the totals of the round.

  Args:
    seating: the seats of members and opponents; static.
    config: options of the population; static.
    population: before; of members, the internal rewards suffice.
    totals: before.
    seats: int32 [G, P], the player on each seat; not used in games that are not
      rated.
    episodes: leaves [K, R, T, N, M], and [K, R, T, G] in the results.
  """
  if seating.is_rated:
    results = jax.tree.map(
      lambda leaf: leaf.reshape(-1, *leaf.shape[3:]), episodes.results
    )
    population = compiled_arena.record_results(
      population, seats, results, seating.teams, config
    )
  else:
    population = _record_returns(
      population, episodes, *_fitness(seating, config, seats, episodes)
    )
  return population, _add_up(totals, episodes)


def _fitness(
  seating: seating_lib.Seating,
  config: population_config.PopulationConfig,
  seats: Any,
  episodes: rollout.Episodes,
) -> tuple[types.Array | None, float]:
  """Returns the metric that takes the place of returns, and its sign.

  Args:
    seating: see `rate`.
    config: see `rate`.
    seats: see `rate`.
    episodes: see `rate`.

  Returns:
    float32 [K, R, T, N, M], NaN where no episode ended, or None; and 1 or -1.
  """
  name, sign = episode_metrics.read_criterion('fitness', config.fitness)
  if not name:
    return None, sign
  results = episodes.results
  values = jnp.where(results.ended, results.metrics[name], jnp.nan)
  if not seating.is_solo:  # From games to the seats of each member.
    values = jnp.repeat(values, seating.num_players, axis=-1)
    values = values[..., routing.make_routes(seats).order]
  return values.reshape(episodes.ended.shape), sign


def _record_returns(
  population: state_lib.PopulationState,
  episodes: rollout.Episodes,
  measured: types.Array | None,
  sign: float,
) -> state_lib.PopulationState:
  """Records returns on all seats, weighted by members' internal rewards.

  Or, in their place, what was measured; see `_fitness`.
  """

  def in_order(leaf: types.Array) -> types.Array:
    # [K, R, T, N, M, ...] to [N, K * R * T * M, ...].
    leaf = jnp.moveaxis(leaf, 3, 0)
    return leaf.reshape(leaf.shape[0], -1, *leaf.shape[5:])

  returns, ended = in_order(episodes.returns), in_order(episodes.ended)
  if returns.ndim > 2:
    weights = population.members.internal_rewards
    returns = jnp.sum(returns * weights[:, None], axis=-1)
  if measured is not None:
    returns = in_order(measured)
    ended = jnp.isfinite(returns)
  return state_lib.record_returns(population, sign * returns, ended)


def _add_up(totals: Totals, episodes: rollout.Episodes) -> Totals:
  """Adds the ended episodes, leaves [K, R, T, N, M], to the totals."""
  ended, axes = episodes.ended, (0, 1, 2, 4)  # Not N.

  def total(leaf: types.Array) -> types.Array:
    return jnp.sum(jnp.where(trees.align(ended, leaf), leaf, 0), axes)

  returns = total(episodes.returns)
  return totals._replace(
    num_episodes=totals.num_episodes + jnp.sum(ended, axes, dtype=jnp.int32),
    # A scalar reward has no axis of events.
    returns=totals.returns + returns.reshape(totals.returns.shape),
    lengths=totals.lengths + total(episodes.lengths),
  )
