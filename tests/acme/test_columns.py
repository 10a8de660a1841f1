"""Records, and the columns that they are stored in."""

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.acme import columns
from ftwax.replay import trajectories

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


def _time_major(record):
  """Swaps the first axes [E, T, ...] of leaves that have both."""
  trajectory = jax.tree.map(
    lambda leaf: leaf.swapaxes(0, 1),
    record.trajectory._replace(recurrent_state=()),
  )
  return record._replace(
    trajectory=trajectory._replace(
      recurrent_state=record.trajectory.recurrent_state
    ),
    reward_class=record.reward_class.swapaxes(0, 1),
  )


@pytest.mark.parametrize('state', [(), STATE], ids=['none', 'dict'])
@pytest.mark.parametrize(
  'spec', [fakes.make_dict_spec(), fakes.make_composite_spec()]
)
def test_what_is_packed_comes_back(spec, state):
  template = columns.make_record(trajectories.make_template(spec, state, T))
  rng = np.random.default_rng(0)
  rows = jax.tree.map(lambda leaf: _draw(rng, leaf), template)
  packed = columns.pack(_time_major(rows))
  like = columns.make_template(template.trajectory)
  for leaf, one in zip(
    jax.tree.leaves(packed), jax.tree.leaves(like), strict=True
  ):
    assert leaf.shape == (E, *one.shape) and leaf.dtype == one.dtype
  items = [
    jax.tree.map(lambda leaf, i=index: leaf[i], packed) for index in (2, 0)
  ]
  read = columns.unpack(items, template)
  expected = _time_major(jax.tree.map(lambda leaf: leaf[[2, 0]], rows))
  assert jax.tree.structure(read) == jax.tree.structure(expected)
  jax.tree.map(np.testing.assert_array_equal, read, expected)
  for leaf, one in zip(
    jax.tree.leaves(read), jax.tree.leaves(template), strict=True
  ):
    assert leaf.dtype == one.dtype


def test_the_parts_of_a_state_are_one_column():
  spec = fakes.make_vector_spec()
  small = columns.make_template(trajectories.make_template(spec, (), T))
  large = columns.make_template(trajectories.make_template(spec, STATE, T))
  assert jax.tree.structure(small) == jax.tree.structure(large)
  assert len(jax.tree.leaves(large)) == 4
  assert len(large.rest) - len(small.rest) == 3 * 2 + 1 + 40 + 4 + 8
