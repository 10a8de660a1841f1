"""Kills parts of distributed runs on Ray, and prints what that cost.

    uv run --with psutil --with grpcio benchmarks/chaos.py

The task is catch with two actors. By default all scenarios run, each with a run
of its own:

    actors    a random actor is killed every 10 s, for a minute
    learner   the learner is killed
    frozen    an actor is stopped by SIGSTOP; nodes have 10 s to answer
    minute    an actor is stopped for a minute; nodes have 90 s, the default
    saving    the learner is killed while a checkpoint is written, five times
    two       two runs begin at once
    sigterm   the command gets SIGTERM
    command   the command, and so the coordinator, is killed by SIGKILL, and the
              run resumed
    tokens    strangers call Ray's ports with wrong tokens, 1,000 times a second
    host      one of two hosts, which are network namespaces, is killed: needs
              root and `ip`

A row tells how long no actor reported and no update was made, whether the log
counts as many episodes as the coordinator, and what is left 10 s after the end.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import signal
import tempfile
import threading
import time

import common
import distributed_run
import hosts
import psutil

import ftwax
from ftwax.records import checkpoints, loggers

_LEFT_S = 10.0
_TIMEOUT_S = 300.0


class Watch:
  """Records when the logs of a run grew."""

  def __init__(self, directory: pathlib.Path):
    """Starts to watch."""
    self._logs = {
      label: distributed_run.Log(loggers.log_path(directory, label))
      for label in ('learner', 'train')
    }
    self._times: dict[str, list[float]] = collections.defaultdict(list)
    self._ended = threading.Event()
    self._thread = threading.Thread(target=self._watch, daemon=True)
    self._thread.start()

  def stop(self) -> None:
    """Stops watching."""
    self._ended.set()
    self._thread.join()

  def stall(self, label: str, since: float) -> float:
    """Returns the longest time without a new row, from `since` on."""
    times = [since, *(t for t in self._times[label] if t > since)]
    ends = [*times[1:], time.monotonic()]
    return max(end - start for start, end in zip(times, ends, strict=True))

  def acts_again(self, name: str, since: float) -> bool:
    """Returns whether an actor has reported after `since`."""
    return any(moment > since for moment in self._times[name])

  def _watch(self) -> None:
    seen: dict[str, int] = {}
    while not self._ended.wait(0.1):
      now = time.monotonic()
      counts = {label: log.read().num_rows for label, log in self._logs.items()}
      for index, count in self._logs['train'].by_actor.items():
        counts[f'actor-{index}'] = count
      for name, count in counts.items():
        if count > seen.get(name, 0):
          self._times[name].append(now)
        seen[name] = count


def kill_actors(run: distributed_run.Run, watch: Watch, seconds: float) -> str:
  """Kills an actor every 10 s."""
  rng = random.Random(0)
  absences = []
  end = time.monotonic() + seconds
  while time.monotonic() < end:
    actors = {n: p for n, p in run.nodes().items() if n.startswith('actor')}
    name = rng.choice(sorted(actors))
    actors[name].kill()
    absences.append(_wait_for_node(run, watch, name, actors[name]))
    time.sleep(max(10.0 - absences[-1], 0.0))
  return f'{len(absences)} killed, each acts again in {max(absences):.1f} s'


def kill_learner(run: distributed_run.Run, watch: Watch, seconds: float) -> str:
  """Kills the learner."""
  del watch, seconds
  num_rows = run.log('learner').num_rows
  before = run.log('learner').last['learner_steps']
  run.nodes()['learner-0'].kill()
  run.wait_for_rows('learner', num_rows + 3)
  after = run.log('learner').last['learner_steps']
  return f'{before} updates before, {after} soon after'


def freeze_actor(run: distributed_run.Run, watch: Watch, seconds: float) -> str:
  """Stops an actor."""
  del seconds
  actor = run.nodes()['actor-0']
  actor.suspend()
  return (
    f'replaced, acts after {_wait_for_node(run, watch, "actor-0", actor):.1f} s'
  )


def freeze_for_a_minute(
  run: distributed_run.Run, watch: Watch, seconds: float
) -> str:
  """Stops an actor for a minute, which is no reason to replace it."""
  del seconds
  actor = run.nodes()['actor-0']
  actor.suspend()
  since = time.monotonic()
  time.sleep(60.0)
  pause = watch.stall('train', since)
  actor.resume()
  thawed = time.monotonic()
  while not watch.acts_again('actor-0', thawed):
    time.sleep(0.05)
    if time.monotonic() > thawed + _TIMEOUT_S:
      raise TimeoutError('actor-0 does not act again')
  name = 'itself' if run.nodes()['actor-0'] == actor else 'another'
  return (
    f'the other pauses {pause:.1f} s at most;'
    f' {name} acts {time.monotonic() - thawed:.1f} s after the minute'
  )


def kill_while_saving(
  run: distributed_run.Run, watch: Watch, seconds: float
) -> str:
  """Kills the learner while a checkpoint is written, and reads the newest."""
  del watch, seconds
  folder = run.directory / 'checkpoints'
  made = distributed_run.build_experiment(16, 5.0, in_jax=False)
  absences = []
  for _ in range(5):
    learner = run.nodes()['learner-0']
    while not list(folder.glob('tmp-*')):
      time.sleep(1e-4)
    learner.kill()
    start = time.monotonic()
    run.wait_for_rows('learner', run.log('learner').num_rows + 3)
    absences.append(time.monotonic() - start)
    ftwax.load(run.directory, experiment=made)  # Checks its sums.
  return (
    f'{len(absences)} killed, the newest checkpoint is whole each time; updates'
    f' after {max(absences):.1f} s at most'
  )


def begin_another(
  run: distributed_run.Run, watch: Watch, seconds: float
) -> str:
  """Waits for the run that began at the same time, and stops it."""
  del watch, seconds
  other = run.other
  assert other is not None, 'the scenario begins two runs'
  waited = time.monotonic() - run.begun
  other.wait_for_rows('learner', 10)
  both = time.monotonic() - run.begun
  status = other.stop()
  return (
    f'they learn {waited:.1f} s and {both:.1f} s after their start; one is'
    f' stopped, status {status}, and the other goes on'
  )


def interrupt(run: distributed_run.Run, watch: Watch, seconds: float) -> str:
  """Sends SIGTERM to the command."""
  del watch, seconds
  start = time.monotonic()
  status = run.stop()
  return f'saved, status {status} after {time.monotonic() - start:.1f} s'


def kill_command(run: distributed_run.Run, watch: Watch, seconds: float) -> str:
  """Kills the command, and resumes its run."""
  del watch, seconds
  nodes = run.nodes()
  steps = run.log('train').last['actor_steps']
  os.kill(run.pid, signal.SIGKILL)
  os.waitpid(run.pid, 0)
  start = time.monotonic()
  while any(process.is_running() for process in nodes.values()):
    time.sleep(0.05)
  ended = time.monotonic() - start
  saved = checkpoints.saved_steps(run.directory / 'checkpoints')[-1]
  num_rows = run.log('learner').num_rows
  run.start('--resume')
  run.wait_for_rows('learner', num_rows + 1)
  return (
    f'nodes end in {ended:.1f} s; resumed from step {saved:,} of {steps:,},'
    f' learns {time.monotonic() - start - ended:.1f} s after its start'
  )


def guess_tokens(run: distributed_run.Run, watch: Watch, seconds: float) -> str:
  """Calls all ports of the run with wrong tokens."""
  del watch
  import grpc

  ports = sorted(_ports(psutil.Process(run.pid)))
  channels = [grpc.insecure_channel(f'127.0.0.1:{port}') for port in ports]
  methods = [
    '/ray.rpc.NodeInfoGcsService/GetAllNodeInfo',
    '/ray.rpc.InternalKVGcsService/InternalKVKeys',
    '/ray.rpc.CoreWorkerService/PushTask',
    '/ray.rpc.CoreWorkerService/KillActor',
    '/ray.rpc.NodeManagerService/RequestWorkerLease',
  ]
  said: collections.Counter = collections.Counter()
  first = run.log('train').last
  number, start, pending = 0, time.monotonic(), collections.deque()
  while time.monotonic() < start + seconds:
    call = channels[number % len(ports)].unary_unary(
      methods[number // len(ports) % len(methods)]
    )
    token = (('authorization', f'Bearer {number:064x}'),)
    pending.append(call.future(b'', timeout=10, metadata=token))
    number += 1
    while len(pending) > 200 or (pending and pending[0].done()):
      said[_status(pending.popleft())] += 1
    time.sleep(max(start + number / 1000 - time.monotonic(), 0.0))
  said.update(_status(call) for call in pending)
  rate = number / (time.monotonic() - start)
  last = run.log('train').last
  speed = (last['actor_steps'] - first['actor_steps']) / (
    last['seconds'] - first['seconds']
  )
  answers = ', '.join(f'{name} {count}' for name, count in said.most_common())
  return (
    f'{rate:.0f} calls/s to {len(ports)} ports: {answers};'
    f' {speed:,.0f} steps/s meanwhile'
  )


def kill_host(run: distributed_run.Run, watch: Watch, seconds: float) -> str:
  """Kills all processes of the second host."""
  del seconds
  lost = sorted(hosts.nodes(1, run.directory))
  since = time.monotonic()
  for pid in hosts.pids(1):
    with contextlib.suppress(ProcessLookupError):
      os.kill(pid, signal.SIGKILL)
  num_rows = run.log('learner').num_rows
  run.wait_for_rows('learner', num_rows + 20)
  return (
    f'{", ".join(lost)} lost; the others play on, longest pause'
    f' {watch.stall("train", since):.1f} s'
  )


def _wait_for_node(
  run: distributed_run.Run, watch: Watch, name: str, old: psutil.Process
) -> float:
  """Returns the seconds until a new process has done something."""
  start = time.monotonic()
  replaced_at = None
  while replaced_at is None or not watch.acts_again(name, replaced_at):
    now = time.monotonic()
    if now > start + _TIMEOUT_S:
      raise TimeoutError(f'{name} is not replaced')
    if replaced_at is None and run.nodes().get(name, old) != old:
      replaced_at = now
    time.sleep(0.05)
  return time.monotonic() - start


def _status(call) -> str:
  error = call.exception()
  return 'ANSWERED' if error is None else error.code().name.lower()


def _ports(process: psutil.Process) -> set[int]:
  """Returns the ports on which a process and its descendants listen."""
  ports = set()
  for one in (process, *process.children(recursive=True)):
    with contextlib.suppress(psutil.Error):
      ports |= {
        connection.laddr.port
        for connection in one.net_connections('tcp')
        if connection.status == psutil.CONN_LISTEN
      }
  return ports


SCENARIOS = {
  'actors': kill_actors,
  'learner': kill_learner,
  'frozen': freeze_actor,
  'minute': freeze_for_a_minute,
  'saving': kill_while_saving,
  'two': begin_another,
  'sigterm': interrupt,
  'command': kill_command,
  'tokens': guess_tokens,
  'host': kill_host,
}


def run_scenario(name: str, seconds: float) -> tuple[str, ...]:
  """Runs a scenario; returns a row."""
  with contextlib.ExitStack() as stack:
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    options = {'save_every_seconds': 5.0}
    prefix = []
    if name == 'frozen':
      options['heartbeat_timeout_s'] = 10.0
    if name == 'host':
      prefix = stack.enter_context(hosts.started(folder))
      options['cluster'] = hosts.CLUSTER
    run = distributed_run.Run(folder / 'run', prefix=prefix, **options)
    if name == 'two':
      run.other = distributed_run.Run(folder / 'other', **options)
    watch = Watch(run.directory)
    try:
      run.wait_for_rows('learner', 10)
      print(f'{name}: learning', flush=True)
      since = time.monotonic()
      text = SCENARIOS[name](run, watch, seconds)
      stalls = [watch.stall(label, since) for label in ('train', 'learner')]
    finally:
      watch.stop()
      processes = run.processes()
      if name != 'sigterm':
        run.stop()
    time.sleep(_LEFT_S)
    left = [p.name() for p in processes if p.is_running()]
    folders = list(
      pathlib.Path(tempfile.gettempdir()).glob(f'ftwax-{run.pid}-*')
    )
    rows = loggers.read_jsonl(loggers.log_path(run.directory, 'train'))
  counted = sum(row['num_episodes'] for row in rows)
  last = rows[-1]['episodes']
  ends = name == 'sigterm'
  return (
    name,
    text,
    'ends' if ends else f'{stalls[0]:.1f} s, {stalls[1]:.1f} s',
    'once' if counted == last else f'{counted} of {last}',
    ', '.join([*left, *map(str, folders)]) or 'nothing',
  )


def main() -> None:
  """Runs scenarios."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('scenarios', nargs='*', default=list(SCENARIOS))
  parser.add_argument('--seconds', type=float, default=60.0)
  arguments = parser.parse_args()
  rows = []
  for name in arguments.scenarios:
    rows.append(run_scenario(name, arguments.seconds))
    print(rows[-1], f'load {os.getloadavg()[0]:.1f}', flush=True)
  common.print_table(
    'catch, two actors',
    ('scenario', 'what happened', 'no reports, no updates', 'counted', 'left'),
    rows,
  )


if __name__ == '__main__':
  main()
