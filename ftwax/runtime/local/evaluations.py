"""Evaluations for runtimes whose actors run in Python."""

import contextlib
from collections.abc import Sequence
from typing import Any

import jax

from ftwax import types
from ftwax.agents.acme import variables
from ftwax.runtime import evaluation, prepare
from ftwax.runtime.local import arena as arena_lib
from ftwax.runtime.local import game_loop, members, seeds


class Evaluator:
  """Evaluates all members with their newest variables."""

  def __init__(
    self,
    parts: prepare.Prepared,
    sources: Sequence[variables.VariableSource],
    num_episodes: int,
    entropy: tuple[int, ...],
  ):
    """Makes games and actors for all evaluations of a run.

    Args:
      parts: the parts of the experiment.
      sources: variable source of each member; see `members.member_sources`.
      num_episodes: minimum number of episodes of each member in an evaluation.
      entropy: seeds games and actors, together with the experiment's seed.
    """
    self._name = parts.name
    self._plan = plan = evaluation.make_plan(parts, num_episodes)
    own_seeds = seeds.make_seeds((parts.seed, *entropy), plan.seating.num_games)
    key = jax.random.PRNGKey(own_seeds[0])
    games = parts.make_evaluation_games(own_seeds, parts.name)
    self._arena = arena_lib.Arena(
      games,
      plan.seating,
      list(plan.opponents.values()),
      key,
    )
    self._actors = members.make_actors(
      key,
      parts.evaluation_policy,
      sources,
      plan.seating.seats_per_member,
    )

  def run(self) -> evaluation.Outcome:
    """Plays the games of one evaluation."""
    return game_loop.play_plan(
      self._arena, self._actors, self._plan, self._name
    )

  def close(self) -> None:
    """Closes the games."""
    self._arena.close()


def evaluate(
  parts: prepare.Prepared,
  members: Sequence[types.ActorVariables],
  num_episodes: int,
) -> evaluation.Outcome:
  """Evaluates members that do not learn any more.

  Args:
    parts: the parts of the experiment.
    members: variables of each member.
    num_episodes: minimum number of episodes of each member.
  """
  sources = [_Frozen(variables) for variables in members]
  with contextlib.closing(
    Evaluator(parts, sources, num_episodes, ())
  ) as evaluator:
    return evaluator.run()


class _Frozen:
  """Variable source of a member that does not learn."""

  def __init__(self, variables: types.ActorVariables):
    """Stores the variables."""
    self._variables = variables

  def get_variables(self, names: Sequence[str]) -> list[Any]:
    """Returns the variables, once for each name."""
    return [self._variables for _ in names]
