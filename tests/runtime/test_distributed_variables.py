"""How far the variables of actors lag behind the learner's."""

import itertools
import threading
import time

import jax
import numpy as np
import pytest

from ftwax import types
from ftwax.replay import samples
from ftwax.replay.reverb import tables
from ftwax.runtime.distributed import (
  patient_iterator,
  processes,
  remote_variables,
)


class _Dataset:
  """Gives batches of trajectories written at 0, 1, 2, ..."""

  def __init__(self, shape=(2,)):
    self._shape = shape
    self._written = itertools.count()
    self.num_ready = threading.Semaphore(0)

  def __next__(self):
    if not self.num_ready.acquire(timeout=0.01):
      raise tables.ReplayTimeoutError('none')
    times = [float(next(self._written)) for _ in range(np.prod(self._shape))]
    written_at = np.reshape(times, self._shape)
    return samples.ReplaySample(None, np.zeros(self._shape), written_at)


class _Waiting:
  """Waits in a thread until trajectories have been learned from."""

  def __init__(self, batches, written_at):
    self._ended = threading.Event()
    self._thread = threading.Thread(
      target=self._run, args=(batches, written_at), daemon=True
    )
    self._thread.start()

  def _run(self, *args):
    patient_iterator.PatientIterator.wait_until_learned(*args)
    self._ended.set()

  def has_ended(self, timeout_s):
    return self._ended.wait(timeout_s)


class TestWaiting:
  @pytest.fixture
  def ended(self):
    return threading.Event()

  @pytest.fixture
  def make_batches(self, ended):
    def on_idle():
      if ended.is_set():
        raise StopIteration

    def make(dataset):
      return patient_iterator.PatientIterator(dataset, 100.0, on_idle)

    return make

  def test_it_ends_when_the_batch_has_been_learned_from(self, make_batches):
    dataset = _Dataset()
    batches = make_batches(dataset)
    dataset.num_ready.release(2)
    next(batches)
    waiting = _Waiting(batches, 1.0)  # The newer one of the first batch.
    assert not waiting.has_ended(0.3)
    next(batches)
    assert waiting.has_ended(10.0)
    batches.wait_until_learned(1.0)
    assert not _Waiting(batches, 3.0).has_ended(0.3)

  def test_all_members_must_have_learned(self, make_batches):
    dataset = _Dataset((2, 2))
    batches = make_batches(dataset)
    dataset.num_ready.release(2)
    next(batches)  # Written at 0 and 1 for a member, 2 and 3 for the other.
    next(batches)
    batches.wait_until_learned(1.0)
    assert not _Waiting(batches, 2.0).has_ended(0.3)

  def test_it_ends_if_no_batch_comes(self, make_batches, ended):
    batches = make_batches(_Dataset())
    thread = threading.Thread(target=lambda: next(batches, None))
    thread.start()
    start = time.monotonic()
    batches.wait_until_learned(1.0)
    assert 0.04 < time.monotonic() - start
    ended.set()
    thread.join()


class _Learner:
  """Notes what it is asked for."""

  def __init__(self):
    self.asked = []

  def variables(self, known_steps, written_at=0.0):
    self.asked.append((known_steps, written_at))
    return [np.int32(len(self.asked))]


@pytest.mark.parametrize('waits', [False, True])
def test_who_waits_asks_after_each_writing(waits):
  server = _Learner()
  structure = jax.tree.structure(types.ActorVariables((), (), (), steps=0))
  times = iter([5.0, 5.0, 7.0])
  source = remote_variables.RemoteVariables(
    processes.Remote(server, 'learner'),
    structure,
    1000.0,
    threading.Event(),
    (lambda: next(times)) if waits else None,
  )
  for _ in range(4):
    (found,) = source.get_variables(['policy'])
  assert found.steps == (3 if waits else 2)
  assert server.asked == (
    [(-1, 0.0), (1, 5.0), (2, 7.0)] if waits else [(-1, 0.0), (1, 0.0)]
  )
