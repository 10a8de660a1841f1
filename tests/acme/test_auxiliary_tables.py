"""The tables beside the queue, on a real Reverb server."""

import pathlib
import shutil

import dm_env
import fakes
import jax
import numpy as np
import pytest
import reverb_parts

from ftwax.acme import (
  columns,
  datasets,
  tables,
)
from ftwax.replay import replay_options, trajectories

T, E = 8, 2
STATE = {'hidden': np.zeros((E, 3), np.float32)}


def _make_template(frame):
  spec = fakes.make_image_spec(frame)._replace(
    rewards=dm_env.specs.Array((2,), np.float32)
  )
  return trajectories.make_template(spec, STATE, T)


TEMPLATE = _make_template((4, 4, 1))
FIRST, MID, LAST = 0, 1, 2


def _options(**changes):
  options = replay_options.ReplayOptions(
    replay_capacity=10,
    reward_prediction_capacity=20,
    sequences=trajectories.Sequences(3, 1),
  )
  return options._replace(**changes)


@pytest.fixture
def make_parts():
  """Makes a server of a queue and of auxiliary tables, and its parts."""

  with reverb_parts.making() as make_of:

    def make(options, batch_size=2, template=TEMPLATE):
      server_tables = [
        tables.make_queue(tables.QUEUE, 100, template),
        *tables.make_auxiliary_tables(options, template),
      ]
      return make_of(server_tables, template, E, batch_size, options)

    yield make


def _frame(step):
  """Frames that tell their step and environment."""
  rows = (7 * step + 100 * np.arange(E)) % 256
  return np.broadcast_to(rows[:, None, None, None], (E, 4, 4, 1)).astype('u1')


def _add(adder, num_trajectories, events, weights=(1.0, 1.0)):
  """Adds timesteps; `events(step)` [E, 2] are those of each."""
  for step in range(num_trajectories * T + 1):
    adder.add_timestep(
      dm_env.TimeStep(
        step_type=np.full(E, FIRST if step == 0 else MID, np.int32),
        reward=np.asarray(events(step), np.float32) * np.ones((E, 2), 'f'),
        discount=np.ones(E, np.float32),
        observation=_frame(step),
      ),
      np.zeros(E, np.int32),
      STATE,
      np.full(E, step, np.int32),
    )
    adder.add_choice(np.zeros((E, 3), 'f'), 0, np.asarray(weights, 'f'))
  adder.flush()


def _never(step):
  del step
  return np.zeros(2)


def test_empty_tables_give_zeros_that_are_not_live(make_parts):
  # No trajectory holds a sequence as long as itself.
  options = _options(sequences=trajectories.Sequences(T + 1, 1))
  client, adder, iterator = make_parts(options)
  assert not datasets.can_sample(client, tables.REPLAY)
  _add(adder, 1, _never)
  batch = next(iterator).batch
  assert not batch.reward_prediction.is_live
  assert not np.any(batch.reward_prediction.observation)
  assert batch.reward_prediction.observation.shape == (T + 1, 2, 4, 4, 1)
  assert batch.trajectory.timestep.observation.shape == (T + 1, 2, 4, 4, 1)


def test_replayed_trajectories_are_those_of_the_queue(make_parts):
  client, adder, iterator = make_parts(_options(replay_capacity=3))
  _add(adder, 3, _never)
  fresh = [next(iterator).batch for _ in range(3)]
  assert client.server_info()[tables.REPLAY].current_size == 3
  assert datasets.can_sample(client, tables.REPLAY)
  seen = [
    np.asarray(batch.trajectory.timestep.observation[:, i])
    for batch in fresh
    for i in range(2)
  ]
  replay = fresh[-1].replay
  assert replay.is_live
  for column in range(2):
    frames_column = replay.trajectory.timestep.observation[:, column]
    assert any(np.array_equal(frames_column, other) for other in seen)


@pytest.mark.parametrize('delta_encodes', [False, True])
def test_half_of_the_sequences_come_before_a_reward(make_parts, delta_encodes):
  options = _options(delta_encodes=delta_encodes)
  _, adder, iterator = make_parts(options, batch_size=6)

  def events(step):  # Every fifth step the second event happens.
    return [0.0, float(step % 5 == 0)]

  _add(adder, 6, events)
  batch = [next(iterator).batch for _ in range(2)][-1].reward_prediction
  assert batch.is_live and batch.reward.shape == (6, 2)
  np.testing.assert_array_equal(batch.reward[:, 0], np.zeros(6))
  np.testing.assert_array_equal(batch.reward[:, 1], [1, 1, 1, 0, 0, 0])
  for column in range(6):
    shown = np.asarray(batch.observation[:, column, 0, 0, 0], np.int64)
    # Three frames in a row, and the reward is that of the next step.
    assert set(np.diff(shown) % 256) == {7}
    steps = [
      step
      for step in range(6 * T)
      for env in range(E)
      if (7 * step + 100 * env) % 256 == shown[-1]
    ]
    assert any(events(step + 1)[1] == batch.reward[column, 1] for step in steps)


@pytest.mark.parametrize('value', [0.0, 0.5])
@pytest.mark.parametrize('threshold', [0.0, 0.5])
def test_rewards_of_one_kind_are_all_that_is_sampled(
  make_parts, value, threshold
):
  options = _options(sequences=trajectories.Sequences(3, 1, threshold))
  client, adder, iterator = make_parts(options, batch_size=4)
  _add(adder, 4, lambda step: [0.0, value])
  batch = [next(iterator).batch for _ in range(2)][-1].reward_prediction
  assert batch.is_live
  np.testing.assert_array_equal(batch.reward[:, 1], [value] * 4)
  shown = np.asarray(batch.observation[..., 0, 0, 0], np.int64)
  assert np.all(np.diff(shown, axis=0) % 256 == 7)
  info = client.server_info()
  is_zero = value <= threshold
  for name, size in (
    (tables.REWARD_PREDICTION_ZERO, 4 * E * is_zero),
    (tables.REWARD_PREDICTION_NONZERO, 4 * E * (not is_zero)),
  ):
    assert info[name].current_size == size


def test_events_without_worth_are_no_rewards(make_parts):
  client, adder, _ = make_parts(_options())
  _add(adder, 2, lambda step: [1.0, 0.0], weights=(0.0, 1.0))
  info = client.server_info()
  assert info[tables.REWARD_PREDICTION_NONZERO].current_size == 0
  assert info[tables.REWARD_PREDICTION_ZERO].current_size == 2 * E


def test_classes_respect_episodes_and_the_period():
  step_type = np.array([MID, MID, MID, LAST, FIRST, MID, MID, MID, MID])
  reward = np.array([0, 0, 0, 5, 0, 0, 0, -1, 0], np.float32)
  classes = trajectories.classify(
    step_type, reward, trajectories.Sequences(3, 1)
  )
  # Ends at 2 (reward 5 follows), 6 (-1 follows) and 7 (0 follows).
  np.testing.assert_array_equal(classes, [0, 0, 2, 0, 0, 0, 2, 1])
  every_other = trajectories.classify(
    step_type, reward, trajectories.Sequences(3, 2)
  )
  np.testing.assert_array_equal(every_other, [0, 0, 2, 0, 0, 0, 2, 0])
  single = trajectories.classify(
    step_type, reward, trajectories.Sequences(1, 1)
  )
  np.testing.assert_array_equal(single, [1, 1, 2, 0, 1, 1, 2, 1])


def test_sequences_are_drawn_alike_whatever_their_trajectory(make_parts):
  """A trajectory with four rewards is drawn four times as often as with one."""
  options = _options(sequences=trajectories.Sequences(1, 1))
  client, adder, iterator = make_parts(options)
  iterator.close()

  def events(step):
    often = 1 <= step <= 4  # In the first trajectory four, then one.
    return [0.0, float(often or step == T + 2)]

  _add(adder, 2, events)
  sampler = datasets.RewardPredictionSampler(
    client, TEMPLATE, 2, 1, is_delta_encoded=False
  )
  num_draws, counts = 600, {}
  for _ in range(num_draws):
    shown = int(sampler.sample().observation[0, 0, 0, 0, 0])
    counts[shown] = counts.get(shown, 0) + 1
  sampler.close()
  # Five sequences in each of two environments.
  expected = num_draws / (5 * E)
  assert len(counts) == 5 * E
  statistic = sum((n - expected) ** 2 / expected for n in counts.values())
  assert statistic < 27.9  # Chi-square, 9 degrees of freedom, p = 0.001.


def test_delta_encoding_loses_nothing():
  observation = {
    'image': np.random.default_rng(0).integers(0, 256, (5, 3, 3), np.uint8),
    'vector': np.ones((5, 2), np.float32),
  }
  encoded = columns.encode_frames(observation)
  assert not np.array_equal(encoded['image'], observation['image'])
  jax.tree.map(
    np.testing.assert_array_equal, columns.decode_frames(encoded), observation
  )


def _saved_bytes(client):
  """Returns the size of all that the server holds, by its own checkpoint."""
  path = pathlib.Path(client.checkpoint())
  size = sum(file.stat().st_size for file in path.rglob('*') if file.is_file())
  shutil.rmtree(path.parent)
  return size


def test_frames_are_stored_once(make_parts):
  """Bytes in the server for four tables against those for one."""

  def count(options, num_items):
    client, adder, iterator = make_parts(
      options, template=_make_template((64, 64, 3))
    )
    iterator.close()
    rng = np.random.default_rng(0)
    for step in range(10 * T + 1):
      adder.add_timestep(
        dm_env.TimeStep(
          step_type=np.full(E, MID, np.int32),
          reward=np.full((E, 2), step % 2, np.float32),
          discount=np.ones(E, np.float32),
          observation=rng.integers(0, 256, (E, 64, 64, 3), np.uint8),
        ),
        np.zeros(E, np.int32),
        STATE,
        np.full(E, step, np.int32),
      )
      adder.add_choice(np.zeros((E, 3), 'f'), 0, np.ones(2, 'f'))
    adder.flush()
    info = client.server_info()
    assert [table.current_size for table in info.values()] == num_items
    return _saved_bytes(client)

  capacities = {'replay_capacity': 50, 'reward_prediction_capacity': 50}
  num_bytes = 10 * E * (T + 1) * 64 * 64 * 3
  alone = count(replay_options.QUEUE_ALONE, [10 * E])
  together = count(_options(**capacities), [10 * E] * 4)
  assert alone > num_bytes  # Noise: nothing to compress.
  assert together < 1.1 * alone
