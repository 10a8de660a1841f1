"""Images of what is seen and predicted, drawn from random batches."""

import fakes
import jax
import numpy as np
import pytest
import random_batches

from ftwax.agents import a2c, unreal
from ftwax.agents.actor_critic import images, tasks
from ftwax.networks import cores

SIDE, CELL = 24, 8
SPEC = fakes.make_image_spec((SIDE, SIDE, 3))
CONFIG = unreal.UNREALConfig(
  sequence_length=4,
  batch_size=2,
  core=cores.LSTM(4),
  torso='a3c',
  tasks=(
    tasks.PixelControl(cell_size=CELL, image_period=3),
    'reward_prediction',
  ),
)


# Gives a period.
_NO_CONTROL = tasks.PixelControl(image_period=6)


class _Recorder:
  def __init__(self):
    self.rows = []

  def write(self, values):
    self.rows.append(values)


def _write(agent, config, spec):
  """Returns rows written in six updates, the state, and the batch."""
  network = config.make_network(spec)
  core = config.make_learner_core(network, spec)
  state = core.init(jax.random.PRNGKey(0))
  batch = random_batches.make_batch(0, spec, network, config)
  if agent is a2c:
    batch = batch._replace(replay=None, reward_prediction=None)
  recorder = _Recorder()
  control = config.find_task(tasks.PixelControl) or _NO_CONTROL
  writer = images.ImageWriter(network, control, recorder)
  for num_steps in range(1, 7):
    writer.write_if_due(num_steps, state, batch)
  return recorder.rows, network, state, batch


@pytest.fixture(scope='module')
def written():
  return _write(unreal, CONFIG, SPEC)


def test_images_come_once_a_period(written):
  rows, *_ = written
  assert [row['learner_steps'] for row in rows] == [3, 6]


def test_the_last_frame_is_shown_as_it_is(written):
  (row, _), _, _, batch = written
  frames = batch.trajectory.timestep.observation
  np.testing.assert_array_equal(row['frame'], frames[-1, 0])
  assert row['frame'].dtype == np.uint8


def test_cells_have_the_size_of_the_frame(written):
  (row, _), _, _, batch = written
  frames = np.asarray(batch.trajectory.timestep.observation[-2:, 0], float)
  cells = np.abs(frames[1] - frames[0]).reshape(3, CELL, 3, CELL, 3)
  cells = cells.mean((1, 3, 4))
  low, high = cells.min(), cells.max()
  expected = np.kron((cells - low) / (high - low) * 255, np.ones((CELL, CELL)))
  np.testing.assert_allclose(row['pixel_change'][..., 0], expected, atol=1.01)
  shown = row['pixel_control']
  assert shown.shape == (SIDE, SIDE, 3) and shown.max() == 255
  np.testing.assert_array_equal(
    shown, np.kron(shown[::CELL, ::CELL], np.ones((CELL, CELL, 1)))
  )


def test_probabilities_are_those_of_the_head(written):
  (row, _), network, state, batch = written
  observation = batch.reward_prediction.observation
  logits = network.heads['reward_prediction'](state.params, observation)
  names = ('zero', 'negative', 'positive')
  np.testing.assert_allclose(
    [row[f'probability_{name}'] for name in names],
    jax.nn.softmax(logits[0]),
    rtol=1e-5,
  )
  np.testing.assert_array_equal(
    row['reward_prediction'],
    np.concatenate([np.asarray(frame[0]) for frame in observation], axis=1),
  )


def test_a_population_shows_its_first_member(written):
  (expected, _), network, state, batch = written
  recorder = _Recorder()
  writer = images.ImageWriter(network, CONFIG.tasks[0], recorder)
  members = jax.tree.map(
    lambda x, y: np.stack([x, y]),
    (state, batch),
    jax.tree.map(np.zeros_like, (state, batch)),
  )
  writer.write_if_due(3, *members)
  (row,) = recorder.rows
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1.01),
    row,
    expected,
  )


def test_an_agent_without_images_or_tasks_has_nothing_to_show():
  config = a2c.A2CConfig(sequence_length=4, batch_size=2, core=cores.LSTM(4))
  rows, *_ = _write(a2c, config, fakes.make_vector_spec())
  assert rows == [{'learner_steps': 6}]


def test_a_period_below_zero_is_refused():
  with pytest.raises(ValueError, match=r'image_period \(-1\) of PixelControl'):
    tasks.PixelControl(image_period=-1)
