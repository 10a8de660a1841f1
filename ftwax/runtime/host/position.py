"""Where a local run is: what it needs, beside its population, to continue.

A run in games in JAX that is resumed continues bit for bit. Its checkpoints are
of the last moment at which every trajectory had been learned from, when only
games, actors and tables have to be kept.
"""

from typing import Any, NamedTuple

import numpy as np

from ftwax import types
from ftwax.agents.actor_critic.shells import replays
from ftwax.replay import local_replay
from ftwax.runtime import generations, run_records
from ftwax.runtime.host import arena as arena_lib
from ftwax.runtime.host import coordinator as coordinator_lib
from ftwax.runtime.host import game_loop, members


class Position(NamedTuple):
  """Arrays of a run beside those of its population.

  Attributes:
    arena: games under way.
    actors: state of each member's actor.
    tables: of each member, for auxiliary tasks; none of Reverb's.
    sums: of the round so far.
    has_ended: bool [], whether a round has ended before.
    round_step: int64 []; see `game_loop.Tick`.
  """

  arena: arena_lib.ArenaState
  actors: tuple[types.ActorState, ...]
  tables: tuple[Any, ...]
  sums: generations.RoundSums
  has_ended: types.NumpyArray
  round_step: types.NumpyArray


class Tracker:
  """Notes where a run is, at moments from which it can continue."""

  def __init__(
    self,
    arena: arena_lib.Arena,
    actors: members.Actors,
    made: list[replays.AgentReplay],
    coordinator: coordinator_lib.Coordinator,
    items_per_step: int,
  ):
    """Takes the parts of a run.

    Args:
      arena: the games.
      actors: of all members.
      made: their replays.
      coordinator: rates them.
      items_per_step: trajectories of a member that one update takes.
    """
    self._arena = arena
    self._actors = actors
    self._datasets = [replay.dataset for replay in made]
    self._coordinator = coordinator
    self._items_per_step = items_per_step
    rows = coordinator.seating.seats_per_member
    # Else updates come between two moments at which none is left over, and
    # tables have changed since the one before.
    self._is_regular = rows % items_per_step == 0 or items_per_step % rows == 0
    self._noted: tuple[Any, ...] | None = None

  def note(self, round_step: int, learned: types.TrainingState) -> bool:
    """Notes the present moment if the run can continue from it.

    Args:
      round_step: of the last tick.
      learned: the members' states.

    Returns:
      Whether it can.
    """
    if not (
      self._is_regular
      and self._actors.at_start
      and self._actors.num_items % self._items_per_step == 0
    ):
      return False
    arena = self._arena.save()
    if arena is None:
      return False
    moment = self._coordinator.capture()
    self._noted = moment, learned, arena, self._actors.save(), round_step
    return True

  def state(self, learned: types.TrainingState) -> run_records.RunState:
    """Returns what to save: as it was noted last, or else as it is now."""
    if self._noted is None:
      return run_records.RunState(self._coordinator.population(learned))
    moment, learned, arena, actors, round_step = self._noted
    return run_records.RunState(
      self._coordinator.population_at(moment, learned),
      Position(
        arena,
        actors,
        self._tables(),
        moment.sums,
        np.array(moment.has_ended),
        np.array(round_step, np.int64),
      ),
    )

  def template(self, learned: types.TrainingState) -> Any:
    """Returns a position to restore another one like; games start."""
    shape = self._coordinator.seating.opponents.shape
    self._arena.seat(np.zeros(shape, np.int32))
    self._actors.observe_first(self._arena.reset())
    self.note(0, learned)
    return self.state(learned).position

  def restore(self, position: Position) -> game_loop.Start:
    """Continues from a position; returns where its round goes on."""
    timestep = self._arena.restore(position.arena)
    self._actors.restore(position.actors, timestep)
    for dataset, tables in zip(self._datasets, position.tables, strict=True):
      if isinstance(dataset, local_replay.LocalReplay):
        dataset.restore(tables)
    self._coordinator.resume_round(position.sums, bool(position.has_ended))
    return game_loop.Start(timestep, int(position.round_step))

  def _tables(self) -> tuple[Any, ...]:
    return tuple(
      dataset.save() if isinstance(dataset, local_replay.LocalReplay) else ()
      for dataset in self._datasets
    )
