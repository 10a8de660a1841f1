"""Environments of other libraries in JAX as functional environments.

`make` makes those of `LIBRARIES` by name; each `from_...` converts one that you
have made. No extra installs these libraries, apart from `physics`, since some
restrict the version of JAX; this module imports one when `make` needs it.
"""

import importlib
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import extras, import_guard, types
from ftwax.environments import functional, specified

# Cells of grid worlds hold kinds, colors and states below this.
_NUM_CODES = 16

# Steps of an episode in Brax's own training.
_EPISODE_LENGTH = 1000


class AdaptedState(NamedTuple):
  """State of an environment of another library.

  Attributes:
    state: its own state, a pytree.
    num_steps: int32 [], steps of the episode.
    key: uint32 [2], random key of the remaining steps.
  """

  state: Any
  num_steps: types.Array
  key: types.Key


def adapt(
  reset: Callable[[types.Key], tuple[Any, types.ArrayTree]],
  step: Callable[[types.Key, Any, Any], tuple[Any, ...]],
  actions: types.SpecTree | int,
  max_num_steps: int | None = None,
  metrics: functional.Measure | None = None,
) -> functional.FunctionalEnvironment:
  """Makes an environment of the functions of another library.

  Args:
    reset: `key -> (state, observation)`.
    step: `(key, state, action) -> (state, observation, reward, is_terminal,
      is_truncated)`; states and observations are cast to the first dtypes.
    actions: specs of the action, or the number of choices of a discrete one.
    max_num_steps: steps after which an episode is truncated; None for no limit.
    metrics: `state -> scalars by name`; see `FunctionalEnvironment`.
  """
  like = jax.eval_shape(reset, jax.random.PRNGKey(0))

  def begin(key: types.Key) -> tuple[AdaptedState, dm_env.TimeStep]:
    reset_key, key = jax.random.split(key)
    state, observation = functional.cast_like(reset(reset_key), like)
    restarted = functional.restart(observation)
    return AdaptedState(state, jnp.int32(0), key), restarted

  def go_on(
    adapted: AdaptedState, action: types.ArrayTree
  ) -> tuple[AdaptedState, dm_env.TimeStep]:
    step_key, key = jax.random.split(adapted.key)
    *new, reward, is_over, is_cut = step(step_key, adapted.state, action)
    state, observation = functional.cast_like(tuple(new), like)
    num_steps = adapted.num_steps + 1
    if max_num_steps is not None:
      is_cut |= num_steps >= max_num_steps
    timestep = functional.transition(reward, observation, is_over, is_cut)
    return AdaptedState(state, num_steps, key), timestep

  spec = specified.make_spec(functional.array_specs(like[1]), actions)
  measure = None
  if metrics is not None:
    own = metrics

    def measure(adapted: AdaptedState) -> Mapping[str, types.Array]:
      return own(adapted.state)

  return functional.FunctionalEnvironment(spec, begin, go_on, metrics=measure)


def from_brax(
  environment: Any, episode_length: int | None = None
) -> functional.FunctionalEnvironment:
  """Converts an environment of Brax or MuJoCo Playground.

  An episode terminates where `done` is set and is truncated by its length, or
  where a wrapper sets `info['truncation']`. `info['time_out']` is not read,
  since Brax's inverted pendulum sets it where the pole falls. Actions are in
  [-1, 1]. See `types.PRIVILEGED` for what the value network alone sees.

  Args:
    environment: an environment without a batch axis that does not restart its
      episodes.
    episode_length: steps of an episode; None for 1000, as in Brax's training,
      or as a wrapper truncates it.

  Raises:
    ValueError: if it restarts episodes, or its actions have no bounds.
  """
  name = type(environment).__name__
  info = jax.eval_shape(environment.reset, jax.random.PRNGKey(0)).info
  if any(entry.endswith('first_obs') for entry in info):
    raise ValueError(
      f'environment ({name}) must not restart its episodes, since done then'
      ' hides whether they were truncated; make it with auto_reset=False.'
    )
  actuator = getattr(getattr(environment, 'sys', None), 'actuator', None)
  bounds = np.asarray(getattr(actuator, 'ctrl_range', 0.0))
  if not np.isfinite(bounds).all():
    raise ValueError(
      f'action of {name} (ctrl_range {bounds.tolist()}) must have bounds; give'
      ' its actuators a ctrlrange.'
    )
  if episode_length is None and 'truncation' not in info:
    episode_length = _EPISODE_LENGTH

  def reset(key: types.Key) -> tuple[Any, types.ArrayTree]:
    state = environment.reset(key)
    return state, state.obs

  def step(key: types.Key, state: Any, action: types.Array) -> Any:
    del key  # The state has its own.
    state = environment.step(state, action)
    is_cut = state.info.get('truncation', 0) > 0
    is_over = (state.done > 0) & jnp.logical_not(is_cut)
    # Playground ends an episode whose simulation has diverged.
    seen, reward = jax.tree.map(
      lambda leaf: jnp.where(is_over & ~jnp.isfinite(leaf), 0, leaf),
      (state.obs, state.reward),
    )
    return state, seen, reward, is_over, is_cut

  size = (environment.action_size,)
  actions = specs.BoundedArray(size, np.float32, -1.0, 1.0, 'action')
  return adapt(
    reset,
    step,
    actions,
    episode_length,
    lambda state: getattr(state, 'metrics', {}),
  )


def from_gymnax(
  environment: Any, params: Any = None
) -> functional.FunctionalEnvironment:
  """Converts an environment of gymnax (Lange, 2022).

  gymnax 1.0 distinguishes time limits from terminations; for older versions
  (0.0.x) a time limit is a termination. Craftax's environments without
  `auto_reset` have the same interface.

  Args:
    environment: an environment returned by `gymnax.make`, with discrete
      actions.
    params: parameters of the environment; its defaults if None.

  Raises:
    ValueError: if the action is not discrete.
  """
  params = environment.default_params if params is None else params

  def first_info(key: types.Key) -> Any:
    _, state = environment.reset_env(key, params)
    return environment.step_env(key, state, jnp.int32(0), params)[4]

  # Numbers of `info`, such as Craftax's achievements, are kept in the state.
  found = jax.eval_shape(first_info, jax.random.PRNGKey(0))
  zeros = {
    name: jnp.zeros((), leaf.dtype)
    for name, leaf in found.items()
    if name != 'discount' and getattr(leaf, 'shape', None) == ()
  }

  def reset(key: types.Key) -> tuple[Any, types.ArrayTree]:
    observation, state = environment.reset_env(key, params)
    return (state, zeros), observation

  def step(key: types.Key, state: Any, action: types.Array) -> Any:
    own, _ = state
    observation, own, reward, is_over, info = environment.step_env(
      key, own, action, params
    )
    is_cut = getattr(environment, 'is_truncated', lambda *_: False)(own, params)
    measured = {name: info[name] for name in zeros}
    return (own, measured), observation, reward, is_over, is_cut

  space = environment.action_space(params)
  actions = int(discrete('action_space', space, 'n'))
  return adapt(reset, step, actions, metrics=lambda state: state[1])


def from_jumanji(environment: Any) -> functional.FunctionalEnvironment:
  """Converts an environment of jumanji 1.x (Bonnet et al., 2024).

  Observations that are NamedTuples become dicts, so that a field `action_mask`
  masks actions (see `types.ACTION_MASK`). An action with several entries
  becomes a tuple of discrete parts.

  Args:
    environment: an environment returned by `jumanji.make`.

  Raises:
    ValueError: if an action is not discrete or the reward is not a scalar.
  """
  reward = jax.eval_shape(
    lambda key: environment.reset(key)[1].reward, jax.random.PRNGKey(0)
  )
  if reward.shape:
    raise ValueError(
      f'the reward of {environment} (shape {reward.shape}) must be a scalar;'
      ' wrap it to sum the rewards of its agents.'
    )
  action = environment.action_spec
  sizes = np.asarray(discrete('action_spec', action, 'num_values'))
  actions: types.SpecTree | int = tuple(
    specs.DiscreteArray(int(size), np.int32, f'action_{i}')
    for i, size in enumerate(sizes.flat)
  )

  def reset(key: types.Key) -> tuple[Any, types.ArrayTree]:
    state, timestep = environment.reset(key)
    return state, _as_dict(timestep.observation)

  def step(key: types.Key, state: Any, choice: types.ArrayTree) -> Any:
    del key  # The state has its own.
    parts = [jnp.ravel(part) for part in jax.tree.leaves(choice)]
    joined = jnp.concatenate(parts).reshape(action.shape)
    state, timestep = environment.step(state, joined)
    is_last = timestep.step_type == types.LAST
    is_over = is_last & (timestep.discount == 0.0)
    seen = _as_dict(timestep.observation)
    return state, seen, timestep.reward, is_over, is_last

  return adapt(reset, step, actions if sizes.shape else int(sizes))


def _as_dict(observation: Any) -> types.ArrayTree:
  """Turns NamedTuples into dicts, at any depth."""
  if hasattr(observation, '_asdict'):
    observation = observation._asdict()
  if isinstance(observation, dict):
    return {name: _as_dict(value) for name, value in observation.items()}
  return jnp.asarray(observation)


def from_navix(environment: Any) -> functional.FunctionalEnvironment:
  """Converts a grid world returned by `navix.make`; see `from_xminigrid`."""
  return _from_grid(
    environment.reset,
    # Not `step`, which restarts an episode on its own.
    lambda timestep, action: environment._step(timestep, action),
    int(environment.action_space.n),
    lambda timestep: timestep.is_termination(),
    lambda timestep: timestep.is_truncation(),
  )


def from_xminigrid(
  environment: Any, params: Any
) -> functional.FunctionalEnvironment:
  """Converts a grid world and parameters, returned by `xminigrid.make`.

  Cells of its view hold small numbers, such as the kind and color of an object.
  Observations are their one-hot codes, in one vector.

  Raises:
    ValueError: if the observation is not symbolic.
  """
  return _from_grid(
    lambda key: environment.reset(params, key),
    lambda timestep, action: environment.step(params, timestep, action),
    environment.num_actions(params),
    lambda timestep: timestep.discount == 0.0,
    lambda timestep: timestep.last(),
  )


def _from_grid(
  reset: Callable[[types.Key], Any],
  step: Callable[[Any, types.Array], Any],
  num_actions: int,
  is_over: Callable[[Any], types.Array],
  is_last: Callable[[Any], types.Array],
) -> functional.FunctionalEnvironment:
  """Returns the environment whose state is its own kind of timestep."""
  like = jax.eval_shape(reset, jax.random.PRNGKey(0)).observation
  if like.ndim == 0 or like.dtype.kind not in 'iu':
    raise ValueError(
      f'observation ({like}) of a grid world must be symbolic, integers [rows,'
      ' columns, channels]; make it with that observation.'
    )

  def see(timestep: Any) -> tuple[Any, types.Array]:
    symbols = timestep.observation.astype(jnp.int32)
    return timestep, jax.nn.one_hot(symbols, _NUM_CODES).reshape(-1)

  def go_on(key: types.Key, state: Any, action: types.Array) -> Any:
    del key  # The state has its own.
    new = step(state, action)
    return *see(new), new.reward, is_over(new), is_last(new)

  return adapt(lambda key: see(reset(key)), go_on, num_actions)


def discrete(kind: str, space: Any, size: str) -> Any:
  """Returns the attribute `size` of a discrete space or spec.

  Raises:
    ValueError: if the space does not have it.
  """
  if not hasattr(space, size):
    raise ValueError(
      f'{kind} ({space!r}) must be discrete; choose discrete actions, or wrap'
      ' the environment to make them so.'
    )
  return getattr(space, size)


def is_pure(environment: Any) -> bool:
  """Returns whether this is an environment for `from_brax`."""
  return all(
    hasattr(type(environment), name)
    for name in ('reset', 'step', 'action_size', 'observation_size')
  )


def _make_craftax(package: Any, name: str) -> Any:
  return package.make_craftax_env_from_name(name, auto_reset=False)


def _make_navix(package: Any, name: str) -> Any:
  with extras.required('navix'):
    view = importlib.import_module('navix.observations').symbolic_first_person
  return package.make(name, observation_fn=view)


def _make_playground(package: Any, name: str) -> Any:
  config = package.registry.get_default_config(name)
  if 'impl' in config and jax.default_backend() == 'cpu':
    config.impl = 'jax'  # The default, Warp, is for GPUs.
  return package.registry.load(name, config), config.episode_length


# The module of each library, its names, unless it refuses others itself, what
# makes an environment, by name or `(module, name) -> environment`, and what
# converts it.
LIBRARIES: dict[str, tuple[str, str, Any, Callable[..., Any]]] = {
  'brax': ('brax.envs', '_envs', 'get_environment', from_brax),
  'craftax': ('craftax.craftax_env', '', _make_craftax, from_gymnax),
  'gymnax': ('gymnax', 'registered_envs', 'make', from_gymnax),
  'jumanji': ('jumanji', 'registered_environments', 'make', from_jumanji),
  'navix': ('navix', '', _make_navix, from_navix),
  'playground': (
    'mujoco_playground', 'registry.ALL_ENVS', _make_playground, from_brax
  ),
  'xminigrid': (
    'xminigrid', 'registered_environments', 'make', from_xminigrid
  ),
}  # fmt: skip


def make(name: str) -> functional.FunctionalEnvironment:
  """Makes the environment of a library of `LIBRARIES`.

  Args:
    name: the library and its environment, e.g. 'brax:ant',
      'playground:CartpoleBalance' or 'gymnax:CartPole-v1'.

  Raises:
    ImportError: if the library is not installed.
    ValueError: if it has no such environment.
  """
  library, _, own = name.partition(':')
  module, _, _, convert = LIBRARIES[library]
  remedy = f'pip install {library}, with Python 3.11 or newer'
  with import_guard.guarded():
    with extras.required(library, remedy=remedy):
      package = importlib.import_module(module)
    made = _make(package, own, library)
  return convert(*made) if isinstance(made, tuple) else convert(made)


def _make(package: Any, own: str, library: str) -> Any:
  """Makes an environment of a library, which may import more for it."""
  _, names, build, _ = LIBRARIES[library]
  if names:
    known = operator.attrgetter(names)(package)
    known = sorted(known() if callable(known) else known)
    if own not in known:
      raise ValueError(
        f'name ({own!r}) must be the name of an environment of {library};'
        f' choose from {known}.'
      )
  if isinstance(build, str):
    return getattr(package, build)(own)
  return build(package, own)
