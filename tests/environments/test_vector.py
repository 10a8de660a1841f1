import dm_env
import fakes
import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import types
from ftwax.environments import (
  compiled_games,
  environment_faults,
  functional,
  validation,
  vector,
)

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


def test_close_closes_every_row(monkeypatch):
  rows = make_rows(fakes.make_spec())
  vector.VectorEnvironment(rows).close()
  assert all(env.is_closed for env in rows)
  rows = make_rows(fakes.make_spec())
  monkeypatch.setattr(rows[1], 'close', lambda: 1 / 0)
  with pytest.raises(
    environment_faults.EnvironmentFault, match='ZeroDivisionError .* in close'
  ):
    vector.VectorEnvironment(rows).close()
  assert rows[0].is_closed and rows[2].is_closed


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
    validation.InvalidTimestepError,
    match=r"observation of environment 'fake\[1\]' \(shape \(1,\), dtype",
  ):
    vector.VectorEnvironment(rows, 'fake').reset()


# Functional environments.


def _make_compiled(made=None, num_rows=3, seed=0):
  made = made or functional_fakes.make_matching(episode_length=2)
  game = functional.as_game(made)
  return compiled_games.CompiledGames(game, num_rows, seed, 'signs')


def test_compiled_rows_reset_by_themselves():
  environment = _make_compiled()
  assert environment.num_games == 3
  timestep = environment.step(np.zeros(3, np.int32))  # Begins, like a reset.
  for _ in range(2):
    np.testing.assert_array_equal(timestep.step_type, [FIRST] * 3)
    np.testing.assert_array_equal(timestep.reward, np.zeros(3))
    np.testing.assert_array_equal(timestep.discount, np.ones(3))
    for expected in (MID, LAST):
      sign = timestep.observation.argmax(axis=1)
      action = np.where([True, False, True], sign, 1 - sign)
      timestep = environment.step(action)  # int64, as NumPy's argmax is.
      np.testing.assert_array_equal(timestep.step_type, [expected] * 3)
      np.testing.assert_array_equal(timestep.reward, [1, 0, 1])
    timestep = environment.step(action)
  first = environment.reset()
  assert first.observation.dtype == np.float32
  for leaf in first:
    leaf[...] = 1


def test_compiled_rows_are_drawn_from_the_seed():
  def play(seed):
    environment = _make_compiled(num_rows=8, seed=seed)
    timesteps = [environment.step(np.zeros(8, np.int32)) for _ in range(7)]
    return np.stack([timestep.observation for timestep in timesteps])

  signs = play(0)
  np.testing.assert_array_equal(signs, play(0))
  assert (signs != play(1)).any()
  assert (signs != signs[:, :1]).any()  # Rows differ.
  assert (signs[:3] != signs[3:6]).any()  # Episodes do.


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    ('reward', np.nan),
    ('discount', 1.5),
    ('step_type', int(FIRST)),
    ('observation', np.inf),
  ],
)
def test_a_compiled_row_that_goes_wrong_is_named(field, value):
  made = functional_fakes.make_matching()

  def change(timestep):
    is_bad = (timestep.step_type == MID) & (timestep.observation[1] > 0)
    old = getattr(timestep, field)
    return timestep._replace(**{field: jnp.where(is_bad, value, old)})

  action = np.zeros(8, np.int32)
  good = _make_compiled(made, num_rows=8)
  good.reset()
  is_bad = good.step(action).observation[:, 1] > 0
  assert is_bad.any()
  bad = _make_compiled(functional_fakes.map_timesteps(made, change), 8)
  bad.reset()
  told = (
    rf"{field} of environment 'signs\[{is_bad.argmax()}\]' \({value}\) must"
  )
  with pytest.raises(validation.InvalidTimestepError, match=told):
    bad.step(action)


def test_compiled_rows_are_within_bounds_at_first():
  made = functional_fakes.map_timesteps(
    functional_fakes.make_matching(),
    lambda timestep: timestep._replace(observation=timestep.observation + 1),
  )
  with pytest.raises(
    validation.InvalidTimestepError,
    match=r"'signs\[0\]' \(2.0\) must lie within",
  ):
    _make_compiled(made).reset()


def test_a_functional_environment_that_is_off_its_spec_is_refused():
  made = functional_fakes.map_timesteps(
    functional_fakes.make_matching(),
    lambda timestep: timestep._replace(observation=timestep.observation[:1]),
  )
  with pytest.raises(ValueError, match=r'observation .*must be as in its spec'):
    _make_compiled(made)


def test_a_functional_environment_for_no_agent_is_refused():
  made = functional_fakes.make_matching()
  spec = made.spec._replace(rewards=specs.Array((2, 2), np.float32))
  with pytest.raises(ValueError, match=r"environment 'signs': .*reward"):
    _make_compiled(made._replace(spec=spec))


@pytest.mark.parametrize('shape', [(), (2,), (3, 1)])
def test_compiled_actions_must_be_one_a_row(shape):
  environment = _make_compiled()
  environment.reset()
  with pytest.raises(ValueError, match=r'action .* must have the shape \(3,\)'):
    environment.step(np.zeros(shape, np.int32))
