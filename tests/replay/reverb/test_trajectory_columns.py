"""Records, and the columns that they are stored in."""

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.replay import trajectories
from ftwax.replay.reverb import trajectory_columns

T, E = 4, 3

# Whatever a recurrent state may hold.
STATE = {
  'half': np.zeros((1, 3), jnp.bfloat16),
  'is_new': np.zeros(1, bool),
  'memory': np.zeros((1, 2, 5), np.float32),
  'nothing': np.zeros((1, 0), np.float32),
  'ticks': np.zeros(1, np.int32),
  'key': np.zeros((1, 2), np.uint32),
}


def _draw(rng, leaf):
  """Returns an array like `leaf`, E times, of any bits that it may have."""
  drawn = rng.integers(0, 2 if leaf.dtype == bool else 100, (E, *leaf.shape))
  return drawn.astype(leaf.dtype)


@pytest.mark.parametrize('state', [(), STATE], ids=['none', 'dict'])
@pytest.mark.parametrize(
  'spec', [fakes.make_dict_spec(), fakes.make_composite_spec()]
)
def test_what_is_packed_comes_back(spec, state):
  template = trajectory_columns.make_template(
    trajectories.make_template(spec, state, T)
  )
  rng = np.random.default_rng(0)
  written = jax.tree.map(lambda leaf: _draw(rng, leaf), template)
  columns = trajectory_columns.pack(written)
  like = trajectory_columns.make_columns_template(template)
  for leaf, one in zip(
    jax.tree.leaves(columns), jax.tree.leaves(like), strict=True
  ):
    assert leaf.shape == (E, *one.shape) and leaf.dtype == one.dtype
  items = [
    jax.tree.map(lambda leaf, i=index: leaf[i], columns) for index in (2, 0)
  ]
  read = trajectory_columns.unpack(items, template)

  def time_major(leaf):
    return leaf[[2, 0]].swapaxes(0, 1)

  trajectory = written.trajectory
  expected = written._replace(
    trajectory=jax.tree.map(
      time_major, trajectory._replace(recurrent_state=())
    )._replace(
      recurrent_state=jax.tree.map(
        lambda leaf: leaf[[2, 0]], trajectory.recurrent_state
      )
    ),
    reward_class=written.reward_class[[2, 0]],
    variables_steps=written.variables_steps[[2, 0]],
    written_at=written.written_at[[2, 0]],
  )
  assert jax.tree.structure(read) == jax.tree.structure(expected)
  jax.tree.map(np.testing.assert_array_equal, read, expected)
  for leaf, one in zip(
    jax.tree.leaves(read), jax.tree.leaves(template), strict=True
  ):
    assert leaf.dtype == one.dtype


def test_the_parts_of_a_state_are_one_column():
  spec = fakes.make_vector_spec()
  small = trajectory_columns.make_columns_template(
    trajectory_columns.make_template(trajectories.make_template(spec, (), T))
  )
  large = trajectory_columns.make_columns_template(
    trajectory_columns.make_template(trajectories.make_template(spec, STATE, T))
  )
  assert jax.tree.structure(small) == jax.tree.structure(large)
  assert len(jax.tree.leaves(large)) == 4
  assert len(large.rest) - len(small.rest) == 3 * 2 + 1 + 40 + 4 + 8
