"""Environments that exist only as specs, for tests.

A fake draws observations and rewards that its specs allow, ends episodes after
a fixed number of transitions, and refuses actions that its specs forbid, so
that a test of an agent also tests what the agent sends.
"""

from typing import Any

import dm_env
import jax
import numpy as np
from dm_env import specs

from ftwax import continuous, distributions, types
from ftwax.environments import specified
from ftwax.networks import cores, torsos

# Options of an agent's network that is quick to compile.
SMALL_NETWORK = {
  'core': cores.LSTM(4),
  'torso': torsos.Torso(hidden_sizes=(4,)),
}


class FakeEnvironment(specified.Specified, dm_env.Environment):
  """Plays random episodes of a fixed length.

  Same specs, arguments and calls give the same timesteps, bit for bit. The
  stream obeys dm_env: the step after a `LAST` timestep ignores its action and
  returns a `FIRST` one, whose reward and discount are None.

  Args:
    spec: specs of what the environment sends and takes. A dict observation
      may hold `types.ACTION_MASK`; at least one choice is then allowed at
      every step, and a forbidden one is refused.
    episode_length: transitions of an episode, its timesteps less one.
    truncate: whether episodes end by truncation, discount 1, rather than by
      termination, discount 0.
    seed: of all that is drawn.

  Raises:
    ValueError: if `episode_length` is not positive.
  """

  def __init__(
    self,
    spec: types.EnvironmentSpec,
    episode_length: int = 5,
    truncate: bool = False,
    seed: int = 0,
  ):
    if episode_length < 1:
      raise ValueError(
        f'episode_length ({episode_length}) must be at least 1; an episode'
        ' has at least one transition.'
      )
    super().__init__(spec)
    self._episode_length = episode_length
    self._last_discount = 1 if truncate else 0
    self._rng = np.random.default_rng(seed)
    self._step = episode_length
    self._mask: types.ArrayTree | None = None

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timestep of a new episode."""
    self._step = 0
    return dm_env.restart(self._draw_observation())

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Returns the next timestep, a `FIRST` one after `LAST` or at the start.

    Raises:
      ValueError: if `action` is off its spec or forbidden by the mask.
    """
    if self._step == self._episode_length:
      return self.reset()
    check_action(self._spec.actions, action, self._mask)
    self._step += 1
    last = self._step == self._episode_length
    return dm_env.TimeStep(
      step_type=dm_env.StepType.LAST if last else dm_env.StepType.MID,
      reward=sample(self._rng, self._spec.rewards),
      discount=jax.tree.map(
        lambda leaf: np.full(
          leaf.shape, self._last_discount if last else 1, leaf.dtype
        )[()],
        self._spec.discounts,
      ),
      observation=self._draw_observation(),
    )

  def _draw_observation(self) -> types.ArrayTree:
    observation = sample(self._rng, self._spec.observations)
    if isinstance(observation, dict) and types.ACTION_MASK in observation:
      self._mask = observation[types.ACTION_MASK]
      for part in jax.tree.leaves(self._mask):
        part[self._rng.integers(part.size)] = 1
    return observation


def check_action(
  action_spec: types.SpecTree,
  action: types.ArrayTree,
  mask: types.ArrayTree | None = None,
) -> None:
  """Raises a ValueError if `action` is off its spec or forbidden by `mask`.

  Args:
    action_spec: see `distributions.check_action_spec`.
    action: integer scalars of any width, or vectors of floats, in the structure
      of the spec.
    mask: [num_actions] for each part, non-zero where allowed; None allows all.
  """
  structure: Any = jax.tree.structure(action_spec)
  if structure != jax.tree.structure(action):
    raise ValueError(
      f'action ({action!r}) must have the structure of its spec ({structure});'
      ' send one value for each part.'
    )
  masks = (
    [None] * structure.num_leaves if mask is None else jax.tree.leaves(mask)
  )
  paths_and_parts = jax.tree.leaves_with_path(action)
  parts = jax.tree.leaves(action_spec)
  for (path, value), part, allowed in zip(
    paths_and_parts, parts, masks, strict=True
  ):
    name = 'action' + jax.tree_util.keystr(path)
    value = np.asarray(value)
    if distributions.num_choices(part) is None:
      _check_vector(part, name, value)
      continue
    is_integer = value.shape == () and np.issubdtype(value.dtype, np.integer)
    if not is_integer or not 0 <= value < part.num_values:
      raise ValueError(
        f'{name} ({value}) must be an integer scalar in'
        f' [0, {part.num_values}); choose one of the choices of its spec.'
      )
    if allowed is not None and not allowed[value]:
      raise ValueError(
        f'{name} ({value}) must be allowed by the action mask ({allowed});'
        ' apply the mask to the logits before choosing.'
      )


def _check_vector(part: specs.Array, name: str, value: np.ndarray) -> None:
  try:
    part.validate(value)
  except ValueError as error:
    raise ValueError(
      f'{name} ({value}) must be a vector of its spec ({part!r}); send what'
      ' distributions.to_environment makes of it.'
    ) from error


def sample(rng: np.random.Generator, spec: types.SpecTree) -> Any:
  """Draws a value that `spec` allows, in its structure.

  Floats without finite bounds are standard normal, clipped to the bounds.
  """
  return jax.tree.map(lambda leaf: _sample_leaf(rng, leaf), spec)


def _sample_leaf(rng: np.random.Generator, spec: specs.Array) -> Any:
  dtype, shape = spec.dtype, spec.shape
  if dtype.kind == 'b':
    return rng.integers(0, 2, shape).astype(bool)
  if dtype.kind in 'iu':
    info = np.iinfo(dtype)
    low = getattr(spec, 'minimum', info.min)
    high = getattr(spec, 'maximum', info.max)
    draw = rng.integers(low, high, shape, dtype, endpoint=True)
    return np.asarray(draw, dtype)[()]
  if isinstance(spec, continuous.SimplexArray):
    return rng.dirichlet(np.ones(shape)).astype(dtype)
  low = np.asarray(getattr(spec, 'minimum', -np.inf), np.float64)
  high = np.asarray(getattr(spec, 'maximum', np.inf), np.float64)
  bounded = np.isfinite(low) & np.isfinite(high)
  uniform = rng.uniform(
    np.where(bounded, low, 0), np.where(bounded, high, 0), shape
  )
  normal = np.clip(rng.standard_normal(shape), low, high)
  return np.where(bounded, uniform, normal).astype(dtype)[()]


def make_spec(
  observations: types.SpecTree = None, actions: types.SpecTree = None
) -> types.EnvironmentSpec:
  """Makes an environment's spec, by default of 4 floats and 3 choices."""
  if observations is None:
    observations = specs.Array((4,), np.float32, 'observation')
  if actions is None:
    actions = specs.DiscreteArray(3, name='action')
  return types.EnvironmentSpec(
    observations=observations,
    actions=actions,
    rewards=specs.BoundedArray((), np.float32, -1, 1, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
  )


def make_vector_spec(
  size: int = 4, num_actions: int = 3
) -> types.EnvironmentSpec:
  """Makes a spec whose observation is float32 [size]."""
  return make_spec(
    specs.Array((size,), np.float32, 'observation'),
    specs.DiscreteArray(num_actions, name='action'),
  )


def make_image_spec(
  shape: tuple[int, int, int] = (8, 8, 3), num_actions: int = 3
) -> types.EnvironmentSpec:
  """Makes a spec whose observation is uint8 [height, width, channels]."""
  return make_spec(
    specs.BoundedArray(shape, np.uint8, 0, 255, 'observation'),
    specs.DiscreteArray(num_actions, name='action'),
  )


def make_dict_spec(num_actions: int = 3) -> types.EnvironmentSpec:
  """Makes a spec whose observation is a dict: image, vector, nested integer."""
  return make_spec(
    {
      'image': specs.BoundedArray((8, 8, 3), np.uint8, 0, 255, 'image'),
      'vector': specs.Array((4,), np.float32, 'vector'),
      'inventory': {'count': specs.DiscreteArray(5, name='count')},
    },
    specs.DiscreteArray(num_actions, name='action'),
  )


def make_composite_spec(as_tuple: bool = False) -> types.EnvironmentSpec:
  """Makes a spec whose action is a dict, or a tuple, of 3 and 2 choices."""
  move = specs.DiscreteArray(3, name='move')
  fire = specs.DiscreteArray(2, name='fire')
  return make_spec(
    actions=(move, fire) if as_tuple else {'move': move, 'fire': fire}
  )


def make_continuous_spec() -> types.EnvironmentSpec:
  """Makes a spec whose action has a part of each kind, nested."""
  return make_spec(
    actions={
      'mode': specs.DiscreteArray(3, name='mode'),
      'arm': {
        'torque': specs.BoundedArray((2,), np.float32, [-2, 0], 2, 'torque'),
        'force': specs.Array((1,), np.float32, 'force'),
      },
      'shares': continuous.SimplexArray(3, 'shares'),
    }
  )


def add_action_mask(spec: types.EnvironmentSpec) -> types.EnvironmentSpec:
  """Adds `types.ACTION_MASK` to the observation, made a dict if it is none."""
  observations = spec.observations
  if not isinstance(observations, dict):
    observations = {'observation': observations}
  mask = jax.tree.map(
    lambda part: specs.BoundedArray(
      (part.num_values,), np.int8, 0, 1, f'{part.name}_mask'
    ),
    spec.actions,
  )
  return spec._replace(observations={**observations, types.ACTION_MASK: mask})
