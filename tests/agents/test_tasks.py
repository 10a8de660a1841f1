"""What pixel control is of: images in any range, nested entries."""

import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches

from ftwax.agents import named, unreal
from ftwax.agents.actor_critic import tasks
from ftwax.environments import catch
from ftwax.losses import pixel_control
from ftwax.networks import cores, embeddings, torsos
from ftwax.records import loggers
from ftwax.runtime import experiment, runs


def _image_spec(dtype, low, high):
  return dm_env.specs.BoundedArray((24, 24, 3), dtype, low, high, 'image')


@pytest.mark.parametrize(
  ('dtype', 'low', 'high'),
  [(np.float32, 0, 255), (np.int32, 0, 255), (np.float32, -1, 1)],
)
def test_images_in_any_range_count_as_bytes_do(dtype, low, high):
  images = np.random.default_rng(0).integers(0, 256, (5, 2, 24, 24, 3), 'uint8')
  scaled = (low + (high - low) * (images / 255.0)).astype(dtype)
  task = tasks.PixelControl()
  found, expected = (
    pixel_control.pseudo_rewards(task.frames(jnp.asarray(frames), spec)[:, 0])
    for frames, spec in (
      (scaled, _image_spec(dtype, low, high)),
      (images, _image_spec(np.uint8, 0, 255)),
    )
  )
  atol = 1 / 255 if dtype == np.int32 else 1e-6
  np.testing.assert_allclose(found, expected, atol=atol)


def test_images_without_finite_bounds_stay_as_they_are():
  image = jnp.full((24, 24, 3), 200.0)
  for spec in (
    dm_env.specs.Array((24, 24, 3), np.float32),
    _image_spec(np.float32, -np.inf, np.inf),
  ):
    assert embeddings.scale_image(image, spec) is image


def _unreal(shape, torso='signal', **options):
  spec = fakes.make_spec(
    {
      'prices': dm_env.specs.Array(shape, np.float32, 'prices'),
      'velocity': dm_env.specs.Array((2,), np.float32, 'velocity'),
    },
    actions=dm_env.specs.DiscreteArray(4, name='action'),
  )
  config = unreal.UNREALConfig(
    core=cores.LSTM(8),
    torso=torsos.Torso(hidden_sizes=(7,), entries={'prices': torso}),
    tasks=(tasks.PixelControl(entry='prices', **options),),
    sequence_length=4,
    batch_size=2,
  )
  return config, spec


@pytest.mark.parametrize(
  ('shape', 'torso', 'options', 'grid'),
  [
    ((30, 3), 'signal', {}, (7,)),
    ((30, 3), 'mlp', {}, (7,)),
    ((30, 1), 'signal', {'cell_size': 2, 'crop_size': (28,)}, (14,)),
    # As the torso says, or the task itself, whatever the shape.
    ((8, 2), 'signal', {}, (2,)),
    ((32, 24), 'signal', {}, (8,)),
    ((32, 24), 'shallow', {}, (8, 6)),
    ((8, 4), 'mlp', {}, (2, 1)),
    ((8, 4), 'mlp', {'is_signal': True}, (2,)),
    ((16, 8), 'mlp', {'is_signal': False}, (4, 2)),
  ],
)
def test_a_signal_is_what_the_torso_takes_for_one(shape, torso, options, grid):
  config, spec = _unreal(shape, torso, **options)
  network = config.make_network(spec)
  head = network.heads['pixel_control']
  params = jax.eval_shape(network.init, jax.random.PRNGKey(0))
  width = params['pixel_control_head/linear']['w'].shape[0]
  values = jax.eval_shape(head, params, jnp.zeros((3, 2, width)))
  assert values.shape == (3, 2, *grid, 4)


@pytest.mark.parametrize(
  'name', ['unreal', pytest.param('a3c', marks=pytest.mark.ci)]
)
def test_agents_learn_to_control_a_signal(name, key):
  config, spec = _unreal((30, 3), 'mlp')
  config = named.AGENTS[name](
    **{
      field: getattr(config, field)
      for field in ('core', 'torso', 'tasks', 'sequence_length', 'batch_size')
    }
  )
  network = config.make_network(spec)
  learner = config.make_learner_core(network, spec)
  state = jax.jit(learner.init)(key)
  batch = random_batches.make_batch(0, spec, network, config)
  after, metrics = jax.jit(learner.update)(state, batch)
  assert metrics['pixel_control_error'] > 0.0 and int(after.skipped) == 0
  moved = [
    np.any(x != y)
    for part in after.params
    if part.startswith('pixel_control_head')
    for x, y in zip(
      jax.tree.leaves(after.params[part]),
      jax.tree.leaves(state.params[part]),
      strict=True,
    )
  ]
  assert len(moved) == 6 and all(moved)


@pytest.mark.ci
@pytest.mark.parametrize('name', ['unreal', 'a3c'])
def test_agents_train_where_observations_are_signals(name, tmp_path):
  """A board of 16 x 3 is a signal by its shape, whatever its torso."""
  agent = named.AGENTS[name](
    core=cores.LSTM(8),
    torso=torsos.Torso(hidden_sizes=(7,)),
    tasks=('pixel_control',),
    sequence_length=8,
    batch_size=4,
    num_minibatches=1,
  )
  result = runs.run_experiment(
    experiment.ExperimentConfig(
      agent=agent,
      environment=lambda seed: catch.make(16, 3),
      max_num_actor_steps=320,
      num_environments=4,
      checkpointing=None,
    ),
    runtime='device',
    run_dir=tmp_path / 'run',
  )
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'learner'))
  assert rows[-1]['pixel_control_live'] == 1.0
  assert np.isfinite(rows[-1]['loss']) and rows[-1]['pixel_control_error'] > 0.0


def test_a_nested_image_is_found_by_its_path():
  task = tasks.PixelControl(entry='state/external')
  frames = jnp.zeros((5, 2, 24, 24, 3), jnp.uint8)
  observation = {'state': {'external': frames, 'internal': jnp.ones(3)}}
  assert task.frames(observation) is frames
