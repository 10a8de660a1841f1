"""An on-device replay: pure functions over a pytree.

    config = ReplayConfig(num_environments=16, max_length=1000,
                          sequence_length=20, prioritized=True)
    replay = make_replay(step_spec, config)
    state = replay.init()
    state = replay.add(state, step)               # leaves [16, ...]
    sample = replay.sample(state, key)            # data [20, 32, ...]
    state = replay.update_priorities(
        state, sample.info.env_id, sample.info.position, errors)

`make_replay` binds the first argument, `config`, of each function: E and L are
its `num_environments` and `max_length`, B and T its `batch_size` and
`sequence_length`. The bound functions can be jitted, scanned, mapped over a
population with `vmap` and over devices with `shard_map`; they stop gradients.
Jit functions that return a state with `donate_argnums=0`, so that they write in
place instead of copying everything stored. The state can be saved as a
checkpoint directly.

Outside `jit`, where values can be read, bad ones raise a `ValueError`. Under
`jit`, each function documents its result for bad values, and `checkify=True`
makes them errors of `jax.experimental.checkify`.
"""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.replay.functional import (
  contents,
  prioritized,
  replay_checks,
  sampling,
  segment_tree,
  transforms,
)
from ftwax.replay.functional import episodes as episodes_lib
from ftwax.replay.functional import replay_config as config_lib
from ftwax.replay.functional import ring as ring_lib


class Replay(NamedTuple):
  """The functions of a replay, documented in this package by the same names."""

  init: Callable[..., contents.ReplayState]
  add: Callable[..., contents.ReplayState]
  add_sequence: Callable[..., contents.ReplayState]
  sample: Callable[..., sampling.Sample]
  sample_weighted: Callable[..., sampling.Sample]
  can_sample: Callable[..., types.Array]
  update_priorities: Callable[..., contents.ReplayState]
  reindex: Callable[..., contents.ReplayState]
  is_stored: Callable[..., types.Array]
  get_field: Callable[..., Any]
  gather_all: Callable[..., contents.Steps]
  dequeue: Callable[..., tuple[contents.ReplayState, contents.Steps]]
  remove_up_to: Callable[..., contents.ReplayState]
  clear: Callable[..., contents.ReplayState]
  total_size: Callable[..., types.Array]
  steps_to_episode_end: Callable[..., types.Array]
  episode_begin_position: Callable[..., types.Array]
  end_episodes: Callable[..., contents.ReplayState]


def make_replay(
  step_spec: types.SpecTree, config: config_lib.ReplayConfig
) -> Replay:
  """Makes the functions of a replay.

  Args:
    step_spec: one step of one environment: arrays, specs, or anything with a
      shape and a dtype, in any nesting.
    config: sizes and features.

  Returns:
    The functions, with `config` bound.

  Raises:
    ValueError: if `step_spec` lacks a field that `config` needs.
  """
  if not jax.tree.leaves(step_spec):
    raise ValueError(
      f'step_spec ({step_spec!r}) must have at least one array; give the spec'
      ' of one step.'
    )
  # Raises an error here if a field is missing.
  jax.eval_shape(functools.partial(init, step_spec, config))
  functions: tuple[Callable[..., Any], ...] = (
    add,
    add_sequence,
    sampling.sample,
    sampling.sample_weighted,
    sampling.can_sample,
    update_priorities,
    reindex,
    contents.is_stored,
    contents.get_field,
    contents.gather_all,
    contents.dequeue,
    contents.remove_up_to,
    contents.clear,
    contents.total_size,
    contents.steps_to_episode_end,
    contents.episode_begin_position,
    contents.end_episodes,
  )
  bound = {function.__name__: _bind(function, config) for function in functions}
  return Replay(init=_bind_init(step_spec, config), **bound)


def _bind_init(
  step_spec: types.SpecTree, config: config_lib.ReplayConfig
) -> Callable[[], contents.ReplayState]:
  def init_fn() -> contents.ReplayState:
    return init(step_spec, config)

  init_fn.__name__, init_fn.__doc__ = init.__name__, init.__doc__
  return init_fn


def _bind(
  function: Callable[..., Any], config: config_lib.ReplayConfig
) -> Callable[..., Any]:
  """Binds the config of a function `(config, state, ...)`.

  The bound function accepts a state of NumPy arrays, as in a checkpoint, and
  stops gradients.
  """

  @functools.wraps(function)
  def bound(state: contents.ReplayState, *args: Any, **kwargs: Any) -> Any:
    contents.check_state(config, state)
    state = jax.tree.map(jnp.asarray, state)
    state, args, kwargs = transforms.vary_alike(
      transforms.stop_gradients((state, args, kwargs))
    )
    return function(config, state, *args, **kwargs)

  signature = inspect.signature(function)
  _, *parameters = signature.parameters.values()
  bound.__doc__ = re.sub(' *config: .*\n', '', function.__doc__ or '')
  bound.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
  return bound


def init(
  step_spec: types.SpecTree, config: config_lib.ReplayConfig
) -> contents.ReplayState:
  """Returns an empty replay."""
  shape = config.num_environments, config.max_length
  ring = ring_lib.init(step_spec, *shape)
  episodes, returns, priorities = None, None, None
  if config.episodes:
    episodes_lib.check_transition(_transition(config, ring.data))
    episodes = episodes_lib.init(*shape)
  if config.record_returns:
    reward = ring_lib.select(ring.data, config.reward_field)
    returns = episodes_lib.init_returns(reward)
  if config.prioritized:
    priorities = prioritized.init(*shape)
  return contents.ReplayState(ring, episodes, returns, priorities)


def _transition(
  config: config_lib.ReplayConfig, tree: types.ArrayTree
) -> episodes_lib.Transition:
  """Selects the fields of steps that episodes need."""
  transition = episodes_lib.Transition(
    ring_lib.select(tree, config.step_type_field)
  )
  if config.record_returns:
    transition = transition._replace(
      reward=ring_lib.select(tree, config.reward_field),
      discount=ring_lib.select(tree, config.discount_field),
    )
  return transition


def add(
  config: config_lib.ReplayConfig,
  state: contents.ReplayState,
  step: types.ArrayTree,
  env_ids: types.Array | None = None,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
) -> contents.ReplayState:
  """Adds one step of each of some environments, overwriting the oldest steps.

  Args:
    config: static.
    state: the state; donate it.
    step: leaves [K, ...], with the structure, shapes and dtypes of the spec.
    env_ids: int [K], which environments; None for all, K = E.
    hyperparameters: the initial priority, and the parameters of returns.

  Returns:
    The new state. Under `jit`, only the last step of a repeated environment is
    added, and none of an environment out of range.

  Raises:
    ValueError: if `step` does not fit; outside `jit`, if `env_ids` are repeated
      or out of range.
  """
  step = replay_checks.as_batch(state.ring.data, step)
  batch = jax.tree.map(lambda leaf: leaf[None], step)
  return add_sequence(config, state, batch, env_ids, hyperparameters)


def add_sequence(
  config: config_lib.ReplayConfig,
  state: contents.ReplayState,
  batch: types.ArrayTree,
  env_ids: types.Array | None = None,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
) -> contents.ReplayState:
  """Adds S consecutive steps of some environments, leaves [S, K, ...].

  Equivalent to calling `add` S times, but done at once; S is at most L. See
  `add` for arguments and errors.
  """
  batch = replay_checks.as_batch(state.ring.data, batch)
  is_all = env_ids is None
  env_ids = ring_lib.resolve_env_ids(state.ring, env_ids, config.checkify)
  replay_checks.check_shapes(state.ring.data, batch)
  num_steps, num_rows = jax.tree.leaves(batch)[0].shape[:2]
  if num_rows != len(env_ids) or not 1 <= num_steps <= config.max_length:
    raise ValueError(
      f'batch must have 1 to {config.max_length} steps (max_length) of'
      f' {len(env_ids)} environments, got {num_steps} steps of {num_rows};'
      ' give env_ids for fewer environments, add in parts for more steps.'
    )
  ring = ring_lib.write(state.ring, batch, env_ids, is_all)
  state = state._replace(ring=ring)
  if state.priorities is not None:
    priorities = prioritized.add(
      config, state.priorities, ring, num_steps, env_ids, hyperparameters
    )
    state = state._replace(priorities=priorities)
  if state.episodes is not None:
    state = _add_episodes(config, state, batch, env_ids, hyperparameters)
  return state


def _add_episodes(
  config: config_lib.ReplayConfig,
  state: contents.ReplayState,
  batch: types.ArrayTree,
  env_ids: types.Array,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> contents.ReplayState:
  """Adds steps that were just written to the index of episodes."""
  assert state.episodes is not None
  new = _transition(config, batch)
  episodes, begins = episodes_lib.add(
    state.episodes, state.ring, new.step_type, env_ids
  )
  state = state._replace(episodes=episodes)
  if state.returns is None:
    return state
  returns = episodes_lib.add_returns(
    state.returns,
    state.ring,
    _transition(config, state.ring.data),
    begins,
    episodes_lib.is_end(new, config.return_at_truncation),
    env_ids,
    hyperparameters,
  )
  return state._replace(returns=returns)


def update_priorities(
  config: config_lib.ReplayConfig,
  state: contents.ReplayState,
  env_ids: types.Array,
  positions: types.Array,
  priorities: types.Array,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
) -> contents.ReplayState:
  """Sets the priorities of sampled sequences.

  Sequences that have been overwritten since are skipped. If a sequence occurs
  more than once, its last priority counts.

  Args:
    config: static.
    state: the state; donate it.
    env_ids: int32 [M].
    positions: int32 [M], positions of the sequences' first steps.
    priorities: float32 [M], non-negative; a sequence of priority zero is not
      sampled any more.
    hyperparameters: the priority exponent.

  Returns:
    The new state. Under `jit`, entries that would raise are skipped.

  Raises:
    ValueError: if the replay is not prioritized; outside `jit`, if a priority
      is negative or not finite, an environment is out of range, or a position
      has not been written yet.
  """
  if state.priorities is None:
    raise ValueError(
      f'update_priorities needs prioritized ({config.prioritized}); make the'
      ' replay with prioritized=True.'
    )
  ring = state.ring
  priorities = replay_checks.as_array(priorities, 'priorities')
  env_ids = ring_lib.as_integers(env_ids, 'env_ids')
  positions = ring_lib.as_integers(positions, 'positions')
  shapes = [env_ids.shape, positions.shape, priorities.shape]
  if len(set(shapes)) > 1 or priorities.ndim != 1:
    raise ValueError(
      'env_ids {}, positions {} and priorities {} must have one shape [M];'
      ' flatten them.'.format(*shapes)
    )
  priorities = priorities.astype(jnp.float32)
  ring_lib.check_env_ids(ring, env_ids, config.checkify)
  num_past = positions - ring_lib.take(ring.position, env_ids) + 1
  replay_checks.check(
    config.checkify,
    num_past <= 0,
    'positions must have been written, got one {steps} steps past the newest;'
    ' give those of a sample.',
    steps=num_past,
  )
  replay_checks.check(
    config.checkify,
    jnp.isfinite(priorities) & (priorities >= 0),
    'priorities must be finite and not negative, got {priority}; take the'
    ' absolute value of errors, and skip what is not finite.',
    priority=priorities,
  )
  exponent = hyperparameters.priority_exponent
  replay_checks.check_scalar(config.checkify, 'priority_exponent', exponent)
  new = prioritized.update(
    config,
    state.priorities,
    ring,
    env_ids,
    positions,
    priorities,
    exponent,
  )
  return state._replace(priorities=new)


def reindex(
  config: config_lib.ReplayConfig,
  state: contents.ReplayState,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
) -> contents.ReplayState:
  """Adapts a state from a replay of another sequence length, in O(E L).

  Sequences that are candidates in both keep their priorities. Others, and those
  of priority zero, get the initial priority.

  Args:
    config: static.
    state: from a prioritized replay that only differs in its sequence length or
      ignored frames.
    hyperparameters: the initial priority.

  Returns:
    The new state.
  """
  if state.priorities is None:
    return state
  priorities = prioritized.restrict(config, state.priorities, state.ring)
  first = prioritized.initial_priority(config, priorities, hyperparameters)
  is_candidate = prioritized.candidates_in_slots(config, state.ring).reshape(-1)
  old = segment_tree.get_all(priorities.sampling, is_candidate.size)
  new = jnp.where(is_candidate & (old == 0), first, old)
  sampling = segment_tree.build(segment_tree.SUM, new)
  return state._replace(priorities=priorities._replace(sampling=sampling))
