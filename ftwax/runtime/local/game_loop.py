"""Loops of actors in an arena, as generators.

One call acts on all seats of the members. Callers compute statistics from the
ticks.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.runtime import evaluation, play, prepare
from ftwax.runtime.local import arena as arena_lib
from ftwax.runtime.local import members

# Steps of each game between two searches for games that never end.
_CHECK_PERIOD = 1000


class Tick(NamedTuple):
  """One step of all games.

  Attributes:
    num_steps: number of members' actions; games that restarted took none.
    results: results of the games that ended.
    round_step: number of steps of each game in the round, including this one; 0
      after the step that ends the round.
  """

  num_steps: int
  results: list[evaluation.GameResult]
  round_step: int = 1

  @property
  def ends_round(self) -> bool:
    """Whether the round is over, so that members are seated again."""
    return self.round_step == 0


class Start(NamedTuple):
  """The point from which a resumed run continues.

  Attributes:
    timestep: last timesteps observed by the actors, leaves [N * M, ...].
    round_step: `round_step` of the last tick.
  """

  timestep: dm_env.TimeStep
  round_step: int


def play_rounds(
  arena: arena_lib.Arena,
  actor: members.Actors,
  draw_seats: Callable[[], tuple[types.NumpyArray, Any]],
  parts: prepare.Prepared,
  environment: Any = None,
  start: Start | None = None,
) -> Iterator[Tick]:
  """Plays rounds for as long as the caller asks for ticks.

  A round takes at least `steps_per_round` steps, ends with complete
  trajectories, so that no data is dropped, and lasts until every game has ended
  at least once. In single-seat games, members keep their seats and episodes
  continue across rounds.

  Args:
    arena: the games.
    actor: acts for all members.
    draw_seats: returns the player on each seat, int32 [G, P], and variables of
      past selves; see `past_selves.seat`.
    parts: provide observers and the length of a round.
    environment: the environment to step; by default the arena itself.
    start: where to continue, with arena and actors already restored; by default
      a new round.

  Yields:
    A tick for each step of the games.
  """
  is_solo = arena.spec.num_players == 1
  sequence_length = parts.agent.sequence_length
  loop: Iterator[Tick] | None = None
  environment = environment or arena
  round_step = 0
  if start is not None and (is_solo or start.round_step):
    round_step = start.round_step
    loop = _play(arena, actor, parts.observers, environment, start.timestep)
  while True:
    if loop is None or not (is_solo or round_step):
      arena.seat(*draw_seats())
      loop = _play(arena, actor, parts.observers, environment)
    # Leaving this loop does not close the generator: single-seat games go on.
    for num_steps, tick in enumerate(loop, start=round_step + 1):
      ends_round = (
        num_steps >= parts.steps_per_round
        and num_steps % sequence_length == 0
        and (is_solo or arena.all_played)
      )
      # The caller evolves the members at this tick, before the next seats are
      # drawn by their ratings.
      yield tick._replace(round_step=0 if ends_round else num_steps)
      if ends_round:
        break
    round_step = 0


def play_plan(
  arena: arena_lib.Arena,
  actor: members.Actors,
  plan: evaluation.Plan,
  name: str,
) -> evaluation.Outcome:
  """Plays the games of an evaluation and returns their outcome.

  Args:
    arena: the games.
    actor: acts for all members.
    plan: plan of the evaluation.
    name: name of the environment in messages.
  """
  arena.seat(plan.seats)
  arena.take_results()
  results: list[evaluation.GameResult] = []
  num_ended = np.zeros(len(plan.seats), np.int64)
  for num_steps, tick in enumerate(_play(arena, actor, (), arena), start=1):
    for result in tick.results:
      num_ended[result.place] += 1
    results += tick.results
    returns, lengths = arena.unfinished
    if (tick.results or num_steps % _CHECK_PERIOD == 0) and (
      evaluation.is_complete(num_ended, plan.games_per_place, lengths, name)
    ):
      break
  num_teams = max(plan.seating.teams) + 1
  results += evaluation.endless_results(plan.seats, num_teams, returns, lengths)
  return evaluation.Outcome(plan, evaluation.count_results(results, plan))


def _play(
  arena: arena_lib.Arena,
  actor: members.Actors,
  observers: Any,
  environment: Any,
  start: dm_env.TimeStep | None = None,
) -> Iterator[Tick]:
  """Yields a tick for each step of the games, after `start` or a reset."""
  action = jax.tree.map(
    lambda spec: np.zeros((arena.num_environments, *spec.shape), spec.dtype),
    arena.action_spec(),
  )

  def act(timestep: dm_env.TimeStep) -> types.ArrayTree:
    nonlocal action
    actor.update()
    # Where nobody decides, as in a restart, skip the network.
    if (timestep.step_type < types.LAST).any():
      action = actor.select_action(timestep.observation)
    return action

  steps = play.play(environment, act, start)
  _, timestep = next(steps)
  if start is None:
    actor.observe_first(timestep)
  for observer in observers:
    observer.observe_first(environment, timestep)
  num_steps = int(np.count_nonzero(timestep.step_type < types.LAST))
  for taken, timestep in steps:
    actor.observe(taken, timestep)
    for observer in observers:
      observer.observe(environment, timestep, taken)
    yield Tick(num_steps, arena.take_results())
    num_steps = int(np.count_nonzero(timestep.step_type < types.LAST))
