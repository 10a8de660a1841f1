"""Adder, table and iterator on a real Reverb server."""

import time

import dm_env
import fakes
import jax
import numpy as np
import pytest
import reverb

from ftwax import types
from ftwax.acme import adders, datasets, servers, tables
from ftwax.replay import trajectories

SEQUENCE_LENGTH = 4
NUM_ENVIRONMENTS = 2
SPEC = fakes.make_composite_spec()


def _recurrent_state(value):
  return {'hidden': np.full((NUM_ENVIRONMENTS, 3), value, np.float32)}


TEMPLATE = trajectories.make_template(
  SPEC, _recurrent_state(0.0), SEQUENCE_LENGTH
)


@pytest.fixture
def client_of():
  """Makes servers, which stop after the test, and returns their clients."""
  servers_made = []

  def make(max_size=1000):
    table = tables.make_queue(tables.QUEUE, max_size, TEMPLATE)
    servers_made.append(servers.make_server([table]))
    return servers_made[-1].localhost_client()

  yield make
  for server in servers_made:
    server.stop()


def _timestep(step, step_type=None):
  """Timestep number `step`, told apart by its values in each environment."""
  rows = 100 * np.arange(NUM_ENVIRONMENTS) + step
  if step_type is None:
    step_type = dm_env.StepType.FIRST if step == 0 else dm_env.StepType.MID
  return dm_env.TimeStep(
    step_type=np.full(NUM_ENVIRONMENTS, step_type, np.int32),
    reward=rows.astype(np.float32),
    discount=np.ones(NUM_ENVIRONMENTS, np.float32),
    observation=np.tile(rows[:, None], (1, 4)).astype(np.float32),
  )


def _action(step):
  return {
    'move': np.full(NUM_ENVIRONMENTS, step % 3, np.int32),
    'fire': np.full(NUM_ENVIRONMENTS, step % 2, np.int32),
  }


def _logits(step):
  rows = 100 * np.arange(NUM_ENVIRONMENTS) + step
  return {
    'move': np.tile(rows[:, None], (1, 3)).astype(np.float32),
    'fire': np.tile(-rows[:, None], (1, 2)).astype(np.float32),
  }


def _add_steps(adder, num_steps, last_steps=()):
  for step in range(num_steps):
    step_type = dm_env.StepType.LAST if step in last_steps else None
    adder.add_timestep(
      _timestep(step, step_type),
      _action(step),
      _recurrent_state(step),
      np.full(NUM_ENVIRONMENTS, step, np.int32),
    )
    if step not in last_steps:
      adder.add_choice(_logits(step), 7 * step, np.ones(1, np.float32))


def _make_adder(client, timeout_s=20.0):
  return adders.TrajectoryAdder(client, TEMPLATE, NUM_ENVIRONMENTS, timeout_s)


def _make_iterator(client, batch_size, timeout_s=20.0):
  return datasets.TrajectoryIterator(
    client, TEMPLATE, batch_size, timeout_s, prefetch_size=1
  )


def test_trajectories_come_back_as_they_were_added(client_of):
  client = client_of()
  adder = _make_adder(client)
  iterator = _make_iterator(client, batch_size=4)
  before = time.time()
  _add_steps(adder, 2 * SEQUENCE_LENGTH + 1)
  assert adder.num_items == 4
  sample = next(iterator)
  trajectory = sample.batch.trajectory
  # In the order of time, then of environments; neighbours share a timestep.
  for column, (first, row) in enumerate([(0, 0), (0, 1), (4, 0), (4, 1)]):
    steps = np.arange(first, first + SEQUENCE_LENGTH + 1)
    values = 100 * row + steps
    observation = np.tile(values[:, None], (1, 4))
    np.testing.assert_array_equal(trajectory.timestep.reward[:, column], values)
    np.testing.assert_array_equal(
      trajectory.timestep.observation[:, column], observation
    )
    np.testing.assert_array_equal(
      trajectory.previous_action['move'][:, column], steps % 3
    )
    np.testing.assert_array_equal(
      trajectory.logits['fire'][:, column, 0], -values[:-1]
    )
    np.testing.assert_array_equal(
      trajectory.recurrent_state['hidden'][column], np.full(3, first)
    )
  np.testing.assert_array_equal(sample.variables_steps, [0, 0, 28, 28])
  assert np.all(sample.written_at >= before)
  assert np.all(sample.written_at <= time.time())
  assert trajectory.timestep.step_type.shape == (SEQUENCE_LENGTH + 1, 4)
  assert isinstance(trajectory.timestep.reward, jax.Array)
  adder.close()
  iterator.close()


def test_a_reader_of_a_dead_server_closes_at_once(client_of, monkeypatch):
  """It does not wait for its thread, which waits for the server."""
  monkeypatch.setattr(datasets, '_POLL_S', 4.0)
  monkeypatch.setattr(datasets, '_JOIN_S', 3.5)
  iterator = _make_iterator(client_of(), batch_size=2)
  time.sleep(0.5)
  iterator._client = reverb.Client('localhost:1')
  before = time.monotonic()
  iterator.close()
  assert time.monotonic() - before < 2.0
  iterator._thread.join()


def test_a_step_without_a_choice_has_zero_logits(client_of):
  client = client_of()
  adder = _make_adder(client)
  iterator = _make_iterator(client, batch_size=2)
  # The second trajectory overwrites rows of the first.
  _add_steps(adder, 2 * SEQUENCE_LENGTH + 1, last_steps=(6,))
  next(iterator)
  logits = np.asarray(next(iterator).batch.trajectory.logits['move'])
  assert np.all(logits[2] == 0.0)
  assert np.all(logits[[0, 1, 3]] != 0.0)
  adder.close()
  iterator.close()


def test_an_episode_that_ends_on_the_seam_loses_nothing(client_of):
  """A trajectory may begin with LAST; its age is that of its first choice."""
  client = client_of()
  adder = _make_adder(client)
  iterator = _make_iterator(client, batch_size=2)
  _add_steps(adder, 2 * SEQUENCE_LENGTH + 1, last_steps=(4,))
  assert next(iterator).batch.trajectory.timestep.step_type[-1, 0] == 2
  sample = next(iterator)
  assert (
    sample.batch.trajectory.timestep.step_type[0, 0] == dm_env.StepType.LAST
  )
  np.testing.assert_array_equal(sample.variables_steps, [35, 35])
  adder.close()
  iterator.close()


def test_each_item_is_used_once(client_of):
  client = client_of()
  adder = _make_adder(client)
  iterator = _make_iterator(client, batch_size=2, timeout_s=2.0)
  _add_steps(adder, 6 * SEQUENCE_LENGTH + 1)
  rewards = [
    float(next(iterator).batch.trajectory.timestep.reward[0, 0])
    for _ in range(6)
  ]
  assert rewards == [0, 4, 8, 12, 16, 20]
  with pytest.raises(tables.ReplayTimeoutError):
    next(iterator)
  adder.close()
  iterator.close()


def test_an_iterator_that_starves_names_the_table(client_of):
  client = client_of()
  iterator = _make_iterator(client, batch_size=2, timeout_s=0.5)
  with pytest.raises(
    tables.ReplayTimeoutError,
    match=r"table 'queue' must sample within 0.5 s and did not: it holds 0 of"
    r' 1000 items, after 0 inserts and 0 samples; check that actors',
  ):
    next(iterator)
  iterator.close()


def test_idle_samplers_lose_nothing(client_of, monkeypatch):
  """Items that come just as the sampler gives up and starts again."""
  monkeypatch.setattr(datasets, '_POLL_S', 0.005)
  client = client_of()
  adder = _make_adder(client)
  iterator = _make_iterator(client, batch_size=2)
  rng = np.random.default_rng(0)
  for step in range(300 * SEQUENCE_LENGTH + 1):
    adder.add_timestep(
      _timestep(step),
      _action(step),
      _recurrent_state(step),
      np.full(NUM_ENVIRONMENTS, step, np.int32),
    )
    if step % SEQUENCE_LENGTH == 0:
      time.sleep(rng.uniform(0.004, 0.006))
  for index in range(300):
    reward = next(iterator).batch.trajectory.timestep.reward[0]
    np.testing.assert_array_equal(
      reward, [index * SEQUENCE_LENGTH, 100 + index * SEQUENCE_LENGTH]
    )
  adder.close()
  iterator.close()


def test_an_adder_whose_table_is_full_names_it(client_of):
  client = client_of(max_size=1)
  adder = _make_adder(client, timeout_s=0.5)
  with pytest.raises(
    tables.ReplayTimeoutError,
    match=r"table 'queue' must insert within 0.5 s and did not: it holds 1 of"
    r' 1 items.*raise its max_size',
  ):
    _add_steps(adder, 2 * SEQUENCE_LENGTH + 1)


def test_a_server_that_does_not_answer_is_named(monkeypatch):
  monkeypatch.setattr(servers, '_OPEN_S', 0.5)
  server = servers.make_server([tables.make_queue('queue', 1, TEMPLATE)])
  client = server.localhost_client()
  server.stop()
  with pytest.raises(
    tables.ReplayTimeoutError, match=r'localhost:\d+ must answer within 0.5 s'
  ):
    _make_adder(client)


def test_what_ends_the_sampling_thread_is_raised():
  server = servers.make_server([tables.make_queue('other', 1, TEMPLATE)])
  iterator = _make_iterator(server.localhost_client(), batch_size=2)
  with pytest.raises(Exception, match='queue'):
    next(iterator)
  iterator.close()
  server.stop()


def test_a_busy_port_is_refused(client_of):
  client = client_of()
  port = int(client.server_address.rsplit(':', 1)[1])
  with pytest.raises(
    OSError, match=rf'port \({port}\) of the replay server must be free'
  ):
    servers.make_server([tables.make_queue('other', 1, TEMPLATE)], port)


def test_the_template_has_the_shapes_of_the_environment():
  image = trajectories.make_template(
    fakes.make_image_spec(), _recurrent_state(0.0), SEQUENCE_LENGTH
  )
  assert image.timestep.observation.shape == (5, 8, 8, 3)
  assert image.timestep.observation.dtype == np.uint8
  assert image.logits.shape == (4, 3)
  assert isinstance(image, types.Trajectory)
