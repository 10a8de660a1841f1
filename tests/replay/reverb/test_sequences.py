"""Sequences of one's own steps, on a real Reverb server."""

import contextlib
import re

import numpy as np
import pytest

from ftwax.replay.reverb import sequences, servers, tables

STEP = {'seen': np.zeros(2, np.float32), 'extra': {'index': np.int32(0)}}
CONFIG = sequences.SequenceConfig(
  capacity=20, sequence_length=3, period=2, batch_size=64, timeout_s=20.0
)


def _step(index):
  seen = np.array([index, -index], np.float32)
  return {'seen': seen, 'extra': {'index': np.int32(index)}}


@pytest.fixture
def open_parts():
  """Makes a server, a writer and a sampler; all are closed after the test."""
  with contextlib.ExitStack() as stack:

    def make(config=CONFIG, directory=None):
      table = sequences.make_table('mine', STEP, config)
      server = servers.make_server([table], checkpoint_dir=directory)
      stack.callback(servers.stop, server)
      client = server.localhost_client()
      writer = sequences.SequenceWriter(client, 'mine', STEP, config)
      stack.callback(writer.close)
      sampler = sequences.SequenceSampler(client, 'mine', STEP, config)
      stack.callback(sampler.close)
      return client, writer, sampler

    yield make


def _write(writer, num_steps, first=0, priority=1.0):
  for index in range(first, first + num_steps):
    writer.append(_step(index), priority)
  writer.end_episode()


def _starts(batch):
  return batch.data['extra']['index'][0]


def test_sequences_are_whole_and_of_one_episode(open_parts):
  _, writer, sampler = open_parts()
  _write(writer, 8)
  _write(writer, 4, first=100)
  batch = sampler.sample()
  index = batch.data['extra']['index']
  assert index.shape == (3, 64)
  assert set(index[0].tolist()) == {0, 2, 4, 100}
  np.testing.assert_array_equal(index - index[0], np.mgrid[:3, :64][0])
  np.testing.assert_array_equal(batch.data['seen'][..., 1], -index)


def test_draws_are_in_proportion_to_priorities(open_parts):
  config = CONFIG.replace(priority_exponent=0.5, importance_exponent=1.0)
  client, writer, sampler = open_parts(config)
  _write(writer, 3, priority=9.0)
  _write(writer, 3, first=50, priority=1.0)
  batch = sampler.sample()
  is_first = _starts(batch) == 0
  np.testing.assert_allclose(batch.probability[is_first], 0.75)
  np.testing.assert_allclose(batch.probability[~is_first], 0.25)
  np.testing.assert_allclose(batch.importance_weight[is_first], 1 / 3, 1e-6)
  np.testing.assert_allclose(batch.importance_weight[~is_first], 1.0)
  assert 30 <= is_first.sum() <= 62  # Of 64, 48 on average; p < 1e-4.


def test_new_priorities_change_what_is_drawn(open_parts):
  _, writer, sampler = open_parts()
  _write(writer, 3)
  _write(writer, 3, first=50)
  batch = sampler.sample()
  sampler.update_priorities(batch.keys, np.where(_starts(batch) == 0, 0.0, 2.0))
  sampler.sample()  # Drawn ahead.
  sampler.sample()
  assert set(_starts(sampler.sample()).tolist()) == {50}


def test_the_oldest_make_room_and_may_be_updated(open_parts):
  _, writer, sampler = open_parts(CONFIG.replace(capacity=1))
  _write(writer, 3)
  old = sampler.sample()
  _write(writer, 3, first=50)
  sampler.update_priorities(old.keys, np.ones(64))
  for _ in range(2):
    sampler.sample()
  assert set(_starts(sampler.sample()).tolist()) == {50}


def test_a_server_goes_on_from_its_checkpoint(open_parts, tmp_path):
  client, writer, sampler = open_parts(directory=tmp_path)
  _write(writer, 3)
  servers.save(client, tmp_path)
  _write(writer, 3, first=50)
  batch = sampler.sample()
  sampler.update_priorities(batch.keys, np.where(_starts(batch) == 0, 3.0, 1.0))
  servers.save(client, tmp_path)
  assert len(list(tmp_path.iterdir())) == 1
  _, _, resumed = open_parts(directory=tmp_path)
  again = resumed.sample()
  share = 3.0**0.6 / (3.0**0.6 + 1.0)
  is_first = _starts(again) == 0
  np.testing.assert_allclose(again.probability[is_first], share)
  np.testing.assert_allclose(again.probability[~is_first], 1 - share)


def test_an_empty_table_is_named(open_parts):
  _, _, sampler = open_parts(CONFIG.replace(timeout_s=0.5))
  with pytest.raises(
    tables.ReplayTimeoutError, match=r"table 'mine' must sample within 0.5 s"
  ):
    sampler.sample()


def test_other_steps_are_refused(open_parts):
  _, writer, _ = open_parts()
  with pytest.raises(ValueError, match='must have the structure of the temp'):
    writer.append({'seen': np.zeros(2, np.float32)})
  wrong = {**STEP, 'seen': np.zeros(3, np.float32)}
  message = "step['seen'] (float32(3,)) must be float32(2,)"
  with pytest.raises(ValueError, match=re.escape(message)):
    writer.append(wrong)
  wrong = {**STEP, 'extra': {'index': np.int64(2**40)}}
  with pytest.raises(ValueError, match=r'\(int64\(\)\) must be int32\(\)'):
    writer.append(wrong)


@pytest.mark.parametrize('priority', [-1.0, np.nan, np.inf])
def test_priorities_that_are_none_are_refused(open_parts, priority):
  _, writer, sampler = open_parts()
  with pytest.raises(ValueError, match='must be finite and not negative'):
    writer.append(STEP, priority)
  with pytest.raises(ValueError, match='must be finite and not negative'):
    sampler.update_priorities(np.uint64([1]), np.array([priority]))
  with pytest.raises(ValueError, match='as many as the keys'):
    sampler.update_priorities(np.uint64([1, 2]), np.ones(1))


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'capacity': 0}, 'capacity (0) must be at least 1'),
    ({'period': 0}, 'period (0) must be at least 1'),
    ({'min_size': 21}, 'min_size (21) must be at most capacity (20)'),
    ({'priority_exponent': np.nan}, 'priority_exponent (nan) must be finite'),
    ({'importance_exponent': -1.0}, 'importance_exponent (-1.0) must be'),
  ],
)
def test_impossible_configs_are_refused(changes, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    CONFIG.replace(**changes)
