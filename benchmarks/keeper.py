"""Load of a population's keeper with many learners and actors.

    uv run benchmarks/keeper.py                       # 8, 64 and 256 members
    uv run benchmarks/keeper.py --members 8 --seconds 5

The keeper is the real one, in its own process, called by courier. Learners and
actors are simulated: each member has its own learner, which asks once per
second and immediately makes the copies it is given, and an actor, which
periodically reports results and draws seats. Members have no parameters, win
and lose at random, and copy each other after 50 games.
"""

import argparse
import contextlib
import heapq
import multiprocessing
import pathlib
import tempfile
import threading
import time

import common
import courier
import jax
import launchpad as lp
import numpy as np
import psutil

from ftwax.agents import impala
from ftwax.environments import capture_the_flag
from ftwax.population import copies as copies_lib
from ftwax.population import evolution, population_config
from ftwax.records import checkpoints
from ftwax.runtime import evaluation, experiment, parts, run_records
from ftwax.runtime.distributed import (
  keeper,
  processes,
  results_format,
  settings,
)

_NUM_THREADS = 8  # Threads of the simulation.
_DRAW_S = 10.0  # Seconds between two draws of an actor, i.e. per round.


def make_experiment(num_members: int) -> experiment.ExperimentConfig:
  """Returns the experiment: capture the flag with a population."""
  config = impala.IMPALAConfig.atari_paper()
  made = experiment.ExperimentConfig(
    name='keeper',
    agent=config,
    environment=_make_game,
    max_num_actor_steps=10**9,
    num_environments=num_members,
    population=population_config.PopulationConfig(
      num_members, burn_in_games=50, win_probability_threshold=0.5001
    ),
    checkpointing=checkpoints.CheckpointingConfig(60.0),
  )
  return made.replace(game_spec=made.read_game_spec())


def _make_game(seed: int):
  del seed
  return capture_the_flag.make()


class _Counter:
  """Counter of a run that never ends."""

  def report_keeper(self, number, rows):
    del number, rows
    counts = run_records.Counts()._asdict()
    return {'counts': counts, 'returns': [], 'leave': False}

  def finish(self, name):
    del name


def serve(num_members: int, directory: str, port, stop) -> None:
  """Runs a keeper until `stop` is set."""
  processes.node = lambda name, save: contextlib.nullcontext(stop)
  made = keeper.Keeper(
    make_experiment(num_members),
    directory,
    settings.Settings(num_learners=num_members),
    _Counter(),
  )
  server = courier.Server('keeper')  # On any free port.
  for name in ('join', 'ask', 'settle', 'draw_seats', 'report_results'):
    server.Bind(name, getattr(made, name))
  server.Start()
  port.value = server.port
  made.run()
  server.Stop()


class Load:
  """Simulated learners and actors, and statistics of their calls."""

  def __init__(self, port: int, num_members: int, reports_per_s: float):
    """Joins all learners."""
    config = make_experiment(num_members)
    self._num_members = num_members
    self._client = lp.CourierClient(f'localhost:{port}', call_timeout=60.0)
    self._report_s = 1.0 / reports_per_s
    template = parts.make_template(config, config.game_spec)
    self._traits = jax.tree.map(
      lambda leaf: np.ones((1, *leaf.shape[1:]), leaf.dtype),
      evolution.traits(template.members),
    )
    self._lock = threading.Lock()
    self._numbers = [0] * num_members
    self._copies = [None] * num_members
    self.num_calls = self.num_copies = self.num_bytes = 0
    self.seconds: list[float] = []  # Duration of calls.
    while [self._join(index) for index in range(num_members)].count(None):
      time.sleep(0.5)

  def _join(self, index: int):
    copies = copies_lib.no_copies(self._traits, np.array([index]))
    return self._client.join(index, jax.tree.leaves((self._traits, copies)))

  def run(self, seconds: float) -> None:
    """Makes calls for the given duration."""
    self.num_calls = self.num_copies = self.num_bytes = 0
    self.seconds = []
    start = time.monotonic()
    threads = [
      threading.Thread(target=self._call, args=(index, start, start + seconds))
      for index in range(_NUM_THREADS)
    ]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()

  def _call(self, thread: int, start: float, end: float) -> None:
    """Makes the calls of some members when they are due."""
    rng = np.random.default_rng(thread)
    calls = [
      (start + rng.uniform(0.0, period), period, kind, member)
      for member in range(thread, self._num_members, _NUM_THREADS)
      for kind, period in (
        ('ask', 1.0),
        ('report', self._report_s),
        ('draw', _DRAW_S),
      )
    ]
    heapq.heapify(calls)
    while calls and calls[0][0] < end:
      due, period, kind, member = calls[0]
      time.sleep(max(due - time.monotonic(), 0.0))
      getattr(self, f'_{kind}')(member, rng)
      heapq.heapreplace(calls, (due + period, period, kind, member))

  def _ask(self, member: int, rng: np.random.Generator) -> None:
    """Asks for copies, or settles the last ones, as an `Exchange` does."""
    del rng
    copies = self._copies[member]
    if copies is None:
      self._copies[member] = self._count('ask', member) or None
    elif self._count('settle', member, copies):
      self._copies[member] = None
      with self._lock:
        self.num_copies += 1

  def _report(
    self, member: int, rng: np.random.Generator, ends_round: bool = False
  ) -> None:
    seats = rng.choice(self._num_members, 4, replace=False).astype(np.int32)
    outcome = np.array(rng.permutation([1.0, -1.0]), np.float32)
    returns = np.zeros((4, len(self._traits.internal_rewards[0])), np.float32)
    results = [evaluation.GameResult(0, seats, outcome, returns, 400)]
    self._numbers[member] += 1
    self._count(
      'report_results',
      (str(member), self._numbers[member]),
      results_format.pack(results),
      ends_round,
    )

  def _draw(self, member: int, rng: np.random.Generator) -> None:
    self._report(member, rng, ends_round=True)
    self._count('draw_seats')

  def _count(self, method: str, *args):
    start = time.monotonic()
    reply = getattr(self._client, method)(*args)
    seconds = time.monotonic() - start
    size = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(args))
    size += sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(reply))
    with self._lock:
      self.num_calls += 1
      self.num_bytes += size
      self.seconds.append(seconds)
    return reply


def measure(num_members: int, seconds: float, reports_per_s: float) -> list:
  """Returns a row of the table."""
  context = multiprocessing.get_context('spawn')
  port, stop = context.Value('i', 0), context.Event()
  with tempfile.TemporaryDirectory() as directory:
    path = str(pathlib.Path(directory))
    process = context.Process(
      target=serve, args=(num_members, path, port, stop), daemon=True
    )
    process.start()
    while not port.value:
      time.sleep(0.1)
    load = Load(port.value, num_members, reports_per_s)
    load.run(15.0)  # Compiles everything, for all sizes.
    watched = psutil.Process(process.pid)
    before, start = sum(watched.cpu_times()[:2]), time.monotonic()
    load.run(seconds)
    took = time.monotonic() - start
    cpu_s = sum(watched.cpu_times()[:2]) - before
    memory = watched.memory_full_info().uss / 2**20
    stop.set()
    process.join()
  calls = sorted(load.seconds)
  return [
    str(num_members),
    f'{load.num_calls / took:.0f}',
    f'{load.num_copies / took:.2f}',
    f'{load.num_bytes / took / 1024:.0f}',
    f'{100.0 * cpu_s / took:.1f}',
    f'{1e6 * cpu_s / load.num_calls:.0f}',
    f'{1e3 * calls[len(calls) // 2]:.1f}',
    f'{1e3 * calls[int(0.99 * len(calls))]:.0f}',
    f'{memory:.0f}',
  ]


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--members', type=int, nargs='+', default=[8, 64, 256])
  parser.add_argument('--seconds', type=float, default=60.0)
  parser.add_argument('--reports_per_s', type=float, default=1.0)
  arguments = parser.parse_args()
  print(common.machine_line())
  rows = [
    measure(num_members, arguments.seconds, arguments.reports_per_s)
    for num_members in arguments.members
  ]
  titles = [
    'members', 'calls/s', 'copies/s', 'KB/s', 'CPU %', 'us/call', 'median ms',
    '99% ms', 'MB',
  ]  # fmt: skip
  common.print_table('Load of the keeper', titles, rows)


if __name__ == '__main__':
  main()
