"""An engine that runs the nodes of a distributed run in one process."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ftwax.runtime import distributed


class InProcess:
  """Runs nodes in this process: each call at once, to its end.

  The order of events depends on nothing but the calls. `lose` acts as the death
  of a process.
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
  ) -> list[Any]:
    """Calls a method and waits for its end."""
    if self._lost[name]:
      self._lost[name] -= 1
      self._nodes.pop(name, None)
      error = distributed.NodeLostError(f'{name} was lost.')
      return [_Result(error=error) for _ in range(num_returns)]
    try:
      if name not in self._nodes:
        self._nodes[name] = self._makers[name]()
      values = [
        self.get(arg) if isinstance(arg, _Result) else arg for arg in args
      ]
      result = getattr(self._nodes[name], method)(*values)
    except distributed.NodeLostError as error:
      return [_Result(error=error) for _ in range(num_returns)]
    except Exception as error:  # noqa: BLE001 Raised where it is read.
      failure = distributed.NodeFailedError(
        f'{name} failed: {type(error).__name__}: {error}'
      )
      failure.__cause__ = error
      return [_Result(error=failure) for _ in range(num_returns)]
    return [
      _Result(part) for part in (result if num_returns > 1 else (result,))
    ]

  def ping(self, name: str) -> Any:
    """Answers at once."""
    del name
    return _Result(0.0)

  def wait(self, references: Sequence[Any], timeout_s: float) -> list[Any]:
    """Returns the first reference, as all are ready."""
    del timeout_s
    return list(references[:1])

  def get(self, reference: Any, timeout_s: float | None = None) -> Any:
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
