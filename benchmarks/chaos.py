"""Kills nodes of a distributed run, and measures its recovery.

Run as `python benchmarks/chaos.py actors`, or with another scenario:

    actors     a random one of 4 is killed every 10 s for 2 minutes
    learner    the learner is killed once, while actors act
    learners   the second of two learners of one member is killed once
    replay     the replay server is killed once
    counter    the counter is killed once
    inference  the inference server, through which actors act, is killed once
    saves      the learner is killed 20 times while it saves a checkpoint
    pause      the learner is paused for a minute: actors wait, none grows, and
               it continues with the items in their order

Each scenario prints its numbers and exits with status 1 if a promise is broken.
"""

import argparse
import pathlib
import random
import tempfile
import threading
import time

import distributed_run
import numpy as np

from ftwax.records import checkpoints, loggers

SCENARIOS = (
  'actors', 'learner', 'learners', 'replay', 'counter', 'inference', 'saves',
  'pause',
)  # fmt: skip

# The promises.
_MAX_STALL_S = 15.0
_MAX_RETURN_S = 10.0
_MAX_GROWTH_MB = 50.0
_MAX_DISORDER_S = 3.0

_GIVE_UP_S = 120.0

# Maximum delay until a report is read from the log.
_LOG_DELAY_S = 0.5

_NUM_SAVES_KILLED = 20

# Approximate duration of a save.
_SAVE_S = 0.1


class Watch:
  """Records when the learner took steps and when actors acted."""

  def __init__(self, run: distributed_run.Run):
    """Starts to watch."""
    # Separate logs, since they are read in a thread.
    self._logs = {
      label: distributed_run.Log(loggers.log_path(run.directory, label))
      for label in ('learner', 'train')
    }
    self._times: dict[str, list[tuple[float, int]]] = {}
    self._ended = threading.Event()
    self._thread = threading.Thread(target=self._watch, daemon=True)
    self._thread.start()

  def stop(self) -> None:
    """Stops watching."""
    self._ended.set()
    self._thread.join()

  def last_time(self, name: str) -> float:
    """Returns the time at which a count last grew."""
    noted = self._times.get(name)
    return noted[-1][0] if noted else 0.0

  def longest_stall(self, name: str) -> float:
    """Returns the longest time during which a count did not grow."""
    times = [moment for moment, _ in self._times[name]]
    return max(np.diff([*times, time.monotonic()]))

  def _watch(self):
    while not self._ended.wait(0.2):
      now = time.monotonic()
      self._note('learner', now, self._logs['learner'].read().num_rows)
      actors = self._logs['train'].read().by_actor
      for index, count in actors.items():
        self._note(f'actor-{index}', now, count)

  def _note(self, name, now, count):
    noted = self._times.setdefault(name, [])
    if not noted or noted[-1][1] != count:
      noted.append((now, count))


def _check(name: str, value: float, limit: float, unit: str) -> bool:
  good = value <= limit
  verdict = 'kept' if good else 'BROKEN'
  print(f'{name}: {value:.1f} {unit} of at most {limit:g}: {verdict}')
  return good


def kill_actors(run: distributed_run.Run, seconds: float) -> bool:
  """Kills a random actor every 10 s."""
  watch = Watch(run)
  rng = random.Random(0)
  absences = []
  end = time.monotonic() + seconds
  while time.monotonic() < end:
    name, actor = rng.choice(
      [(n, p) for n, p in run.nodes().items() if n.startswith('actor')]
    )
    killed_at = time.monotonic()
    actor.kill()
    replaced_at = None  # Earlier rows are the dead one's.
    while replaced_at is None or watch.last_time(name) <= replaced_at:
      now = time.monotonic()
      if now > killed_at + _GIVE_UP_S:
        break
      if replaced_at is None and run.nodes().get(name, actor) != actor:
        replaced_at = now + _LOG_DELAY_S
      time.sleep(0.1)
    absences.append(time.monotonic() - killed_at)
    print(f'{name} acts again after {absences[-1]:.1f} s', flush=True)
    time.sleep(max(killed_at + 10.0 - time.monotonic(), 0.0))
  watch.stop()
  good = _check(
    'learner stalled', watch.longest_stall('learner'), _MAX_STALL_S, 's'
  )
  return _check('actor away', max(absences), _MAX_RETURN_S, 's') and good


def kill_once(run: distributed_run.Run, name: str) -> bool:
  """Kills a node and waits until learning continues."""
  run.wait_for_rows('learner', 15)
  saved = _newest_checkpoint(run.directory)
  before = run.log('learner').last['learner_steps']
  steps = run.log('train').last['actor_steps']
  run.nodes()[name].kill()
  killed_at = time.monotonic()
  num_rows = run.log('learner').num_rows
  run.wait_for_rows('learner', num_rows + 2)
  print(f'learning goes on after {time.monotonic() - killed_at:.1f} s')
  row = run.log('learner').last
  after = run.log('train').last['actor_steps']
  print(
    f'learner steps {before} before, {row["learner_steps"]} after; actor steps'
    f' {steps} before, {after} after; checkpoint of {saved}'
  )
  return after >= steps >= saved > 0 and row['learner_steps'] > 0


def _newest_checkpoint(directory: pathlib.Path) -> int:
  with checkpoints.Checkpointer(directory / 'checkpoints') as checkpointer:
    return max(checkpointer.steps(), default=0)


def pause_learner(run: distributed_run.Run, seconds: float) -> bool:
  """Pauses the learner's process for a while."""

  def actors():
    return {n: p for n, p in run.nodes().items() if n.startswith('actor')}

  before = {n: p.memory_info().rss / 2**20 for n, p in actors().items()}
  learner = run.nodes()['learner']
  learner.suspend()
  time.sleep(seconds)
  after = {n: p.memory_info().rss / 2**20 for n, p in actors().items()}
  learner.resume()
  growth = max(after[name] - before[name] for name in before)
  disorder = _measure_disorder(run, num_rows=8)
  good = _check('actor grew', growth, _MAX_GROWTH_MB, 'MB')
  return (
    _check('items out of order by', disorder, _MAX_DISORDER_S, 's') and good
  )


def _measure_disorder(run: distributed_run.Run, num_rows: int) -> float:
  """Returns by how much a batch is older than the one learned before it.

  In seconds; the accuracy is limited by the delay of reading the log.
  """
  disorder, latest = 0.0, 0.0
  for _ in range(num_rows):
    run.wait_for_rows('learner', run.log('learner').num_rows + 1)
    written_at = time.monotonic() - run.log('learner').last['sample_age_s']
    disorder = max(disorder, latest - written_at)
    latest = max(latest, written_at)
  return disorder


def kill_saves(run: distributed_run.Run) -> bool:
  """Kills the learner while it saves; each new one must continue from there."""
  rng = random.Random(0)
  directory = run.directory / 'checkpoints'
  began = 0  # Learner steps at which the current learner began.
  for index in range(_NUM_SAVES_KILLED):
    run.wait_for_rows('learner', run.log('learner').num_rows + 2)
    saved = _newest_checkpoint(run.directory)
    while not any(directory.glob('tmp-*')):
      time.sleep(0.001)
    time.sleep(rng.uniform(0.0, _SAVE_S))
    run.nodes()['learner'].kill()
    half = [path.name for path in directory.glob('tmp-*')]
    newest = _newest_checkpoint(run.directory)
    before = run.log('learner').last['learner_steps']
    run.wait_for_rows('learner', run.log('learner').num_rows + 1)
    after = run.log('learner').last['learner_steps']
    print(
      f'kill {index}: {"half-written " + half[0] if half else "all written"};'
      f' checkpoints of {saved} and then {newest} steps; updates'
      f' {before} before, {after} after',
      flush=True,
    )
    if newest < saved or after <= began:
      return False
    began = after
  return True


def _run_scenario(scenario: str, seconds: float | None) -> bool:
  kills_actors = scenario == 'actors'
  with tempfile.TemporaryDirectory() as directory:
    run = distributed_run.Run(
      pathlib.Path(directory) / 'run',
      num_actors=4 if kills_actors else 2,
      num_learners=2 if scenario == 'learners' else 1,
      save_every_seconds=1.0 if scenario == 'saves' else 5.0,
      inference_server=int(scenario == 'inference'),
    )
    try:
      start = time.monotonic()
      run.wait_for_rows('learner', 5)
      print(f'learning after {time.monotonic() - start:.1f} s', flush=True)
      if kills_actors:
        good = kill_actors(run, seconds or 120.0)
      elif scenario == 'pause':
        good = pause_learner(run, seconds or 60.0)
      elif scenario == 'saves':
        good = kill_saves(run)
      else:
        good = kill_once(
          run, 'learner-1' if scenario == 'learners' else scenario
        )
    finally:
      ended_well = run.stop_and_report()
    return good and ended_well


def main() -> None:
  """Runs a scenario."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('scenario', choices=SCENARIOS)
  parser.add_argument('--seconds', type=float, default=None)
  arguments = parser.parse_args()
  good = _run_scenario(arguments.scenario, arguments.seconds)
  raise SystemExit(0 if good else 1)


if __name__ == '__main__':
  main()
