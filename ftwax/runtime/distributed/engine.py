"""Engines place the nodes of a run and carry their calls.

A node is an object that is made, and whose methods are called, in a process of
its own. Only the coordinator calls nodes; they never call each other. A call
returns references at once, and a reference can be an argument of another call:
what a node returns then goes to another node without passing through the
coordinator, where the engine can do that.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ftwax import errors

# A result that may not be there yet.
Reference = Any


class NodeLostError(errors.UserError):
  """The process of a node has ended, or its host is lost."""


class NodeFailedError(errors.UserError):
  """A node raised an error, or was lost too often."""


class Engine(Protocol):
  """Places nodes, restarts those that die, and carries calls.

  Calls of one node are executed one after the other, in their order.
  """

  def start(self, nodes: Mapping[str, Callable[[], Any]]) -> None:
    """Starts nodes.

    Args:
      nodes: makes a node, by its name: a label, or `label/index`. Called in
        the process of the node, again after each restart.
    """

  def call(
    self, name: str, method: str, *args: Any, num_returns: int = 1
  ) -> list[Reference]:
    """Calls a method of a node without waiting.

    Args:
      name: name of the node.
      method: name of the method.
      *args: its arguments; references are replaced by what they refer to.
      num_returns: number of references; with more than one, the method returns
        a tuple of as many parts.
    """

  def ping(self, name: str) -> Reference:
    """Asks for the seconds since the node's present step began, or 0."""

  def wait(
    self, references: Sequence[Reference], timeout_s: float
  ) -> list[Reference]:
    """Waits until any reference is ready; returns those that are."""

  def get(self, reference: Reference, timeout_s: float | None = None) -> Any:
    """Waits for a result and returns it.

    Raises:
      NodeFailedError: if the method raised.
      NodeLostError: if the node was lost before.
      TimeoutError: if the result is not there in time.
    """

  def replace(self, name: str) -> None:
    """Kills a node, which starts again."""

  def close(self) -> None:
    """Ends all nodes."""
