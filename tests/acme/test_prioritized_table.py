"""The table that an agent samples from by priority, on a real Reverb server."""

import itertools

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reverb
import reverb_parts

from ftwax.acme import datasets, tables
from ftwax.replay import (
  prioritized_replay,
  replay_options,
  trajectories,
)

T, E = 4, 2
STATE = {'hidden': np.zeros((E, 3), np.float32)}
TEMPLATE = trajectories.make_template(
  fakes.make_image_spec((2, 2, 1)), STATE, T
)
# Batches that an iterator may have sampled before what a test does next.
_AHEAD = 4
OPTIONS = replay_options.Prioritized(capacity=12, burn_in=2, min_size=2)


@pytest.fixture
def make_parts():
  """Makes a server of prioritized and auxiliary tables, and its parts."""

  with reverb_parts.making() as make_of:

    def make(config=OPTIONS, batch_size=8, **changes):
      options = replay_options.ReplayOptions(prioritized=config, **changes)
      limiter = reverb.rate_limiters.MinSize(config.min_size)
      server_tables = [
        *tables.make_prioritized_tables(config, TEMPLATE, limiter),
        *tables.make_auxiliary_tables(options, TEMPLATE),
      ]
      return make_of(server_tables, TEMPLATE, E, batch_size, options)

    yield make


def _make_record(first_seeds, mark=0.0):
  """Returns a trajectory of each environment; rewards tell when it was made."""

  def widen(leaf):
    return np.repeat(np.asarray(leaf)[:, None], E, axis=1)

  trajectory = TEMPLATE._replace(recurrent_state=())
  trajectory = jax.tree.map(widen, trajectory)
  seed = np.asarray(first_seeds, np.int32) + np.arange(T + 1)[:, None]
  reward = np.full((T + 1, E), mark, np.float32) + [0.0, 0.5]
  return trajectories.Record(
    trajectory._replace(
      seed=seed.astype(np.int32),
      timestep=trajectory.timestep._replace(reward=reward.astype(np.float32)),
      recurrent_state={'hidden': np.full((E, 3), mark, np.float32)},
    ),
    # No sequence of two frames ends at the first timestep.
    np.array(
      [[trajectories.NONE] * E] + [[trajectories.ZERO] * E] * (T - 1), np.int8
    ),
    np.zeros(E, np.int64),
    np.zeros(E, np.float64),
  )


def _add(adder, seeds, begin=0):
  for number, first in enumerate(seeds):
    adder.insert(_make_record(first, begin + number))
  adder.flush()


def _sample_until(iterator, seen, size):
  """Yields samples until `size` were `seen`: Reverb draws without a seed.

  What has a share of one draw in 200 is not in 40 batches of 8 in a fifth of
  all tries; it is in 1,000 batches in all but e^-40 of them.
  """
  for sample in itertools.islice(iterator, 1_000):
    yield sample
    if len(seen) == size:
      return


def test_burn_in_is_of_one_stream_and_never_spans_a_break(make_parts):
  _, adder, iterator = make_parts()
  # Environment 1 begins anew at its fourth trajectory.
  _add(adder, [(T * n, 100 + T * n + 1000 * (n >= 3)) for n in range(5)])
  seen = set()
  for sample in _sample_until(iterator, seen, 10):
    *burn_in, last = (*sample.batch.burn_in, sample.batch.trajectory)
    rewards = np.stack([x.timestep.reward[0] for x in (*burn_in, last)])
    states = np.stack(
      [x.recurrent_state['hidden'][:, 0] for x in (*burn_in, last)]
    )
    # Each comes with the state that was stored at its start.
    np.testing.assert_array_equal(states, np.floor(rewards))
    seen.update(tuple(row) for row in rewards.T.tolist())
    for past, present in itertools.pairwise((*burn_in, last)):
      continues = np.asarray(past.seed)[-1] == np.asarray(present.seed)[0]
      is_same = np.asarray(past.seed)[0] == np.asarray(present.seed)[0]
      assert np.all(continues ^ is_same)
  assert seen == {
    # The first of a stream takes the place of those that it does not have.
    *[(0.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 2.0)],
    *[(1.0, 2.0, 3.0), (2.0, 3.0, 4.0)],
    *[(0.5, 0.5, 0.5), (0.5, 0.5, 1.5), (0.5, 1.5, 2.5)],
    *[(3.5, 3.5, 3.5), (3.5, 3.5, 4.5)],
  }


def test_the_oldest_make_place_and_nothing_is_used_up(make_parts):
  client, adder, iterator = make_parts()
  _add(adder, [(T * n, 100 + T * n) for n in range(8)])
  assert client.server_info()[tables.REPLAY].current_size == 12
  for _ in range(_AHEAD):
    next(iterator)
  marks = set()
  for sample in _sample_until(iterator, marks, 12):
    assert sample.info.table_size == 12
    marks.update(sample.batch.trajectory.timestep.reward[0].tolist())
  assert marks == {
    mark + offset for mark in range(2, 8) for offset in (0.0, 0.5)
  }


@pytest.mark.parametrize('is_equal', [True, False])
def test_weights_are_those_of_the_functional_replay(make_parts, is_equal):
  numbers = OPTIONS.replace(priority_exponent=0.7, importance_exponent=0.6)
  client, adder, iterator = make_parts(OPTIONS.replace(burn_in=0))
  rounds = [(T * n, 100 + T * n) for n in range(6)]
  _add(adder, rounds)
  # Priorities by what the rewards tell.
  errors = {0.5 * n: 1.0 if is_equal else 0.1 + n for n in range(12)}
  replay = prioritized_replay.make_prioritized_replay(
    OPTIONS.replace(burn_in=0),
    replay_options.ReplayOptions(),
    TEMPLATE,
    64,
    E,
  )
  state = replay.init(jax.random.PRNGKey(0))
  for number, first in enumerate(rounds):
    record = _make_record(first, number)
    state = replay.add(state, record.trajectory, record.reward_class)
  everything = prioritized_replay.Drawn(
    None, np.arange(12) % E, np.arange(12) // E, True
  )
  state = replay.update_priorities(
    state, everything, jnp.array(list(errors.values())), numbers
  )
  _, drawn = replay.draw(state, numbers)
  expected = dict(
    zip(
      np.asarray(drawn.batch.trajectory.timestep.reward[0]).tolist(),
      np.asarray(drawn.batch.weight).tolist(),
      strict=True,
    )
  )
  priorities = tables.Priorities(client, OPTIONS)
  keys = {}
  while len(keys) < 12:
    sample = next(iterator)
    marks = np.asarray(sample.batch.trajectory.timestep.reward[0]).tolist()
    keys.update(zip(marks, sample.info.keys, strict=True))
  raised = prioritized_replay.raise_priorities(
    jnp.array([errors[mark] for mark in keys]), numbers
  )
  priorities.update(
    np.array(list(keys.values()), np.uint64), np.asarray(raised)
  )
  for _ in range(_AHEAD):
    next(iterator)
  weights = {}
  for sample in _sample_until(iterator, weights, 12):
    probability = sample.info.probability
    marks = np.asarray(sample.batch.trajectory.timestep.reward[0])
    power = np.array([errors[mark] ** 0.7 for mark in marks.tolist()])
    total = sum(error**0.7 for error in errors.values())
    np.testing.assert_allclose(probability, power / total, rtol=1e-5)
    own = prioritized_replay.importance_weights(
      jnp.asarray(probability), numbers
    )
    # Both are relative to the largest of their batch.
    weights.update(
      zip(
        marks.tolist(), np.asarray(own) * probability.min() ** -0.6, strict=True
      )
    )
  largest = max(expected, key=expected.get)
  for mark, weight in expected.items():
    np.testing.assert_allclose(
      weight, weights[mark] / weights[largest], rtol=1e-5
    )
  if is_equal:
    assert set(expected.values()) == {1.0}


def test_the_largest_priority_is_fetched_where_it_is_new(
  make_parts, monkeypatch
):
  client, adder, iterator = make_parts()
  largest = tables.LargestPriority(client)
  fetched = []

  def sample(table):
    fetched.append(table)
    return reverb.Client.sample(client, table)

  monkeypatch.setattr(client, 'sample', sample)
  assert [largest.read(), largest.read(), fetched] == [1.0, 1.0, []]
  _add(adder, [(0, 100), (T, 100 + T)])
  priorities = tables.Priorities(client, OPTIONS)
  keys = next(iterator).info.keys[:1]
  for number, value in enumerate((5.0, 6.0), 1):
    priorities.update(keys, np.array([value], np.float32))
    assert [largest.read() for _ in range(3)] == [value] * 3
    assert len(fetched) == number
  # Another server, which was not taught yet.
  client.reset(tables.LARGEST_PRIORITY)
  assert largest.read() == 1.0


def test_new_trajectories_get_the_largest_priority(make_parts):
  client, adder, iterator = make_parts()
  largest = tables.LargestPriority(client)
  _add(adder, [(0, 100), (T, 100 + T)])
  assert largest.read() == 1.0
  priorities = tables.Priorities(client, OPTIONS)
  seen = set()
  for sample in _sample_until(iterator, seen, 4):
    seen.update(sample.info.keys.tolist())
  keys = np.array(sorted(seen)[:2], np.uint64)
  priorities.update(keys, np.array([np.nan, 5.0], np.float32))
  assert largest.read() == 5.0
  # As many samples as the table has items later, it is forgotten.
  for _ in range(6):
    priorities.update(keys, np.array([0.25, 0.5], np.float32))
  assert largest.read() == 0.5
  # What is not finite or gone changes nothing.
  priorities.update(keys, np.array([np.nan, np.inf], np.float32))
  priorities.update(np.array([1], np.uint64), np.array([0.5], np.float32))
  assert largest.read() == 0.5
  _add(adder, [(2 * T, 100 + 2 * T)], begin=2)
  found = {
    sample.info.key: sample.info.priority
    for sample in client.sample(tables.REPLAY, 300, emit_timesteps=False)
  }
  # One was set, one has its first priority, two new ones the largest.
  assert sorted(found.values()) == [0.25, 0.5, 0.5, 0.5, 1.0, 1.0]


def test_tasks_keep_tables_of_their_own(make_parts):
  client, adder, iterator = make_parts(
    reward_prediction_capacity=20, sequences=trajectories.Sequences(2, 1)
  )
  _add(adder, [(T * n, 100 + T * n) for n in range(3)])
  info = client.server_info()
  assert info[tables.REWARD_PREDICTION_ZERO].current_size == 6
  for _ in range(3):
    sample = next(iterator)
  assert bool(sample.batch.reward_prediction.is_live)
  assert sample.batch.trajectory.timestep.reward.shape == (T + 1, 8)


def test_frames_are_decoded_in_burn_in_too(make_parts):
  _, adder, iterator = make_parts(OPTIONS, 2, delta_encodes=True)
  frames = np.random.default_rng(0).integers(
    0, 256, (3, T + 1, E, 2, 2, 1), np.uint8
  )
  for number in range(3):
    record = _make_record((T * number, 100 + T * number), number)
    timestep = record.trajectory.timestep._replace(observation=frames[number])
    adder.insert(
      record._replace(trajectory=record.trajectory._replace(timestep=timestep))
    )
  adder.flush()
  for sample in itertools.islice(iterator, 5):
    for part in (*sample.batch.burn_in, sample.batch.trajectory):
      mark = np.asarray(part.timestep.reward[0])
      for column, value in enumerate(mark.tolist()):
        np.testing.assert_array_equal(
          part.timestep.observation[:, column],
          frames[int(value), :, int(2 * (value % 1))],
        )


def test_an_empty_table_is_named(make_parts):
  client, _, iterator = make_parts()
  iterator.close()
  starved = datasets.TrajectoryIterator(
    client,
    TEMPLATE,
    2,
    0.3,
    options=replay_options.ReplayOptions(prioritized=OPTIONS),
  )
  with pytest.raises(
    tables.ReplayTimeoutError, match=r"table 'replay' must sample within 0.3 s"
  ):
    next(starved)
  starved.close()
