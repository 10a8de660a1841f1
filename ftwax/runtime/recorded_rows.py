"""What seats saw and did in games in progress, as streams to keep.

A seat that is absent has no row in its stream: its last decision is followed by
what it saw next, with the action of that decision and all that was paid in the
meantime. Streams of a part are filled up by `LAST`, which no loss sees.
"""

from collections.abc import Sequence
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import distributions, trees, types
from ftwax.environments import games as games_lib
from ftwax.replay import trajectories


class RecordedRows:
  """Collects the steps of some seats of parallel games."""

  def __init__(self, spec: games_lib.GameSpec, seats: Sequence[int]):
    """Collects nothing yet.

    Args:
      spec: spec of each game.
      seats: indices of the seats that are kept.
    """
    self._spec = spec
    self._seats = list(seats)
    self._rows: list[tuple[Any, dm_env.TimeStep]] = []
    self._step_type: Any = None  # Of the last step.
    self._taken: Any = None  # The last decisions.
    self._present: Any = None  # The last rows that were not absent.

  def __len__(self) -> int:
    """Returns the number of steps since the last part."""
    return len(self._rows)

  def add(self, action: Any, timestep: dm_env.TimeStep) -> None:
    """Adds a step of all games.

    Args:
      action: the actions that led to it, leaves [G * P, ...]; None at the start
        of games that no action led to.
      timestep: leaves [G * P, ...].
    """
    own: dm_env.TimeStep = jax.tree.map(self._pick, timestep)
    none = distributions.no_action(
      self._spec.environment.actions, own.step_type.shape
    )
    if action is None or self._taken is None:
      self._taken = none
    else:
      has_decided = ~np.isin(self._step_type, (types.LAST, types.ABSENT))
      new = jax.tree.map(
        lambda leaf, like: self._pick(leaf).astype(like.dtype), action, none
      )
      self._taken = trees.where_rows_on_host(has_decided, new, self._taken)
    self._step_type = own.step_type
    is_first = own.step_type == types.FIRST
    previous = trees.where_rows_on_host(is_first, none, self._taken)
    self._keep((previous, own))

  def cut_off(self) -> None:
    """Ends games that nobody goes on with, as truncated episodes."""
    previous_action, timestep = self._rows.pop()
    self._step_type = np.full_like(timestep.step_type, types.LAST)
    ended = timestep._replace(step_type=self._step_type)
    self._keep((previous_action, ended))

  def take(self) -> types.Streams:
    """Returns the steps since the last part, which ends where the next begins.

    Returns:
      Leaves [L, K, ...] for K seats of all games.
    """
    actions, timesteps = zip(*self._rows, strict=True)
    previous_action, timestep = (
      jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
      for rows in (actions, timesteps)
    )
    self._rows = [self._present]
    if not (timestep.step_type == types.ABSENT).any():
      return types.Streams(timestep, previous_action)
    nothing: Any = ()
    made = trajectories.compact(
      types.Trajectory(timestep, previous_action, nothing, nothing)
    )
    # Longer than the longest of them by nothing.
    length = int((timestep.step_type != types.ABSENT).sum(axis=0).max())
    streams: types.Streams = jax.tree.map(
      lambda leaf: leaf[:length],
      types.Streams(made.timestep, made.previous_action),
    )
    return streams

  def _keep(self, row: tuple[Any, dm_env.TimeStep]) -> None:
    self._rows.append(row)
    if self._present is None:
      self._present = row
    is_absent = row[1].step_type == types.ABSENT
    self._present = trees.where_rows_on_host(is_absent, self._present, row)

  def _pick(self, leaf: Any) -> types.NumpyArray:
    """Returns the rows of the seats, [K, ...]."""
    rows = np.asarray(leaf)  # [G * P, ...]
    by_game = rows.reshape(-1, self._spec.num_players, *rows.shape[1:])
    return by_game[:, self._seats].reshape(-1, *rows.shape[1:])
