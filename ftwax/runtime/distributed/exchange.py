"""Exchanges copies of members between learners.

A learner asks the keeper and fetches parents in a thread, so it keeps learning
in the meantime. The copies themselves are made between two updates.
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

# Seconds between two calls of the keeper.
_ASK_S = 1.0

# Size of the chunks to send, and the number of members kept ready to send.
_CHUNK_BYTES = 4 * 2**20
_MAX_OFFERS = 8


class Ready(NamedTuple):
  """Copies that are ready to be made.

  Attributes:
    copies: copies of the learner's members.
    heritages: data of parents that other learners hold, by row; see
      `copies.receive`.
  """

  copies: copies_lib.Copies
  heritages: dict[int, dict[str, Any]]


class Offers:
  """Serves the data of a learner's members to be copied, in chunks."""

  def __init__(self) -> None:
    """Starts without offers."""
    self._offers: collections.OrderedDict[int, memoryview] = (
      collections.OrderedDict()
    )
    self._numbers = itertools.count()
    self._lock = threading.Lock()

  def offer(self, members: types.TrainingState, row: int) -> list[Any]:
    """Stores the current data of a member for `read`.

    Args:
      members: training states, leaves [n, ...].
      row: row of the member.

    Returns:
      The number of the offer, its size in bytes, and the leaves of the member's
      traits.
    """
    traits, heritage = jax.device_get(
      jax.tree.map(
        lambda leaf: leaf[row],
        (evolution.traits(members), evolution.heritage(members)),
      )
    )
    # One snapshot: later updates do not change what is read in parts.
    content = b''.join(leaf.tobytes() for leaf in jax.tree.leaves(heritage))
    with self._lock:
      number = next(self._numbers)
      self._offers[number] = memoryview(content)
      # A reader that died never deletes its offer.
      if len(self._offers) > _MAX_OFFERS:
        self._offers.popitem(last=False)
    return [number, len(content), *jax.tree.leaves(traits)]

  def read(self, number: int, offset: int) -> types.NumpyArray | None:
    """Returns the bytes of an offer from `offset` on; None if it has expired.

    Reading the last bytes deletes the offer.
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
  """Fetches the inheritable data of a member from another learner.

  Args:
    peer: the learner that holds the member.
    member: index of the member in the population.
    inherited: traits of the member when the copy was drawn.
    members: training states of this learner's members, leaves [n, ...].

  Returns:
    See `evolution.heritage`.

  Raises:
    CopyError: if the learner does not answer or the member's traits have
      changed.
  """
  reply = peer.try_call('offer', member)
  if reply is None:
    raise CopyError('its learner does not answer')
  number, size, *traits = reply
  # The rating that made it a parent belongs to these traits.
  for leaf, wanted in zip(traits, jax.tree.leaves(inherited), strict=True):
    if not np.array_equal(leaf, wanted):
      raise CopyError('it has copied another member in the meantime')
  chunks: list[bytes] = []
  while (offset := sum(map(len, chunks))) < size:
    chunk = peer.try_call('read_offer', number, offset)
    if chunk is None or not len(chunk):
      raise CopyError('its learner has stopped answering')
    chunks.append(np.asarray(chunk, np.uint8).tobytes())
  return _unpack(b''.join(chunks), evolution.heritage(members))


def _unpack(content: bytes, members: dict[str, Any]) -> dict[str, Any]:
  """Decodes a heritage; `members` has leaves [n, ...] of the same structure."""
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
  """A member cannot be copied."""


class Exchange:
  """Asks the keeper which members to copy and fetches them, in a thread."""

  def __init__(
    self,
    keeper: processes.Remote,
    peers: Sequence[processes.Remote],
    index: int,
    stop: threading.Event,
  ):
    """Initializes the exchange; see `start`.

    Args:
      keeper: keeper of the population.
      peers: all learners of the run.
      index: index of this learner.
      stop: event that ends the thread.
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
    """Starts the thread, which joins the keeper and then polls it.

    Args:
      learner: learner whose `state` holds the members.
      last: the last copies that it has made and saved.
    """
    self._learner, self._last = learner, last
    threading.Thread(target=self._run, name='exchange', daemon=True).start()

  def take(self) -> Ready | None:
    """Returns copies to make now, or None; `settle` them once saved."""
    if self._error is not None:
      raise self._error
    return self._ready

  def settle(self) -> None:
    """Marks the taken copies as saved, to be reported to the keeper."""
    assert self._ready is not None
    # In this order: without `_ready` the thread asks for the next copies unless
    # these are unsettled.
    self._last, self._unsettled = self._ready.copies, True
    self._ready = None

  def _run(self) -> None:
    try:
      while not self._stop.wait(_ASK_S):
        self._turn()
    except Exception as error:
      self._error = error

  def _turn(self) -> None:
    """Calls the keeper once, unless copies are waiting to be made."""
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
    """Reports the members to the keeper and adopts its record of them."""
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
      'members take their traits from the keeper, which knows of copies that no'
      ' checkpoint here contains.',
      flush=True,
    )
    # No heritages: parameters stay those of the checkpoint here.
    self._ready = Ready(known, {})

  def _fetch(self, copies: copies_lib.Copies) -> Ready | None:
    """Fetches the parents of copies and drops copies that cannot be made."""
    num_members = len(copies.member)
    is_kept = np.ones(num_members, bool)
    heritages = {}
    for row in copies.rows:
      parent = int(copies.parent[row])
      if parent // num_members == self._index:
        continue  # Held here; read when it is copied.
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
