"""Engines place the nodes of a run and carry their calls.

A node is an object that is made, and whose methods are called, in a process of
its own. Only the coordinator calls nodes; they never call each other. A call
returns references at once, and a reference can be an argument of another call:
what a node returns then goes to another node without passing through the
coordinator, where the engine can do that.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

# A result that may not be there yet.
Reference = Any


class NodeLostError(RuntimeError):
  """The process of a node has ended, or its host is lost."""


class NodeFailedError(RuntimeError):
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


class InProcess:
  """Runs nodes in this process: each call at once, to its end.

  For tests and for debugging; the order of events depends on nothing but the
  calls. `lose` acts as the death of a process.
  """

  def __init__(self) -> None:
    """Starts without nodes."""
    self._makers: dict[str, Callable[[], Any]] = {}
    self._nodes: dict[str, Any] = {}
    self._lost: collections.Counter[str] = collections.Counter()

  def start(self, nodes: Mapping[str, Callable[[], Any]]) -> None:
    """Makes the nodes."""
    self._makers.update(nodes)

  def call(
    self, name: str, method: str, *args: Any, num_returns: int = 1
  ) -> list[Reference]:
    """Calls a method and waits for its end."""
    if self._lost[name]:
      self._lost[name] -= 1
      self._nodes.pop(name, None)
      error = NodeLostError(f'{name} was lost.')
      return [_Result(error=error) for _ in range(num_returns)]
    try:
      if name not in self._nodes:
        self._nodes[name] = self._makers[name]()
      values = [
        self.get(arg) if isinstance(arg, _Result) else arg for arg in args
      ]
      result = getattr(self._nodes[name], method)(*values)
    except NodeLostError as error:
      return [_Result(error=error) for _ in range(num_returns)]
    except Exception as error:  # noqa: BLE001 Raised where it is read.
      failure = NodeFailedError(
        f'{name} failed: {type(error).__name__}: {error}'
      )
      failure.__cause__ = error
      return [_Result(error=failure) for _ in range(num_returns)]
    return [
      _Result(part) for part in (result if num_returns > 1 else (result,))
    ]

  def ping(self, name: str) -> Reference:
    """Answers at once."""
    del name
    return _Result(0.0)

  def wait(
    self, references: Sequence[Reference], timeout_s: float
  ) -> list[Reference]:
    """Returns the first reference, as all are ready."""
    del timeout_s
    return list(references[:1])

  def get(self, reference: Reference, timeout_s: float | None = None) -> Any:
    """Returns a result, or raises its error."""
    del timeout_s
    if reference.error is not None:
      raise reference.error
    return reference.value

  def lose(self, name: str) -> None:
    """Loses a node at its next call; the one after that finds a new node."""
    self._lost[name] += 1

  def replace(self, name: str) -> None:
    """Makes the node anew at its next call."""
    self._nodes.pop(name, None)

  def close(self) -> None:
    """Closes the nodes that can be closed."""
    for node in self._nodes.values():
      if hasattr(node, 'close'):
        node.close()
    self._nodes.clear()


class _Result:
  """A value or an error, compared by identity."""

  def __init__(self, value: Any = None, error: Exception | None = None):
    self.value = value
    self.error = error
