"""Rounds of games: members are seated, act, and are seated anew."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.host import arena as arena_lib
from ftwax.runtime.host import environment_loop


class Tick(NamedTuple):
  """One step of all games.

  Attributes:
    num_steps: actions taken.
    episodes: of single players, that ended.
    results: of games that ended.
    ends_round: whether members are seated anew after it.
  """

  num_steps: int
  episodes: Sequence[environment_loop.Episode]
  results: Sequence[arena_lib.Result]
  ends_round: bool


def play(
  arena: arena_lib.Arena,
  actors: environment_loop.Actor,
  draw_seats: Callable[[], np.ndarray],
  experiment: experiment_lib.PopulationExperimentConfig,
  environment: Any = None,
) -> Iterator[Tick]:
  """Plays for as long as ticks are asked for.

  A round takes at least `steps_per_round` steps, ends with whole trajectories,
  so that nothing is thrown away, and not before a game has ended on each place.
  In a single-agent task members keep their seats and episodes go on.

  Args:
    arena: the games.
    actors: act for all members.
    draw_seats: returns the member on each seat, int32 [G, P].
    experiment: tells the length of a round and who observes.
    environment: what is stepped, the arena itself unless given.

  Yields:
    A tick for each step of the games.
  """
  is_solo = len(arena.spec.teams) == 1
  sequence_length = experiment.builder.config.sequence_length
  loop: Iterator[environment_loop.Tick] | None = None
  while True:
    if loop is None or not is_solo:
      arena.seat(draw_seats())
      loop = environment_loop.run_loop(
        environment or arena, actors, experiment.observers
      )
    for num_steps, tick in enumerate(loop, start=1):
      ends_round = (
        num_steps >= experiment.steps_per_round
        and num_steps % sequence_length == 0
        and (is_solo or arena.all_played)
      )
      yield Tick(*tick, arena.take_results(), ends_round)
      if ends_round:
        break
