"""The replay node of a program: a learner's Reverb servers."""

from collections.abc import Sequence
from typing import Any

import launchpad as lp
from launchpad.nodes import base

from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import node_commands, nodes, shares
from ftwax.runtime.distributed import settings as settings_lib


class ReplayNode(lp.PyNode):
  """A learner's replay servers; its handle yields addresses, not clients.

  Launchpad's own node imports TensorFlow in the process that makes the program
  and does not end with the run.
  """

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    directory: str,
    settings: settings_lib.Settings,
    index: int,
    counter_handle: Any,
  ):
    """Makes the node; see `nodes.run_replay`."""
    num_servers = shares.num_servers(
      settings.num_learners, experiment.population.num_members
    )
    self._addresses = [lp.Address(f'reverb{i}') for i in range(num_servers)]
    self._port = experiment.replay_port
    if self._port is not None:
      self._port += index * num_servers
    super().__init__(
      nodes.run_replay,
      experiment,
      directory,
      settings,
      index,
      AddressesHandle(self._addresses),
      counter_handle,
    )
    for address in self._addresses:
      self.allocate_address(address)

  def create_handle(self) -> 'AddressesHandle':
    """Returns a handle that dereferences to the servers' addresses."""
    return self._track_handle(AddressesHandle(self._addresses))

  @property
  def has_fixed_ports(self) -> bool:
    """Whether the experiment sets the ports of the servers."""
    return self._port is not None

  def bind_addresses(self, **kwargs: Any) -> None:
    """Binds addresses to the experiment's ports, or to free ports."""
    if self._port is None:
      super().bind_addresses(**kwargs)
      return
    for index, address in enumerate(self._addresses):
      address.bind(node_commands.FixedPort(self._port + index))


class AddressesHandle(base.Handle):
  """Dereferences to a list of addresses `host:port`."""

  def __init__(self, addresses: Sequence[lp.Address]):
    self._addresses = addresses

  def dereference(self) -> list[str]:
    """Returns the addresses."""
    return [address.resolve() for address in self._addresses]
