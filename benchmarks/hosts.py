"""Runs an experiment on one or two hosts, which are network namespaces.

    uv run --python 3.12 benchmarks/hosts.py 2 RUN_DIR experiments/catch.py

Together the hosts have three CPUs in a Ray cluster, for a learner and two
actors; of two hosts, the second one runs an actor. In the end it prints which
nodes each host ran, and the speed in the second half of the run, since in the
first half nodes start and compile. Needs root and `ip`.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from ftwax.records import loggers

ADDRESSES = ('10.79.0.1', '10.79.0.2')
CLUSTER = f'{ADDRESSES[0]}:6379'
_CPUS = {1: (3,), 2: (2, 1)}
_NUM_ATTEMPTS = 5

# Otherwise Ray waits 15 s for its agents to choose, and gives up.
_PORTS = (
  '--dashboard-agent-grpc-port=6380',
  '--dashboard-agent-listen-port=6381',
  '--runtime-env-agent-port=6382',
  '--metrics-export-port=6383',
)


def pids(host: int) -> list[int]:
  """Returns the processes of a host."""
  listed = subprocess.run(
    ['ip', 'netns', 'pids', f'ftwax-{host}'],
    capture_output=True,
    text=True,
    check=True,
  )
  return [int(pid) for pid in listed.stdout.split()]


def nodes(host: int, directory: pathlib.Path) -> dict[str, int]:
  """Returns the nodes of a run on a host, by the name of their output file."""
  found = {}
  for pid in pids(host):
    with contextlib.suppress(OSError):
      path = pathlib.Path(os.readlink(f'/proc/{pid}/fd/1'))
      if path.parent == directory / 'output':
        found[path.stem] = pid
  return found


@contextlib.contextmanager
def started(folder: pathlib.Path, num_hosts: int = 2) -> Iterator[list[str]]:
  """Makes hosts that form a Ray cluster.

  A context manager.

  Args:
    folder: folder for the files of Ray, which are removed with it.
    num_hosts: one or two.

  Yields:
    The words before a command that is to run on the first host.
  """
  names = [f'ftwax-{host}' for host in range(num_hosts)]
  token = folder / 'token'
  token.write_text('0123456789abcdef' * 4)
  token.chmod(0o600)
  os.environ.update(
    RAY_AUTH_MODE='token',
    RAY_AUTH_TOKEN_PATH=str(token),
    RAY_worker_niceness='0',
    RAY_health_check_period_ms='1000',
    RAY_health_check_timeout_ms='2000',
  )

  def ip(*words: str) -> None:
    subprocess.run(['ip', *words], check=True, stdout=subprocess.DEVNULL)

  with contextlib.ExitStack() as stack:
    for host, name in enumerate(names):
      ip('netns', 'add', name)
      stack.callback(_end, host)
      ip('-n', name, 'link', 'set', 'lo', 'up')
    first, last = names[0], names[-1]
    # A single host keeps both ends.
    ip('link', 'add', 'veth0', 'netns', first, 'type', 'veth',
       'peer', 'name', f'veth{2 - num_hosts}', 'netns', last)  # fmt: skip
    for name, address, cpus in zip(
      names, ADDRESSES, _CPUS[num_hosts], strict=False
    ):
      ip('-n', name, 'address', 'add', f'{address}/24', 'dev', 'veth0')
      ip('-n', name, 'link', 'set', 'veth0', 'up')
      head = [
        '--head', '--port=6379', '--include-dashboard=false',
        f'--temp-dir={folder / "ray"}',
      ]  # fmt: skip
      command = [
        'ip', 'netns', 'exec', name,
        sys.executable, '-m', 'ray.scripts.scripts', 'start',
        f'--node-ip-address={address}', f'--num-cpus={cpus}', *_PORTS,
        *(head if name == first else [f'--address={CLUSTER}']),
      ]  # fmt: skip
      # Ray gives up if its processes take 30 s to start, as on a busy machine.
      for _ in range(_NUM_ATTEMPTS):
        if not subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
          break
        _kill(names.index(name))
      else:
        raise RuntimeError(f'Ray does not start on {name}')
    yield ['ip', 'netns', 'exec', first]


def _kill(host: int) -> None:
  """Kills the processes of a host."""
  while found := pids(host):
    for pid in found:
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)


def _end(host: int) -> None:
  """Ends a host."""
  _kill(host)
  subprocess.run(['ip', 'netns', 'delete', f'ftwax-{host}'], check=False)


def _exit(number: int, _: Any) -> None:
  """Ends the hosts, too; a second signal would leave some."""
  signal.signal(number, signal.SIG_IGN)
  sys.exit(128 + number)


def main() -> None:
  """Runs the experiment."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('num_hosts', type=int, choices=sorted(_CPUS))
  parser.add_argument('run_dir', type=pathlib.Path)
  parser.add_argument('experiment', nargs=argparse.REMAINDER)
  arguments = parser.parse_args()
  directory = arguments.run_dir.absolute()
  signal.signal(signal.SIGTERM, _exit)
  seen: list[set[str]] = [set() for _ in range(arguments.num_hosts)]
  with contextlib.ExitStack() as stack:
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    command = [
      *stack.enter_context(started(folder, arguments.num_hosts)),
      sys.executable, *arguments.experiment, f'--run_dir={directory}',
      '--runtime=distributed', f'--cluster={CLUSTER}',
    ]  # fmt: skip
    process = subprocess.Popen(command)
    while process.poll() is None:
      for host, names in enumerate(seen):
        names.update(nodes(host, directory))
      time.sleep(1.0)
  for host, names in enumerate(seen):
    print(f'host {host} ran {", ".join(sorted(names))}')
  rows = loggers.read_jsonl(loggers.log_path(directory, 'train'))
  first, last = rows[len(rows) // 2], rows[-1]
  speed = (last['actor_steps'] - first['actor_steps']) / (
    last['seconds'] - first['seconds']
  )
  print(f'{speed:,.0f} steps/s from step {first["actor_steps"]:,} on')
  raise SystemExit(process.returncode)


if __name__ == '__main__':
  main()
