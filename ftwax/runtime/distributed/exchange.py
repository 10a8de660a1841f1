"""Copies of members between learners: what is asked for, fetched and given.

A learner asks the keeper in a thread and fetches there, so that it learns on
meanwhile; copies are made between two updates.
"""

import collections
import itertools
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ftwax import types
from ftwax.population import copies as copies_lib
from ftwax.population import evolution
from ftwax.runtime.distributed import processes

# Seconds between two questions to the keeper.
_ASK_S = 1.0

# What is sent at a time, and how many members are kept ready to be sent.
_CHUNK_BYTES = 4 * 2**20
_MAX_OFFERS = 8


class Ready(NamedTuple):
  """Copies that a learner can make.

  Attributes:
    copies: of its members.
    heritages: of parents that other learners hold; see `copies.receive`.
  """

  copies: copies_lib.Copies
  heritages: dict[int, dict[str, Any]]


class Offers:
  """Gives away what copies of a learner's members take, in chunks."""

  def __init__(self) -> None:
    """Offers nothing yet."""
    self._offers: collections.OrderedDict[int, memoryview] = (
      collections.OrderedDict()
    )
    self._numbers = itertools.count()
    self._lock = threading.Lock()

  def offer(self, members: types.TrainingState, row: int) -> list[Any]:
    """Keeps what a member is at this moment, for `read`.

    Args:
      members: leaves [n, ...].
      row: of the member.

    Returns:
      The number of the offer, its bytes, and leaves of the member's traits.
    """
    traits, heritage = jax.device_get(
      jax.tree.map(
        lambda leaf: leaf[row],
        (evolution.traits(members), evolution.heritage(members)),
      )
    )
    content = b''.join(leaf.tobytes() for leaf in jax.tree.leaves(heritage))
    with self._lock:
      number = next(self._numbers)
      self._offers[number] = memoryview(content)
      if len(self._offers) > _MAX_OFFERS:
        self._offers.popitem(last=False)
    return [number, len(content), *jax.tree.leaves(traits)]

  def read(self, number: int, offset: int) -> types.NumpyArray | None:
    """Returns the bytes of an offer from `offset` on; None if it has expired.

    With the last bytes it ends.
    """
    with self._lock:
      content = self._offers.get(number)
      if content is None:
        return None
      end = offset + _CHUNK_BYTES
      if end >= len(content):
        del self._offers[number]
    return np.frombuffer(content[offset:end], np.uint8)


def fetch(
  peer: processes.Remote,
  member: int,
  inherited: evolution.Traits,
  members: types.TrainingState,
) -> dict[str, Any]:
  """Fetches what a copy takes from a member of another learner.

  Args:
    peer: the learner.
    member: as the population counts them.
    inherited: its traits when the copy was drawn.
    members: of the own learner, leaves [n, ...].

  Returns:
    See `evolution.heritage`.

  Raises:
    CopyError: the learner is away, or the member has changed its traits.
  """
  reply = peer.try_call('offer', member)
  if reply is None:
    raise CopyError('its learner does not answer')
  number, size, *traits = reply
  for leaf, wanted in zip(traits, jax.tree.leaves(inherited), strict=True):
    if not np.array_equal(leaf, wanted):
      raise CopyError('it has copied another meanwhile')
  chunks: list[bytes] = []
  while (offset := sum(map(len, chunks))) < size:
    chunk = peer.try_call('read_offer', number, offset)
    if chunk is None or not len(chunk):
      raise CopyError('its learner has stopped to answer')
    chunks.append(np.asarray(chunk, np.uint8).tobytes())
  return _unpack(b''.join(chunks), evolution.heritage(members))


def _unpack(content: bytes, members: dict[str, Any]) -> dict[str, Any]:
  """Returns a heritage from its bytes; `members` has leaves [n, ...]."""
  structure: Any = jax.tree.structure(members)
  rows, offset = [], 0
  for leaf in jax.tree.leaves(members):
    row = np.empty(leaf.shape[1:], leaf.dtype)
    if row.size:
      part = np.frombuffer(content, leaf.dtype, row.size, offset)
      row = part.reshape(row.shape)
    rows.append(row)
    offset += row.nbytes
  heritage: dict[str, Any] = structure.unflatten(rows)
  return heritage


class CopyError(RuntimeError):
  """A copy that cannot be made."""


class Exchange:
  """Asks the keeper what members are to copy, and fetches it, in a thread."""

  def __init__(
    self,
    keeper: processes.Remote,
    peers: Sequence[processes.Remote],
    index: int,
    stop: threading.Event,
  ):
    """Starts nothing yet.

    Args:
      keeper: of the population.
      peers: all learners of the run.
      index: of this one.
      stop: ends the thread.
    """
    self._keeper = keeper
    self._peers = peers
    self._index = index
    self._stop = stop
    self._learner: Any = None
    self._last: Any = None
    self._ready: Ready | None = None
    self._unsettled = False
    self._error: Exception | None = None

  def start(self, learner: Any, last: copies_lib.Copies) -> None:
    """Joins the keeper, and asks from now on.

    Args:
      learner: whose `state` is that of its members.
      last: copies that it has made, and saved.
    """
    self._learner, self._last = learner, last
    threading.Thread(target=self._run, name='exchange', daemon=True).start()

  def take(self) -> Ready | None:
    """Returns copies to be made; they must be saved before `settle`."""
    if self._error is not None:
      raise self._error
    return self._ready

  def settle(self) -> None:
    """Lets the keeper know that the copies taken were made, and saved."""
    assert self._ready is not None
    self._last, self._ready = self._ready.copies, None
    self._unsettled = True

  def _run(self) -> None:
    try:
      while not self._stop.wait(_ASK_S):
        self._turn()
    except Exception as error:
      self._error = error

  def _turn(self) -> None:
    """Asks the keeper once, unless there are copies to be made first."""
    if self._ready is not None:
      return
    if self._unsettled:
      leaves = jax.tree.leaves(self._last)
      if self._keeper.try_call('settle', self._index, leaves):
        self._unsettled = False
      return
    reply = self._keeper.try_call('ask', self._index)
    if reply is None:
      self._join()
    elif reply:
      self._ready = self._fetch(self._unflatten(reply))

  def _join(self) -> None:
    """Tells the keeper of the members, and takes from it what it knows."""
    traits = self._traits()
    reply = self._keeper.try_call(
      'join', self._index, jax.tree.leaves((traits, self._last))
    )
    if reply is None:
      return
    known = self._unflatten(reply)
    if all(
      jax.tree.leaves(jax.tree.map(np.array_equal, traits, known.explored))
    ):
      self._last = known
      return
    print(
      'members take the traits that the keeper knows, from copies that no'
      ' checkpoint here has.',
      flush=True,
    )
    self._ready = Ready(known, {})

  def _fetch(self, copies: copies_lib.Copies) -> Ready | None:
    """Fetches what copies take, and drops those that cannot be made."""
    num_members = len(copies.member)
    is_kept = np.ones(num_members, bool)
    heritages = {}
    for row in copies.rows:
      parent = int(copies.parent[row])
      if parent // num_members == self._index:
        continue  # Read when it is copied.
      try:
        heritages[row] = fetch(
          self._peers[parent // num_members],
          parent,
          jax.tree.map(lambda leaf, row=row: leaf[row], copies.inherited),
          self._learner.state,
        )
      except CopyError as error:
        is_kept[row] = False
        print(
          f'member {copies.member[row]} does not copy member {parent}:'
          f' {error}.',
          flush=True,
        )
    copies = copies_lib.keep(copies, is_kept, self._traits())
    return Ready(copies, heritages) if copies.rows else None

  def _unflatten(self, leaves: Sequence[types.NumpyArray]) -> copies_lib.Copies:
    structure: Any = jax.tree.structure(self._last)
    copies: copies_lib.Copies = structure.unflatten(leaves)
    return copies

  def _traits(self) -> evolution.Traits:
    traits: evolution.Traits = jax.tree.map(
      np.asarray, evolution.traits(self._learner.state)
    )
    return traits
