"""Makes the commands that start the nodes of a Launchpad program."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import launchpad as lp
from launchpad import context
from launchpad.nodes.python import local_multi_processing

# The supervisor, not Launchpad, kills nodes that do not end in time.
_NO_NOTICE = '--lp_termination_notice_secs=-1'

# There are many small nodes, so each gets one thread. It also gets one malloc
# arena, since short-lived threads, such as those of each save, would leave
# theirs behind half empty. These variables are read when a process starts or
# imports modules, before it is known which node it becomes.
IMPORT_ENVIRONMENT = {
  'MALLOC_ARENA_MAX': '1',
  'OMP_NUM_THREADS': '1',
  'OPENBLAS_NUM_THREADS': '1',
  'MKL_NUM_THREADS': '1',
  'TF_CPP_MIN_LOG_LEVEL': '2',
}
_CPU_ENVIRONMENT = {
  'JAX_PLATFORMS': 'cpu',
  'CUDA_VISIBLE_DEVICES': '',
  'TF_NUM_INTRAOP_THREADS': '1',
  'TF_NUM_INTEROP_THREADS': '1',
}
_CPU_XLA_FLAG = '--xla_cpu_multi_thread_eigen=false'

# Labels of nodes that use an accelerator if there is one, and the variable with
# the fraction of its memory that JAX preallocates.
_ACCELERATED = ('learner', 'inference')
_FRACTION = 'XLA_PYTHON_CLIENT_MEM_FRACTION'


def make_import_environment(directory: pathlib.Path) -> dict[str, str]:
  """Returns the environment variables of a process that imports modules.

  Nodes that are forked from it share what JAX compiles, in a folder of
  `directory`: a node that replaces a dead one, and actors of the same kind,
  need not compile again. The user's own variables of JAX take precedence.
  """
  cache = {
    'JAX_COMPILATION_CACHE_DIR': str(directory / 'compiled'),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
  }
  return {
    **IMPORT_ENVIRONMENT,
    **{name: os.environ.get(name, value) for name, value in cache.items()},
  }


class Command(NamedTuple):
  """The command that starts a node.

  Attributes:
    name: `label`, or `label/index` where there may be several nodes.
    arguments: command line of the process.
    environment: environment variables added to those of this process.
    ports: ports that the node listens on.
  """

  name: str
  arguments: Sequence[str]
  environment: Mapping[str, str]
  ports: Sequence[int] = ()


def make_environments(labels: Sequence[str]) -> dict[str, dict[str, str]]:
  """Returns the environment variables of each group of nodes.

  Nodes that need no accelerator see none. The others share its memory evenly,
  unless the user has set the fraction.
  """
  sharing = [label for label in labels if label in _ACCELERATED]
  fraction = os.environ.get(_FRACTION, f'{0.9 / max(len(sharing), 1):.3f}')
  accelerated = {**IMPORT_ENVIRONMENT, _FRACTION: fraction}
  flags = os.environ.get('XLA_FLAGS', '')  # The last flag wins.
  on_cpu = {
    **IMPORT_ENVIRONMENT,
    **_CPU_ENVIRONMENT,
    'XLA_FLAGS': f'{flags} {_CPU_XLA_FLAG}'.strip(),
  }
  return {
    label: accelerated if label in sharing else on_cpu for label in labels
  }


class Commands(NamedTuple):
  """Everything needed to start a program.

  Attributes:
    list: one command for each node.
    addresses: address of the first node with each label, if it has one.
  """

  list: list[Command]
  addresses: dict[str, str]


class FixedPort(lp.AbstractAddressBuilder):
  """Builds an address with a given port of this host."""

  def __init__(self, port: int):
    """Stores the port."""
    self._port = port

  def build(self) -> str:
    """Returns the address."""
    return f'localhost:{self._port}'


def make_commands(
  program: lp.Program,
  directory: pathlib.Path,
  pick_port: Callable[[], int] | None = None,
) -> Commands:
  """Does what `launchpad.launch` does, except for starting processes.

  Args:
    program: program with the nodes to start.
    directory: directory for the files with which Launchpad passes nodes to
      processes.
    pick_port: returns a free port; by default one of this host.
  """
  variables = make_environments(list(program.groups))
  for label, group in program.groups.items():
    config = local_multi_processing.PythonProcess(env=variables[label])
    for node in group:
      node._initialize_context(
        context.LaunchType.LOCAL_MULTI_PROCESSING, launch_config=config
      )
  for label, group in program.groups.items():
    for node in group:
      for handle in node.input_handles:
        handle.connect(node, label)
  for node in program.get_all_nodes():
    if pick_port is None or getattr(node, 'has_fixed_ports', False):
      node.bind_addresses()
    else:
      for address in node.addresses:
        address.bind(FixedPort(pick_port()))
  commands = []
  for label, group in program.groups.items():
    with _temporary_files_in(directory):
      made = group[0].to_executables(group, label, group[0].launch_context)
    for index, command in enumerate(made):
      # `counter.actor_name` has an index even for a single actor.
      is_one = len(made) == 1 and label != 'actor'
      commands.append(
        Command(
          label if is_one else f'{label}/{index}',
          [*command.command_as_list, _NO_NOTICE],
          command.env_overrides,
          [
            int(address.resolve().rpartition(':')[2])
            for address in group[index].addresses
          ],
        )
      )
  addresses = {
    label: group[0].addresses[0].resolve()
    for label, group in program.groups.items()
    if group[0].addresses
  }
  return Commands(commands, addresses)


@contextlib.contextmanager
def _temporary_files_in(directory: pathlib.Path) -> Iterator[None]:
  # Launchpad pickles nodes into temporary files and takes no directory for
  # them.
  before, tempfile.tempdir = tempfile.tempdir, str(directory)
  try:
    yield
  finally:
    tempfile.tempdir = before
