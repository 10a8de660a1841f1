"""One of several learners of one member, for tests: a script.

Its arguments: index, number of learners, address, directory.
"""

import ipaddress
import os
import pathlib
import signal
import sys
import threading

import fakes
import jax
import numpy as np
import psutil
import random_batches

from ftwax.agents import impala
from ftwax.agents.actor_critic import batches
from ftwax.records import checkpoints
from ftwax.replay import samples
from ftwax.replay.reverb import tables
from ftwax.runtime import sharding
from ftwax.runtime.distributed import (
  patient_iterator,
  peers,
  processes,
  settings,
)
from ftwax.runtime.local import members

CONFIG = impala.IMPALAConfig.atari_paper(
  core='lstm',
  sequence_length=4,
  batch_size=8,
  hidden_size=4,
  vector_hidden_sizes=(4,),
  use_value_replay=True,
)
SPEC = fakes.make_vector_spec()
NETWORK = impala.make_network(SPEC, CONFIG)
NUM_UPDATES = 4


class _NoLogger:
  def write(self, values):
    assert np.isfinite(float(values['loss']))


class _Shares:
  """Yields a share of fixed batches; that of a follower comes late at first."""

  def __init__(self, index, num_learners):
    share = CONFIG.batch_size // num_learners
    self._columns = np.arange(share) + index * share
    self._is_first = index == 0
    self._num_taken = -index

  def __next__(self):
    self._num_taken += 1
    if self._num_taken not in range(1, NUM_UPDATES + 1):
      raise tables.ReplayTimeoutError('none')
    whole = make_batch(self._num_taken)
    replay = batches.take_columns(whole, self._columns).replay
    # Of the first batch the first learner's share alone is live.
    is_live = replay.is_live | self._is_first
    share = batches.take_columns(whole, self._columns)._replace(
      replay=replay._replace(is_live=is_live)
    )
    return _make_sample(share)


def make_batch(number):
  """Returns a whole batch; the replay of the first one is not live."""
  batch = random_batches.make_batch(number, SPEC, NETWORK, CONFIG)
  return batch._replace(
    replay=batch.replay._replace(is_live=np.bool_(number > 1))
  )


def _make_sample(batch):
  num_rows = np.shape(batch.trajectory.logits)[1]
  return samples.ReplaySample(batch, np.zeros(num_rows), np.zeros(num_rows))


def learn(mesh, dataset):
  """Returns a learner of one member that has made all updates."""
  learner = members.make_learner(
    CONFIG,
    jax.random.PRNGKey(0),
    NETWORK,
    SPEC,
    1,
    dataset,
    lambda *_: _NoLogger(),
    mesh,
  )
  for _ in range(NUM_UPDATES):
    learner.step()
  return learner


def learn_alone():
  """Returns the learner of one process with the same batches."""
  numbers = range(1, NUM_UPDATES + 1)
  return learn(
    sharding.make_mesh(None), map(_make_sample, map(make_batch, numbers))
  )


def _learn_with_others(index, num_learners):
  """Returns the state, once all have ended together."""
  together = peers.Peers(peers.make_mesh(1))
  is_done = False
  dataset = peers.SharedBatches(
    together,
    _Shares(index, num_learners),
    60.0,
    threading.Event(),
    lambda: is_done and index == 0,
  )
  learner = learn(peers.make_mesh(1), dataset)
  is_done = True  # The first one tells the others.
  try:
    learner.step()
    raise AssertionError('an update without batches')
  except patient_iterator.Ended:
    pass
  copy = together.replicate(np.full(3, index + 5))
  np.testing.assert_array_equal(copy, np.full(3, 5))
  return peers.local(learner.state)


def _save_alone(path, state):
  with checkpoints.Checkpointer(
    path / 'checkpoints', must_be_finite=lambda state: state.params
  ) as checkpointer:
    checkpointer.save(1, state)
    restored, _ = checkpointer.restore(state)
    jax.tree.map(np.testing.assert_array_equal, restored, state)


def main():
  """Learns with the others and writes the state."""
  index, num_learners = map(int, sys.argv[1:3])
  path = pathlib.Path(sys.argv[4])
  received = []
  signal.signal(signal.SIGTERM, lambda signum, _: received.append(signum))
  peers.join([sys.argv[3]], index, settings.Settings(num_learners=num_learners))
  os.kill(os.getpid(), signal.SIGTERM)
  assert received == [signal.SIGTERM]  # JAX has not taken the handler away.
  state = _learn_with_others(index, num_learners)
  listening = {
    ipaddress.ip_address(connection.laddr.ip.removeprefix('::ffff:'))
    for connection in psutil.Process().net_connections('tcp')
    if connection.status == psutil.CONN_LISTEN
  }
  assert ipaddress.ip_address(os.environ[processes.HOST_VARIABLE]) in listening
  assert all(address.is_loopback for address in listening), listening
  if index == 0:
    _save_alone(path, state)
  peers.leave()
  leaves = jax.tree.leaves(state)
  np.savez(path / f'{index}.npz', *map(np.asarray, leaves))


if __name__ == '__main__':
  main()
