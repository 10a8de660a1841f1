"""Evaluations in games that Python steps."""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments import absences, curricula
from ftwax.runtime import evaluation, prepare
from ftwax.runtime.local import acting
from ftwax.runtime.local import arena as arena_lib

# Steps of each game between two searches for games that never end.
_CHECK_PERIOD = 1000


class Evaluator:
  """Evaluates all members."""

  def __init__(
    self,
    parts: prepare.Prepared,
    num_episodes: int,
    entropy: tuple[int, ...],
  ):
    """Makes the games of all evaluations of a run.

    Args:
      parts: the parts of the experiment.
      num_episodes: minimum number of episodes of each member in an evaluation.
      entropy: seeds games and actors, together with the experiment's seed.
    """
    self._name = parts.experiment.name
    self._max_steps = parts.experiment.evaluation.max_num_steps
    self._fixed = dict(parts.experiment.evaluation.parameters)
    self._plan = plan = evaluation.make_plan(parts, num_episodes)
    seeds = arena_lib.make_seeds(
      (parts.experiment.seed, *entropy), plan.seating.num_games
    )
    self._key = jax.random.PRNGKey(seeds[0])
    self._arena = arena_lib.Arena(
      parts.make_evaluation_games(seeds, parts.experiment.name),
      plan.seating,
      list(plan.opponents.values()),
    )
    self._actors = acting.Actors(parts.evaluation_policy, self._arena)

  def run(
    self,
    variables: types.ActorVariables,
    parameters: curricula.Values | None = None,
  ) -> evaluation.Outcome:
    """Plays the games of one evaluation.

    Args:
      variables: the members' variables, leaves [N, ...].
      parameters: of training at the time; see `curricula`. None for those that
        the environment has by itself.
    """
    self._arena.set_parameters({**(parameters or {}), **self._fixed})
    plan = self._plan
    variables = acting.put(variables)
    self._key, key = jax.random.split(self._key)
    self._actors.begin(key, plan.seats)
    results = play(
      self._arena,
      lambda: self._actors.act(variables),
      plan.seats,
      plan.games_per_place,
      self._name,
      self._max_steps,
    )
    return evaluation.Outcome(plan, evaluation.count_results(results, plan))

  def close(self) -> None:
    """Closes the games."""
    self._arena.close()


def play(
  arena: arena_lib.Arena,
  step: Callable[[], Any],
  seats: types.NumpyArray,
  games_per_place: int,
  name: str,
  max_steps: int | None = None,
) -> list[evaluation.GameResult]:
  """Plays games that have just started, until enough have ended.

  Args:
    arena: the games.
    step: steps them once.
    seats: int32 [G, P], the player on each seat.
    games_per_place: minimum number of games at each of the `G` indices.
    name: name of the environment in messages.
    max_steps: see `evaluation.is_complete`.

  Returns:
    The results of all games that ended, in the order in which they ended, then
    those of games that never end.
  """
  num_events = arena.games.spec.num_events
  returns = np.zeros((*seats.shape, num_events), np.float32)
  lengths, num_ended = np.zeros((2, len(seats)), np.int64)
  results: list[evaluation.GameResult] = []
  period = min(_CHECK_PERIOD, max_steps or _CHECK_PERIOD)
  for num_steps in itertools.count(1):
    step()
    timestep, ended = arena.timestep, arena.ended
    step_type = timestep.step_type.reshape(seats.shape)
    returns += timestep.reward.reshape(returns.shape)
    # At `FIRST`, rewards do not count.
    returns[(step_type == types.FIRST).all(axis=1)] = 0.0
    lengths += absences.has_moved(step_type)
    if ended.any():
      found = evaluation.results_at(
        ended, seats, arena.outcomes(), returns, lengths
      )
      measured = arena.episode_metrics()
      results += [
        result._replace(metrics=own)
        for result, own in zip(found, measured, strict=True)
      ]
      returns[ended], lengths[ended] = 0.0, 0
      num_ended += ended
    if (ended.any() or num_steps % period == 0) and (
      evaluation.is_complete(
        num_ended, games_per_place, lengths, name, max_steps
      )
    ):
      break
  return results + evaluation.endless_results(
    seats, max(arena.games.spec.teams) + 1, returns, lengths, max_steps
  )


def evaluate(
  parts: prepare.Prepared,
  members: Sequence[types.ActorVariables],
  num_episodes: int,
  entropy: tuple[int, ...] = (),
) -> evaluation.Outcome:
  """Evaluates members that do not learn any more.

  Args:
    parts: the parts of the experiment.
    members: variables of each member.
    num_episodes: minimum number of episodes of each member.
    entropy: see `Evaluator`.
  """
  with contextlib.closing(Evaluator(parts, num_episodes, entropy)) as evaluator:
    return evaluator.run(
      jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    )
