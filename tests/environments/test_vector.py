import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import types
from ftwax.environments import vector
from ftwax.testing import fakes

FIRST, MID, LAST = dm_env.StepType


class RecordingEnvironment(fakes.FakeEnvironment):
  """Keeps the actions it was sent, and whether it was closed."""

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self.actions = []
    self.is_closed = False

  def step(self, action):
    self.actions.append(action)
    return super().step(action)

  def close(self):
    self.is_closed = True


def make_rows(spec, lengths=(2, 3, 5)):
  return [
    RecordingEnvironment(spec, length, truncate=bool(row % 2), seed=row)
    for row, length in enumerate(lengths)
  ]


def zeros(spec, num_rows):
  return jax.tree.map(lambda _: np.zeros(num_rows, np.int32), spec.actions)


@pytest.mark.parametrize(
  'spec',
  [
    fakes.make_vector_spec(),
    fakes.make_image_spec(),
    fakes.make_dict_spec(),
    fakes.make_composite_spec(),
    fakes.make_composite_spec(as_tuple=True),
    fakes.make_spec((specs.DiscreteArray(4), {'x': specs.Array((), float)})),
  ],
  ids=['vector', 'image', 'dict', 'composite', 'tuple', 'nested'],
)
def test_rows_are_the_streams_of_their_environments(spec):
  environment = vector.VectorEnvironment(make_rows(spec))
  alone = make_rows(spec)
  stacked = environment.reset()
  singles = [env.reset() for env in alone]
  for _ in range(14):
    for row, single in enumerate(singles):
      assert stacked.step_type[row] == single.step_type
      assert stacked.reward[row] == (single.reward or 0)
      expected_discount = 1 if single.first() else single.discount
      assert stacked.discount[row] == expected_discount
      jax.tree.map(
        lambda column, value, row=row: np.testing.assert_array_equal(
          column[row], value
        ),
        stacked.observation,
        single.observation,
      )
    stacked = environment.step(zeros(spec, 3))
    action = jax.tree.map(lambda _: 0, spec.actions)
    singles = [env.step(action) for env in alone]


def test_shapes_and_dtypes():
  spec = fakes.make_dict_spec()
  environment = vector.VectorEnvironment(make_rows(spec))
  assert environment.num_environments == 3
  assert types.make_environment_spec(environment) == spec
  for timestep in (environment.reset(), environment.step(zeros(spec, 3))):
    for value, dtype in (
      (timestep.step_type, np.int32),
      (timestep.reward, np.float32),
      (timestep.discount, np.float32),
    ):
      assert value.shape == (3,) and value.dtype == dtype

    def check(leaf, value):
      assert value.shape == (3, *leaf.shape) and value.dtype == leaf.dtype

    jax.tree.map(check, spec.observations, timestep.observation)


def test_rows_reset_by_themselves():
  environment = vector.VectorEnvironment(make_rows(fakes.make_spec()))
  timesteps = [environment.reset()]
  for _ in range(6):
    timesteps.append(environment.step(np.zeros(3, np.int32)))
  step_types = np.stack([t.step_type for t in timesteps], axis=1)
  np.testing.assert_array_equal(
    step_types,
    [
      [FIRST, MID, LAST, FIRST, MID, LAST, FIRST],
      [FIRST, MID, MID, LAST, FIRST, MID, MID],
      [FIRST, MID, MID, MID, MID, LAST, FIRST],
    ],
  )
  np.testing.assert_array_equal(timesteps[2].discount, [0, 1, 1])
  np.testing.assert_array_equal(timesteps[3].discount, [1, 1, 1])
  assert timesteps[3].reward[0] == 0


def test_step_before_reset_resets_every_row():
  environment = vector.VectorEnvironment(make_rows(fakes.make_spec()))
  assert environment.step(np.zeros(3, np.int32)).first().all()


@pytest.mark.parametrize('as_tuple', [False, True])
def test_composite_actions_are_sliced(as_tuple):
  rows = make_rows(fakes.make_composite_spec(as_tuple))
  environment = vector.VectorEnvironment(rows)
  environment.reset()
  move, fire = jnp.array([0, 1, 2]), np.array([1, 0, 1])
  environment.step((move, fire) if as_tuple else {'fire': fire, 'move': move})
  for row, env in enumerate(rows):
    (action,) = env.actions
    expected = (row, fire[row])
    assert action == (
      expected if as_tuple else {'move': row, 'fire': fire[row]}
    )


@pytest.mark.parametrize('asarray', [np.asarray, jnp.asarray, list])
def test_single_actions_are_sliced(asarray):
  rows = make_rows(fakes.make_spec())
  environment = vector.VectorEnvironment(rows)
  environment.reset()
  environment.step(asarray([2, 0, 1]))
  assert [env.actions for env in rows] == [[2], [0], [1]]


@pytest.mark.parametrize(
  'spec', [fakes.make_image_spec(), fakes.make_dict_spec()]
)
def test_timesteps_are_the_callers_to_keep(spec):
  environment = vector.VectorEnvironment(make_rows(spec))
  kept = environment.reset()
  copied = jax.tree.map(np.copy, kept)
  for _ in range(4):
    later = environment.step(zeros(spec, 3))
    for leaf in jax.tree.leaves(later):
      leaf[...] = 1
  jax.tree.map(np.testing.assert_array_equal, kept, copied)


def test_close_closes_every_row():
  rows = make_rows(fakes.make_spec())
  vector.VectorEnvironment(rows).close()
  assert all(env.is_closed for env in rows)


def test_no_environments_is_an_error():
  with pytest.raises(
    ValueError, match=r'environments must hold .* not 0; pass'
  ):
    vector.VectorEnvironment([])


@pytest.mark.parametrize(
  ('other', 'field'),
  [
    (fakes.make_vector_spec(5), 'observations'),
    (fakes.make_dict_spec(), 'observations'),
    (fakes.make_vector_spec(num_actions=4), 'actions'),
    (fakes.make_composite_spec(), 'actions'),
  ],
)
def test_specs_must_agree(other, field):
  environments = [
    fakes.FakeEnvironment(spec)
    for spec in (fakes.make_vector_spec(), fakes.make_vector_spec(), other)
  ]
  with pytest.raises(
    ValueError, match=f'{field} of environment 2 .* must equal'
  ):
    vector.VectorEnvironment(environments)


@pytest.mark.parametrize('shape', [(), (2,), (4,), (3, 1)])
def test_actions_must_be_one_a_row(shape):
  environment = vector.VectorEnvironment(make_rows(fakes.make_spec()))
  environment.reset()
  with pytest.raises(ValueError, match=r'action .* must have the shape \(3,\)'):
    environment.step(np.zeros(shape, np.int32))


def test_action_structure_must_agree():
  environment = vector.VectorEnvironment(make_rows(fakes.make_composite_spec()))
  environment.reset()
  with pytest.raises(ValueError, match='(?i)key'):
    environment.step({'move': np.zeros(3, np.int32)})


def test_observations_that_would_broadcast_are_refused():
  class Narrow(fakes.FakeEnvironment):
    def observation_spec(self):
      return specs.Array((4,), np.float32)

  rows = [Narrow(fakes.make_vector_spec(size)) for size in (4, 1)]
  with pytest.raises(
    ValueError, match=r'observation of environment 1 \(shape \(1,\)\) must'
  ):
    vector.VectorEnvironment(rows).reset()
