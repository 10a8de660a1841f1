"""Ray clusters whose hosts are network namespaces, for tests."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import network_namespaces
import trustme

_PORT = 6379
_START_S = 60.0
_RAY = str(pathlib.Path(sys.executable).parent / 'ray')


@dataclasses.dataclass
class Cluster:
  """A cluster.

  Attributes:
    hosts: of which the first is the head.
    environment: variables of processes that join it or connect to it.
    address: of the head.
    directory: of what Ray writes.
    seconds_to_start: that Ray took to start on all hosts.
  """

  hosts: Sequence[network_namespaces.Host]
  environment: Mapping[str, str]
  address: str
  directory: pathlib.Path
  seconds_to_start: float = 0.0

  def start(self, index: int, **resources: float) -> None:
    """Starts Ray on a host.

    Args:
      index: of the host.
      **resources: of the host, by Ray's names.
    """
    own = dict(resources)
    options = [f'--num-cpus={own.pop("CPU", 2):g}']
    if 'GPU' in own:
      options.append(f'--num-gpus={own.pop("GPU"):g}')
    if own:
      options.append(f'--resources={str(own)}'.replace("'", '"'))
    if index:
      options.append(f'--address={self.address}')
    else:
      options += ['--head', f'--port={_PORT}', '--include-dashboard=false']
      options += [f'--temp-dir={self.directory / "ray"}']
    process = self.popen(
      index,
      [
        *(_RAY, 'start', f'--node-ip-address={self.hosts[index].address}'),
        *('--object-store-memory=80000000', '--disable-usage-stats'),
        *options,
      ],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    output, _ = process.communicate(timeout=_START_S)
    assert process.returncode == 0, output

  def popen(
    self, index: int, arguments: Sequence[str], **options: Any
  ) -> subprocess.Popen:
    """Starts a program on a host, which has Ray's files for itself."""
    own = self.directory / str(index)
    own.mkdir(exist_ok=True)
    # `ip netns exec` gives each program mounts of its own.
    script = f'mount --bind {own} {self.directory / "ray"} && exec "$@"'
    return self.hosts[index].popen(
      ['sh', '-c', script, 'sh', *arguments],
      **{'env': {**self.environment, 'RAY_ADDRESS': self.address}, **options},
    )

  def stop(self, index: int) -> None:
    """Kills all processes of a host."""
    for pid in self.pids(index):
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)

  def has_process(self, index: int, name: str) -> bool:
    """Returns whether a process of a host writes or runs what has a name."""
    return any(
      name in pathlib.Path(f'/proc/{pid}/cmdline').read_text()
      for pid in self.pids(index)
    )

  def open_ports(self, index: int) -> list[int]:
    """Returns the ports of a host that others can connect to."""
    listed = self.hosts[index].run(['ss', '-Hltn'])
    ends = [line.split()[3] for line in listed.stdout.splitlines()]
    return sorted(
      {int(e.rpartition(':')[2]) for e in ends if not _is_loopback(e)}
    )

  def pids(self, index: int) -> list[int]:
    """Returns the processes of a host."""
    listed = subprocess.run(
      ['ip', 'netns', 'pids', self.hosts[index].name],
      capture_output=True,
      text=True,
      check=True,
    )
    return [int(pid) for pid in listed.stdout.split()]


def _is_loopback(end: str) -> bool:
  """Whether an end as `ss` prints it is reached over loopback alone."""
  return end.startswith(('127.', '[::1]')) or '%lo:' in end


@contextlib.contextmanager
def clusters(
  *resources: Mapping[str, float], tls: bool = True, num_others: int = 0
) -> Iterator[Cluster]:
  """Makes a cluster.

  Args:
    *resources: of each host, by Ray's names; the head comes first.
    tls: whether hosts know each other by certificates.
    num_others: hosts of the network that do not belong to the cluster.

  Yields:
    The cluster, whose hosts come before the others.
  """
  with contextlib.ExitStack() as stack:
    hosts = stack.enter_context(
      network_namespaces.hosts(len(resources) + num_others)
    )
    directory = pathlib.Path(tempfile.mkdtemp(prefix='ray-'))
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    environment = {
      **os.environ,
      # What connects from pytest's process is in no host.
      'RAY_DISABLE_DOCKER_CPU_WARNING': '1',
    }
    if tls:
      environment |= make_certificates(directory, [h.address for h in hosts])
    (directory / 'ray').mkdir()
    cluster = Cluster(
      hosts, environment, f'{hosts[0].address}:{_PORT}', directory
    )
    begin = time.monotonic()
    for index, own in enumerate(resources):
      cluster.start(index, **own)
    cluster.seconds_to_start = time.monotonic() - begin
    yield cluster


def make_certificates(
  directory: pathlib.Path, addresses: Sequence[str]
) -> dict[str, str]:
  """Makes certificates; returns the variables that name them."""
  authority = trustme.CA()
  certificate = authority.issue_cert('localhost', '127.0.0.1', *addresses)
  paths = [directory / name for name in ('ca.pem', 'cert.pem', 'key.pem')]
  authority.cert_pem.write_to_path(str(paths[0]))
  chain = certificate.cert_chain_pems
  paths[1].write_bytes(b''.join(part.bytes() for part in chain))
  certificate.private_key_pem.write_to_path(str(paths[2]))
  return {
    'RAY_USE_TLS': '1',
    'RAY_TLS_CA_CERT': str(paths[0]),
    'RAY_TLS_SERVER_CERT': str(paths[1]),
    'RAY_TLS_SERVER_KEY': str(paths[2]),
  }
