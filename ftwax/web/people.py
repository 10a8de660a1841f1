"""People in a room."""

from collections.abc import Callable, Mapping
from typing import Any

Send = Callable[[Mapping[str, Any]], None]


class RequestError(Exception):
  """A request that cannot be granted; the message is for people."""


class Person:
  """Someone in the room.

  Attributes:
    name: shown to all.
    send: sends a message to the person's page; never waits.
    sees_all: whether the whole map is shown, or what an agent sees.
    watches: the seat whose view is shown to someone without a seat.
    looks_inside: whether to tell what goes on in members.
    down: keys that are down, by their numbers in `GamePage.keys`.
    pressed: keys that went down since the last step.
    num_messages: of keys that came.
    num_heard: of these, how many the last step has taken into account.
  """

  def __init__(self, name: str, send: Send):
    self.name = name
    self.send = send
    self.sees_all = True
    self.watches = 0
    self.looks_inside = False
    self.down: set[int] = set()
    self.pressed: set[int] = set()
    self.num_messages = 0
    self.num_heard = 0
