"""The position of a local run: its state besides the population.

A resumed run of JAX games continues bit for bit. Checkpoints hold the last
moment at which every trajectory had been learned from, when only games, actors
and tables have to be saved.
"""

from typing import Any, NamedTuple

import numpy as np

from ftwax import types
from ftwax.agents.actor_critic import replays
from ftwax.replay import local_replay
from ftwax.runtime import generations, run_records
from ftwax.runtime.local import arena as arena_lib
from ftwax.runtime.local import coordinator as coordinator_lib
from ftwax.runtime.local import game_loop, members


class Position(NamedTuple):
  """State of a run besides its population.

  Attributes:
    arena: games in progress.
    actors: state of each member's actor.
    tables: each member's tables for auxiliary tasks; empty with Reverb.
    sums: statistics of the current round so far.
    has_ended: bool [], whether any round has ended before.
    round_step: int64 []; see `game_loop.Tick`.
  """

  arena: arena_lib.ArenaState
  actors: tuple[types.ActorState, ...]
  tables: tuple[Any, ...]
  sums: generations.RoundSums
  has_ended: types.NumpyArray
  round_step: types.NumpyArray


class Tracker:
  """Records the state of a run at moments from which it can continue."""

  def __init__(
    self,
    arena: arena_lib.Arena,
    actors: members.Actors,
    member_replays: list[replays.AgentReplay],
    coordinator: coordinator_lib.Coordinator,
    items_per_step: int,
  ):
    """Stores the parts of a run.

    Args:
      arena: the games.
      actors: actors of all members.
      member_replays: replays of all members.
      coordinator: rates the members.
      items_per_step: number of trajectories of a member per update.
    """
    self._arena = arena
    self._actors = actors
    self._datasets = [replay.dataset for replay in member_replays]
    self._coordinator = coordinator
    self._items_per_step = items_per_step
    rows = coordinator.seating.seats_per_member
    # Otherwise updates happen between two moments without leftover
    # trajectories, and tables have changed since the earlier one.
    self._is_regular = rows % items_per_step == 0 or items_per_step % rows == 0
    self._noted: tuple[Any, ...] | None = None

  def note(self, round_step: int, learned: types.TrainingState) -> bool:
    """Records the present moment if the run can continue from it.

    Args:
      round_step: `round_step` of the last tick.
      learned: training states of the members.

    Returns:
      Whether it was recorded.
    """
    # `at_start` alone would allow trajectories that wait for an update.
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
    """Returns the state to save: the recorded one, or else the present one."""
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
    """Returns a position with the structure to restore; starts the games."""
    shape = self._coordinator.seating.opponents.shape
    past = self._coordinator.some_past()
    self._arena.seat(np.zeros(shape, np.int32), past)
    self._actors.observe_first(self._arena.reset())
    # A position of the right structure exists only while games run.
    self.note(0, learned)
    return self.state(learned).position

  def restore(self, position: Position) -> game_loop.Start:
    """Restores a position; returns where its round continues."""
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
