"""Evaluations in games that are compiled."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ftwax import compilation, types
from ftwax.runtime import evaluation, prepare
from ftwax.runtime.device import compiled_arena, matches

# Folded into the keys of evaluations.
_EVALUATION = 1


class Evaluator:
  """Evaluates all members."""

  def __init__(self, parts: prepare.Prepared, mesh: jax.sharding.Mesh):
    """Compiles nothing yet.

    Args:
      parts: the parts of the experiment.
      mesh: devices that share the games.
    """
    self._parts = parts
    self._mesh = mesh
    # By the number of episodes.
    self._made: dict[int, tuple[evaluation.Plan, matches.Matches]] = {}

  def play(
    self,
    variables: types.ActorVariables,
    num_episodes: int,
    actor_steps: int,
    parameters: Mapping[str, Any],
  ) -> evaluation.Outcome:
    """Plays at least `num_episodes` episodes with each member.

    Args:
      variables: of the members, leaves [N, ...].
      num_episodes: minimum number of episodes of each member.
      actor_steps: progress of the run, from which all that is random follows.
      parameters: of training at the time, float32 []; see `curricula`.
    """
    own = self._parts.experiment.evaluation.parameters
    fixed = {name: np.float32(value) for name, value in own}
    parameters = {**parameters, **fixed}
    if num_episodes not in self._made:
      self._made[num_episodes] = self._make(num_episodes, variables, parameters)
    plan, games = self._made[num_episodes]
    # From the step, not from a stream of keys: evaluations do not affect
    # training, and a resumed run repeats them.
    key = jax.random.fold_in(self._parts.key, actor_steps)
    results = games.play(
      jax.random.fold_in(key, _EVALUATION),
      variables,
      plan.seats,
      plan.games_per_place,
      parameters,
    )
    return evaluation.Outcome(plan, evaluation.count_results(results, plan))

  def _make(
    self, num_episodes: int, variables: types.ActorVariables, parameters: Any
  ) -> tuple[evaluation.Plan, matches.Matches]:
    """Makes and compiles the games of evaluations of one size."""
    parts = self._parts
    plan = evaluation.make_plan(parts, num_episodes)
    assert parts.evaluation_game is not None  # See `train.make_loop`.
    arena = compiled_arena.make_arena(
      parts.evaluation_game, plan.seating, list(plan.opponents.values())
    )
    games = matches.Matches(
      arena,
      parts.evaluation_policy,
      self._mesh,
      parts.experiment.name,
      parts.experiment.evaluation.max_num_steps,
    )
    with compilation.shown(f'{parts.experiment.name}: compiling evaluations'):
      games.compile(variables, plan.seats, parameters)
    return plan, games
