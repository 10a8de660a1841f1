import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import types
from ftwax.environments import validation, vector

FIRST, MID, LAST = dm_env.StepType


class ScriptedEnvironment(dm_env.Environment):
  """Sends the timesteps of a script, whatever the action."""

  def __init__(self, spec, timesteps=()):
    self._spec = spec
    self._timesteps = iter(timesteps)
    self.is_closed = False

  def reset(self):
    return next(self._timesteps)

  def step(self, action):
    del action
    return next(self._timesteps)

  def observation_spec(self):
    return self._spec.observations

  def action_spec(self):
    return self._spec.actions

  def reward_spec(self):
    return self._spec.rewards

  def discount_spec(self):
    return self._spec.discounts

  def close(self):
    self.is_closed = True


SPEC = fakes.make_spec(
  {
    'vector': specs.BoundedArray((2,), np.float32, 0, 1),
    'image': specs.BoundedArray((2, 2), np.uint8, 0, 200),
  }
)
OBSERVATION = {
  'vector': np.full(2, 0.5, np.float32),
  'image': np.zeros((2, 2), np.uint8),
}


def run(spec, *timesteps):
  """Resets and steps through the script."""
  environment = vector.VectorEnvironment(
    [ScriptedEnvironment(spec, timesteps)], 'maze'
  )
  environment.reset()
  for _ in timesteps[1:]:
    environment.step(np.zeros(1, np.int32))


def run_transition(spec=SPEC, observation=OBSERVATION, **changes):
  """Sends a good `FIRST` timestep and a `MID` one with `changes`."""
  good = dm_env.TimeStep(MID, np.float32(0), np.float32(1), observation)
  run(spec, dm_env.restart(observation), good._replace(**changes))


def check_raises(message, call, *args, **kwargs):
  with pytest.raises(validation.InvalidTimestepError, match=message):
    call(*args, **kwargs)


@pytest.mark.parametrize('reward', [1, 1.0, np.float64(2), np.array(3.0)])
@pytest.mark.parametrize('discount', [0, 0.5, np.float32(1), np.array(1)])
def test_scalars_of_any_kind_pass(reward, discount):
  run_transition(reward=reward, discount=discount)


@pytest.mark.parametrize(
  'reward',
  [
    None,
    np.nan,
    np.float32(np.inf),
    np.array(-np.inf),
    -1e300,
    np.zeros(1),
    'one',
    np.str_('one'),
    1 + 2j,
  ],
)
def test_reward_must_be_a_finite_scalar(reward):
  message = (
    r"reward of environment 'maze\[0\]' \(.*\) must be a finite scalar in"
  )
  check_raises(message, run_transition, reward=reward)


@pytest.mark.parametrize(
  'discount', [None, np.nan, -0.1, np.float32(1.5), np.zeros(1)]
)
def test_discount_must_lie_in_the_unit_interval(discount):
  message = (
    r"discount of environment 'maze\[0\]' \(.*\) must be a scalar in \[0, 1\]"
  )
  check_raises(message, run_transition, discount=discount)


@pytest.mark.parametrize(
  ('field', 'value'), [('reward', np.nan), ('discount', 2)]
)
def test_scalars_at_first_are_checked_unless_none(field, value):
  timestep = dm_env.restart(OBSERVATION)._replace(**{field: value})
  check_raises(f'{field} of environment', run, SPEC, timestep)


@pytest.mark.parametrize(
  ('key', 'value', 'message'),
  [
    (
      'vector',
      [0.5, 0.5],
      r"observation\['vector'\].*\(a list\) must be a NumPy array",
    ),
    ('vector', np.zeros(3, 'f4'), r"\['vector'\].*shape \(3,\), dtype float32"),
    ('vector', np.zeros(2), r"\['vector'\].*dtype float64\) must be of shape"),
    ('image', np.zeros((2, 2), 'i4'), r"\['image'\].*int32\) must .* uint8"),
    ('vector', np.array([0, np.nan], 'f4'), r"\['vector'\].*nan.*be finite"),
    ('vector', np.array([np.inf, 0], 'f4'), r"\['vector'\].*inf.*be finite"),
  ],
)
def test_observation_leaves_are_checked_at_every_step(key, value, message):
  observation = {**OBSERVATION, key: value}
  check_raises(message, run_transition, observation=observation)
  check_raises(message, run, SPEC, dm_env.restart(observation))
  good = dm_env.restart(OBSERVATION)
  check_raises(message, run, SPEC, good, dm_env.transition(0.0, observation))


@pytest.mark.parametrize(
  'observation',
  [
    {'vector': OBSERVATION['vector']},
    {**OBSERVATION, 'extra': np.zeros(1)},
    tuple(OBSERVATION.values()),
    OBSERVATION['vector'],
    None,
  ],
)
def test_observation_structure_is_checked(observation):
  message = (
    r"observation of environment 'maze\[0\]' \(structure .*\) must have the"
  )
  check_raises(message, run, SPEC, dm_env.restart(observation))


def test_single_array_observation_is_checked():
  spec = fakes.make_vector_spec(2)
  message = (
    r"observation of environment 'maze\[0\]' \(a dict\) must be a NumPy array"
  )
  check_raises(message, run, spec, dm_env.restart(OBSERVATION))


def test_bounds_are_checked_where_an_episode_starts():
  bad = {**OBSERVATION, 'image': np.full((2, 2), 201, np.uint8)}
  message = r"observation\['image'\] .*\(201\) must lie within"
  check_raises(message, run, SPEC, dm_env.restart(bad))
  end = dm_env.termination(0.0, OBSERVATION)
  good = dm_env.restart(OBSERVATION)
  check_raises(message, run, SPEC, good, end, dm_env.restart(bad))


@pytest.mark.parametrize(
  'step_types',
  [[MID], [LAST], [FIRST, FIRST], [FIRST, MID, FIRST], [FIRST, LAST, MID]],
)
def test_order_of_step_types_is_checked(step_types):
  timesteps = [
    dm_env.TimeStep(step_type, 0.0, 1.0, OBSERVATION)
    for step_type in step_types
  ]
  message = r"step_type of environment 'maze\[0\]' .* must be FIRST where"
  check_raises(message, run, SPEC, *timesteps)


def test_reset_within_an_episode_is_allowed():
  good = [dm_env.restart(OBSERVATION), dm_env.restart(OBSERVATION)]
  environment = vector.VectorEnvironment(
    [ScriptedEnvironment(SPEC, good)], 'maze'
  )
  for _ in range(2):
    assert environment.reset().step_type == FIRST


def test_actions_must_be_discrete_or_vectors():
  part = specs.BoundedArray((2, 2), float, -1, 1)
  spec = fakes.make_spec(actions={'x': part})
  with pytest.raises(
    ValueError, match=r"environment 'maze': action_spec\['x'\] .* must be a"
  ):
    vector.VectorEnvironment([ScriptedEnvironment(spec)], 'maze')


@pytest.mark.parametrize(
  ('field', 'shape', 'message'),
  [
    (
      'reward',
      (2, 3),
      "'maze': reward_spec .* must be that of a scalar or of a",
    ),
    (
      'discount',
      (2,),
      "discount_spec of environment 'maze' .* must be that",
    ),
  ],
)
def test_shapes_of_reward_and_discount_are_demanded(field, shape, message):
  spec = fakes.make_spec()._replace(**{f'{field}s': specs.Array(shape, 'f4')})
  with pytest.raises(ValueError, match=message):
    vector.VectorEnvironment([ScriptedEnvironment(spec)], 'maze')


@pytest.mark.parametrize(
  'events',
  [np.zeros(2), np.array([0, 1, np.inf]), np.array([0, 1e300, 0]), 1.0, None],
)
def test_events_must_be_finite_and_of_their_spec(events):
  spec = SPEC._replace(rewards=specs.Array((3,), np.float32))
  first = dm_env.restart(OBSERVATION)
  run(spec, first, dm_env.transition(np.ones(3), OBSERVATION))
  check_raises(
    'reward of environment .* must hold a finite number for each of the 3',
    run,
    spec,
    first,
    dm_env.transition(events, OBSERVATION),
  )


def test_close_closes():
  scripted = ScriptedEnvironment(SPEC)
  vector.VectorEnvironment([scripted], 'maze').close()
  assert scripted.is_closed


MASKED = fakes.add_action_mask(fakes.make_dict_spec())


def _masked(step_type, is_legal):
  observation = fakes.sample(np.random.default_rng(0), MASKED.observations)
  observation[types.ACTION_MASK][:] = is_legal
  return dm_env.TimeStep(step_type, np.float32(0), np.float32(1), observation)


def test_a_state_without_a_legal_action_is_refused_with_its_step():
  first, good = _masked(FIRST, 1), _masked(MID, 1)
  run(MASKED, first, good, _masked(LAST, 0), first)
  check_raises(
    r"action_mask.* of environment 'maze\[0\]' \(\[0.*\]\) must allow an action"
    r'.* Seen at step 2\.',
    lambda: run(MASKED, first, good, _masked(LAST, 1), first, good,
                _masked(MID, 0)),
  )  # fmt: skip


def test_the_seat_without_a_legal_action_is_named():
  checker = validation.Checker(MASKED, 4, 2, 'chess')
  rows = [_masked(FIRST, 1) for _ in range(4)]
  rows[3] = _masked(FIRST, 0)
  stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
  check_raises(
    r"environment 'chess\[1\]'.* Seen at seat 1, step 0\.",
    checker.check, stacked,
  )  # fmt: skip
  steps = jax.tree.map(lambda x: jnp.stack([x, x])[:, None], rows[3])
  steps = steps._replace(step_type=jnp.array([[FIRST], [MID]]))
  faults = validation.find_faults(validation.make_fields(MASKED), steps)
  assert faults.any()


def test_huge_bounds_are_told_once(caplog):
  validation._warn_of_bounds.cache_clear()
  spec = SPEC._replace(
    actions=specs.BoundedArray((2,), np.float32, -3e38, 3e38)
  )
  for _ in range(2):
    validation.check_spec(spec, 'valve')
  told = [one for one in caplog.messages if 'beyond a million' in one]
  assert len(told) == 1 and "'valve'" in told[0]
