"""The actor: plays games for all members, one trajectory at a time."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dm_env
import jax

from ftwax import types
from ftwax.agents.acme import variables as variables_lib
from ftwax.environments import specified
from ftwax.runtime import prepare
from ftwax.runtime.distributed import engine, messages
from ftwax.runtime.local import arena as arena_lib
from ftwax.runtime.local import evaluations, game_loop, members, seeds


class Actor:
  """Plays the trajectories that the coordinator orders."""

  def __init__(
    self,
    parts: prepare.Prepared,
    num_learners: int,
    index: int,
    make_queue: Callable[..., Any],
  ):
    """Makes neither games nor actors before the first order.

    Args:
      parts: the parts of the experiment.
      num_learners: K, number of learners that share the members.
      index: index of the actor.
      make_queue: makes what writes to the queue; see `queues`.
    """
    self._parts = parts
    self._index = index
    self._writer = make_queue(parts)
    self._variables = Variables(parts.population.num_members, num_learners)
    self._num_learners = num_learners
    self._actors: members.Actors | None = None
    self._games: _Games | None = None
    self._ticks: Iterator[game_loop.Tick] | None = None
    self._seats: Any = None
    self._num_faults = 0

  @property
  def busy_s(self) -> float:
    """Seconds since the environments' present step began, or 0."""
    began = None if self._games is None else self._games.entered_at
    return 0.0 if began is None else time.monotonic() - began

  def play(
    self, order: messages.Order, *variables: types.ActorVariables
  ) -> tuple[Any, ...]:
    """Plays until a trajectory of each game is complete, or steps run out.

    Args:
      order: what to play.
      *variables: the newest variables of each learner's members, [n, ...].

    Returns:
      The report, and for each learner the trajectories of its members.
    """
    self._variables.set(variables)
    if order.seats is not None:
      self._seats = order.seats
    if self._seats is None:
      raise engine.NodeLostError('An actor has started again.')
    played, items = self._play(order)
    share = self._parts.seating.num_members // self._num_learners
    parts: list[Any] = [
      items[first : first + share] for first in range(0, len(items), share)
    ]
    return played, *(parts or [None] * self._num_learners)

  def close(self) -> None:
    """Closes the games."""
    if self._games is not None:
      self._games.close()
    self._games = self._ticks = None

  def _play(self, order: messages.Order) -> tuple[messages.Played, list[Any]]:
    num_steps, results, ends_round = 0, [], False
    items: list[Any] = []
    fault = None
    try:
      if self._ticks is None:
        self._begin(order.entropy)
      assert self._ticks is not None
      while not items and num_steps < order.num_steps:
        tick = next(self._ticks)
        num_steps += tick.num_steps
        results += tick.results
        ends_round = tick.ends_round
        items = self._writer.take()
    except _Fault as error:
      fault = str(error)
      print(f'making environments again after an error: {fault}', flush=True)
      self._num_faults += 1
      self.close()
    metrics: dict[str, float] = {}
    for observer in self._parts.observers:
      metrics.update(observer.get_metrics())
    return messages.Played(
      num_steps, results, ends_round, bool(items), fault, metrics
    ), items

  def _begin(self, entropy: tuple[int, ...]) -> None:
    """Makes the games and, in a node that has not played yet, the actors."""
    parts = self._parts
    entropy = (*entropy, self._index, self._num_faults)
    self._games = games = _make_games(parts, entropy)
    if self._actors is None:
      key = jax.random.fold_in(parts.key, entropy[1])
      self._actors = members.make_actors(
        jax.random.fold_in(key, 1 + self._index),
        parts.policy,
        self._variables.sources,
        parts.seating.seats_per_member,
        self._writer.adders,
      )
    self._actors.reset()
    self._ticks = game_loop.play_rounds(
      games.arena, self._actors, lambda: (self._seats, ()), parts, games
    )


class Evaluator:
  """Evaluates all members."""

  def __init__(
    self,
    parts: prepare.Prepared,
    num_learners: int,
    num_episodes: int,
  ):
    """Makes no games before the first evaluation.

    Args:
      parts: the parts of the experiment.
      num_learners: K, number of learners that share the members.
      num_episodes: minimum number of episodes of each member.
    """
    self._parts = parts
    self._num_episodes = num_episodes
    self._variables = Variables(parts.population.num_members, num_learners)
    self._evaluator: evaluations.Evaluator | None = None

  def evaluate(
    self, entropy: tuple[int, ...], *variables: types.ActorVariables
  ) -> Any:
    """Plays the games of an evaluation.

    Args:
      entropy: seeds games and actors, in a node that has not played yet.
      *variables: the newest variables of each learner's members, [n, ...].

    Returns:
      The outcome.
    """
    self._variables.set(variables)
    if self._evaluator is None:
      self._evaluator = evaluations.Evaluator(
        self._parts, self._variables.sources, self._num_episodes, entropy
      )
    return self._evaluator.run()

  def close(self) -> None:
    """Closes the games."""
    if self._evaluator is not None:
      self._evaluator.close()


class Variables:
  """The variables of all members, as sources of one member each."""

  def __init__(self, num_members: int, num_learners: int):
    """Has no variables yet.

    Args:
      num_members: N.
      num_learners: K; each holds N / K consecutive members.
    """
    self._learners = [_Source() for _ in range(num_learners)]
    self.sources: list[variables_lib.VariableSource] = [
      source
      for learner in self._learners
      for source in members.member_sources(learner, num_members // num_learners)
    ]

  def set(self, variables: Sequence[types.ActorVariables]) -> None:
    """Replaces the variables of each learner, leaves [n, ...]."""
    for learner, own in zip(self._learners, variables, strict=True):
      learner.variables = own


class _Source:
  """Variable source of one learner's members."""

  variables: Any = None

  def get_variables(self, names: Sequence[str]) -> list[types.ActorVariables]:
    return [self.variables for _ in names]


class _Fault(RuntimeError):
  """An environment raised an error."""


def _make_games(parts: prepare.Prepared, entropy: tuple[int, ...]) -> '_Games':
  """Makes an arena with new games."""
  num_games = parts.seating.num_games
  own_seeds = seeds.make_seeds((parts.seed, *entropy), num_games)
  try:
    games = parts.make_games(own_seeds, f'{parts.name}/{entropy[-2]}')
  except Exception as error:
    raise _Fault(f'{type(error).__name__}: {error}') from error
  opponents = list(parts.opponents.values())
  key = jax.random.PRNGKey(own_seeds[0])
  return _Games(arena_lib.Arena(games, parts.seating, opponents, key))


class _Games(specified.Specified, dm_env.Environment):
  """An arena that says which errors are its own.

  Attributes:
    arena: the games.
    entered_at: start of the current call, in `time.monotonic()` seconds; None
      between calls.
  """

  def __init__(self, arena: arena_lib.Arena):
    super().__init__(types.make_environment_spec(arena))
    self.arena = arena
    self.num_environments = arena.num_environments
    self.entered_at: float | None = None

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timesteps of all games."""
    return self._call(self.arena.reset)

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps all games."""
    return self._call(self.arena.step, action)

  def close(self) -> None:
    """Closes all games, whatever state they are in."""
    try:
      self.arena.close()
    except Exception as error:  # noqa: BLE001 May be what failed before.
      print(f'closing environments failed: {error}', flush=True)

  def _call(self, method: Callable[..., Any], *args: Any) -> Any:
    self.entered_at = time.monotonic()
    try:
      return method(*args)
    except Exception as error:
      raise _Fault(f'{type(error).__name__}: {error}') from error
    finally:
      self.entered_at = None
