"""The actor: plays games for all members, one trajectory at a time."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import curricula, game_vectors
from ftwax.runtime import prepare
from ftwax.runtime.device import rollout
from ftwax.runtime.distributed import engine, messages
from ftwax.runtime.local import acting, evaluations
from ftwax.runtime.local import arena as arena_lib


class Actor:
  """Plays the trajectories that the coordinator orders."""

  def __init__(
    self,
    parts: prepare.Prepared,
    num_learners: int,
    index: int,
    make_writer: Callable[..., Any] | None = None,
  ):
    """Makes no games before the first order.

    Args:
      parts: the parts of the experiment.
      num_learners: K, number of learners that share the members.
      index: index of the actor.
      make_writer: makes what passes trajectories on to the learners, in place
        of `divide`.
    """
    self._parts = parts
    self._index = index
    self._num_learners = num_learners
    self._write = functools.partial(divide, num_learners, index)
    if make_writer is not None:
      self._write = make_writer(parts)
    self._actors: acting.Actors | None = None
    self._games: Any = None
    self._seats: Any = None
    self._num_rounds = 0
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
    if order.seats is not None:
      self._seats = order.seats
    if self._seats is None:
      raise engine.NodeLostError('An actor has started again.')
    parts = self._parts
    items, fault = None, None
    episodes: rollout.Episodes | None = None
    own = acting.put(join(variables))
    arrays = acting.make_arrays(
      parts.replays.template,
      parts.experiment.population.num_members,
      parts.seating.seats_per_member,
    )
    num_steps, ends_round = 0, False
    try:
      actors = self._begin(order)
      episodes = _finish(actors.rollout(own, arrays, order.num_steps))
      num_steps = int(episodes.moved.sum())
      ends_round = actors.is_round_over(parts.experiment.steps_per_round)
      if len(episodes.moved) == parts.experiment.agent.sequence_length:
        items = self._write(
          # Learners may have other parameters when they get it.
          arrays._replace(value=None),
          own,
        )
      else:
        ends_round = False
    except _Fault as error:
      fault = str(error)
      print(f'making environments again after an error: {fault}', flush=True)
      self._num_faults += 1
      num_steps = 0 if self._actors is None else self._actors.num_steps
      self.close()
    metrics: dict[str, float] = {}
    for observer in parts.experiment.observers:
      metrics.update(observer.get_metrics())
    measured = [] if self._actors is None else self._actors.take_metrics()
    played = messages.Played(
      num_steps,
      episodes,
      ends_round,
      items is not None,
      fault,
      metrics,
      measured,
    )
    return played, *(items or [None] * self._num_learners)

  def close(self) -> None:
    """Closes the games, whatever state they are in."""
    if self._games is not None:
      try:
        self._games.close()
      except Exception as error:  # noqa: BLE001 May be what failed before.
        print(f'closing environments failed: {error}', flush=True)
    self._games = self._actors = None

  def _begin(self, order: messages.Order) -> acting.Actors:
    """Makes games if there are none; begins a round if one is ordered."""
    parts = self._parts
    has_begun = self._actors is not None
    actors = self._actors or self._make_games(order.entropy)
    actors.arena.set_parameters(order.parameters)
    if has_begun and order.seats is None:
      return actors
    if has_begun and parts.seating.is_solo:
      actors.begin_round()
      return actors
    self._num_rounds += 1
    key = jax.random.fold_in(parts.key, order.entropy[1])
    for number in (1 + self._index, self._num_rounds):
      key = jax.random.fold_in(key, number)
    actors.begin(key, self._seats)
    # Only now, since it plays on with those that have begun.
    self._actors = actors
    return actors

  def _make_games(self, entropy: tuple[int, ...]) -> acting.Actors:
    parts = self._parts
    seeds = arena_lib.make_seeds(
      (parts.experiment.seed, *entropy, self._index, self._num_faults),
      parts.seating.num_games,
    )
    try:
      games = parts.make_games(seeds, f'{parts.experiment.name}/{self._index}')
    except Exception as error:
      raise _Fault(f'{type(error).__name__}: {error}') from error
    self._games = watched = _Watched(games)
    return acting.Actors(
      parts.policy,
      arena_lib.Arena(watched, parts.seating, list(parts.opponents.values())),
      parts.experiment.observers,
      parts.experiment.fitness_metric,
    )


class Evaluator:
  """Evaluates all members."""

  def __init__(self, parts: prepare.Prepared, num_episodes: int):
    """Makes no games before the first evaluation; see `evaluations`."""
    self._parts = parts
    self._num_episodes = num_episodes
    self._evaluator: evaluations.Evaluator | None = None

  def evaluate(
    self,
    entropy: tuple[int, ...],
    parameters: curricula.Values,
    *variables: types.ActorVariables,
  ) -> Any:
    """Plays the games of an evaluation.

    Args:
      entropy: seeds games and actors, in a node that has not played yet.
      parameters: of training at the time; see `environments.curricula`.
      *variables: the newest variables of each learner's members, [n, ...].

    Returns:
      The outcome.
    """
    if self._evaluator is None:
      self._evaluator = evaluations.Evaluator(
        self._parts, self._num_episodes, entropy
      )
    return self._evaluator.run(join(variables), parameters)

  def close(self) -> None:
    """Closes the games."""
    if self._evaluator is not None:
      self._evaluator.close()


def join(trees: Sequence[Any]) -> Any:
  """Returns the members of all learners, leaves [N, ...]."""
  if len(trees) == 1:
    return trees[0]
  return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)


def divide(
  num_learners: int,
  index: int,
  trajectories: types.Trajectory,
  variables: types.ActorVariables,
) -> list[Any]:
  """Returns what each learner inserts; see `learning.Learner.insert`.

  Args:
    num_learners: K, number of learners that share the members.
    index: index of the actor.
    trajectories: leaves [T + 1 or T, N, M, ...].
    variables: of the members that wrote them.
  """
  num_updates, num_members = int(np.max(variables.steps)), len(variables.steps)
  share = num_members // num_learners
  return [
    (
      acting.take(trajectories, slice(first, first + share), -1),
      num_updates,
      index,
    )
    for first in range(0, num_members, share)
  ]


def _finish(steps: Any) -> rollout.Episodes:
  """Runs a generator to its end; returns what it returns."""
  while True:
    try:
      next(steps)
    except StopIteration as end:
      return end.value


class _Fault(RuntimeError):
  """An environment raised an error."""


class _Watched:
  """Games that say which errors are theirs.

  Attributes:
    entered_at: start of the current call, in `time.monotonic()` seconds; None
      between calls.
  """

  def __init__(self, games: game_vectors.GameVector):
    self._games = games
    self.entered_at: float | None = None

  def __getattr__(self, name: str) -> Any:
    return getattr(self._games, name)

  def reset(self) -> dm_env.TimeStep:
    """Starts all games."""
    return self._call(self._games.reset)

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps all games."""
    return self._call(self._games.step, action)

  def outcomes(self, places: Sequence[int]) -> types.NumpyArray:
    """Returns the outcomes of games that have just ended."""
    return self._call(self._games.outcomes, places)

  def episode_metrics(self, places: Sequence[int]) -> Any:
    """Returns the metrics of games that have just ended."""
    return self._call(self._games.episode_metrics, places)

  def _call(self, method: Callable[..., Any], *args: Any) -> Any:
    self.entered_at = time.monotonic()
    try:
      return method(*args)
    except Exception as error:
      raise _Fault(f'{type(error).__name__}: {error}') from error
    finally:
      self.entered_at = None
