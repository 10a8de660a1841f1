"""Courier servers whose ports are closed to other machines."""

from collections.abc import Callable
from typing import Any

import launchpad as lp
from launchpad import address as lp_address
from launchpad.nodes.courier import courier_utils

from ftwax import loopback


class CourierNode(lp.CourierNode):
  """Launchpad's courier node with its port closed to other machines."""

  def __init__(
    self,
    expose: bool,
    constructor: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
  ):
    """Makes the node.

    Args:
      expose: whether to leave the port open to other machines.
      constructor: makes the object whose methods are served.
      *args: arguments of the constructor.
      **kwargs: keyword arguments of the constructor, or `courier_kwargs` of the
        server.
    """
    super().__init__(constructor, *args, **kwargs)
    self._expose = expose

  def run(self) -> None:
    """Serves until the object's `run` returns."""
    instance = self._construct_instance()
    port = lp_address.get_port_from_address(self._address.resolve())
    server = courier_utils.make_courier_server(
      instance, port=port, **self._courier_kwargs
    )
    server.Start()
    try:
      if not self._expose:
        loopback.close_to_others(port)
      instance.run()
    finally:
      server.Stop()
      server.Join()
