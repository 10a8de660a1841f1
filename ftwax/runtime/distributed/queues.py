"""How trajectories get from actors to a learner.

Under Ray an actor returns the trajectories of each member, which go to the
learner's functional replay. Under Launchpad it writes them to Reverb, and
returns only how many.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ftwax import compatibility, types
from ftwax.replay import gatherer, trajectories
from ftwax.runtime import prepare


class LocalWriter:
  """Gathers an actor's trajectories until they are taken."""

  def __init__(self, parts: prepare.Prepared):
    """Makes an adder for each member.

    Args:
      parts: the parts of the experiment.
    """
    replays = parts.replays
    self.adders = [
      _Gatherer(
        replays.template, parts.seating.seats_per_member, replays.options
      )
      for _ in range(parts.population.num_members)
    ]

  def take(self) -> list[Any]:
    """Returns complete trajectories of each member; empty without any."""
    taken = [adder.take() for adder in self.adders]
    # Members write at the same time.
    return [] if taken[0] is None else taken


class _Gatherer(gatherer.TrajectoryGatherer):
  """Keeps the trajectories that it gathers."""

  _gathered: trajectories.Record | None = None

  def take(self) -> trajectories.Record | None:
    gathered, self._gathered = self._gathered, None
    return gathered

  def close(self) -> None:
    """Does nothing."""

  def _write(self, record: trajectories.Record) -> None:
    self._gathered = record


class LocalQueue:
  """The members' replays in the process of their learner."""

  def __init__(
    self,
    parts: prepare.Prepared,
    keys: Sequence[types.Key],
  ):
    """Makes empty replays.

    Args:
      parts: the parts of the experiment.
      keys: random key of each member's replay.
    """
    self.datasets = parts.replays.make_local(
      keys,
      parts.seating.seats_per_member,
    )

  @property
  def size(self) -> int:
    """Number of trajectories of each member."""
    return int(self.datasets[0].queue_size)

  def insert(self, items: Sequence[trajectories.Record]) -> None:
    """Adds trajectories of each member."""
    for dataset, item in zip(self.datasets, items, strict=True):
      dataset.insert(item)

  def taken(self) -> None:
    """Is called after each batch."""


class ReverbWriter:
  """Writes an actor's trajectories to the members' Reverb servers."""

  def __init__(
    self,
    replays: Sequence[Callable[[], Sequence[str]]],
    parts: prepare.Prepared,
  ):
    """Makes an adder for each member; see `LocalWriter`.

    Args:
      replays: return the addresses of the servers of each learner's members.
      parts: the parts of the experiment.
    """
    self.adders = [
      parts.replays.make_adder(
        _connect(address),
        parts.seating.seats_per_member,
      )
      for replay in replays
      for address in replay()
    ]
    self._num_taken = 0

  def take(self) -> list[int]:
    """Returns how many trajectories each member wrote since the last call."""
    num_items = min(adder.num_items for adder in self.adders)
    num_new, self._num_taken = num_items - self._num_taken, num_items
    return [num_new] * len(self.adders) if num_new else []


class ReverbQueue:
  """Batches from the Reverb servers of a learner's members."""

  def __init__(
    self,
    replays: Sequence[Callable[[], Sequence[str]]],
    parts: prepare.Prepared,
    keys: Sequence[types.Key],
  ):
    """Starts to sample; see `LocalQueue`.

    Args:
      replays: return the addresses of the servers; one for a learner.
      parts: the parts of the experiment.
      keys: random keys, which Reverb does not need.
    """
    del keys
    self.size = 0  # Number of trajectories of each member.
    self.datasets: list[Any] = [
      parts.replays.make_dataset(_connect(address))
      for replay in replays
      for address in replay()
    ]
    self._batch_size = parts.agent.batch_size

  def insert(self, items: Sequence[int]) -> None:
    """Counts trajectories that were written for each member."""
    self.size += items[0]

  def taken(self) -> None:
    """Counts a batch that was read."""
    self.size -= self._batch_size


def _connect(address: str) -> Any:
  compatibility.require_python_310(__name__)
  import reverb

  return reverb.Client(address)
