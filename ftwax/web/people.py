"""People in a room."""

from collections.abc import Callable, Mapping
from typing import Any

Send = Callable[[Mapping[str, Any]], None]


class RequestError(Exception):
  """A request that cannot be granted; the message is shown to people."""


class Person:
  """A person in the room.

  Attributes:
    name: name shown to all.
    send: sends a message to the person's page without blocking.
    sees_all: whether to show the whole map instead of an agent's view.
    watches: the seat whose view is shown to a person without a seat.
    looks_inside: whether to send internal values of members.
    down: keys that are down, as indices into `GamePage.keys`.
    pressed: keys that went down since the last step.
    num_messages: number of key messages received.
    num_heard: number of key messages taken into account by the last step.
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
