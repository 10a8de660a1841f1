"""The state of a replay: reads, removes and describes its steps."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.replay.functional import episodes as episodes_lib
from ftwax.replay.functional import prioritized, replay_checks
from ftwax.replay.functional import replay_config as config_lib
from ftwax.replay.functional import ring as ring_lib


class ReplayState(NamedTuple):
  """State of a replay, a pytree of arrays.

  Attributes:
    ring: the stored steps.
    episodes: the index of episodes; None unless configured.
    returns: episodic returns; None unless configured.
    priorities: priorities of sequences; None unless configured.
  """

  ring: ring_lib.Ring
  episodes: episodes_lib.Episodes | None
  returns: episodes_lib.Returns | None
  priorities: prioritized.Priorities | None


def check_state(config: config_lib.ReplayConfig, state: ReplayState) -> None:
  """Checks that a state has the sizes and parts that a replay needs.

  Args:
    config: config of the replay.
    state: leaves may be NumPy arrays.

  Raises:
    ValueError: if the state has other sizes, or lacks a part.
  """
  wanted = config.num_environments, config.max_length
  found = ring_lib.dimensions(state.ring)
  if found != wanted or state.ring.size.shape != wanted[:1]:
    raise ValueError(
      f'state (of {found[0]} environments and {found[1]} steps) must be of'
      f' num_environments ({wanted[0]}) and max_length ({wanted[1]}); make it'
      ' with init() of this replay, or vmap over the members of a population.'
    )
  for feature, part in (
    ('prioritized', state.priorities),
    ('episodes', state.episodes),
    ('record_returns', state.returns),
  ):
    if getattr(config, feature) and part is None:
      raise ValueError(
        f'state must come from a replay with {feature}=True, but was made'
        ' without it; make it with init() of this replay.'
      )


class Steps(NamedTuple):
  """Stored steps, oldest first.

  Attributes:
    data: leaves [num_steps, K, ...], zero where not valid.
    position: int32 [num_steps, K].
    is_valid: bool [num_steps, K].
  """

  data: types.ArrayTree
  position: types.Array
  is_valid: types.Array


def total_size(
  config: config_lib.ReplayConfig, state: ReplayState
) -> types.Array:
  """Returns the number of stored steps of all environments, int32 []."""
  del config
  return jnp.sum(state.ring.size)


def is_stored(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  env_ids: types.Array,
  positions: types.Array,
) -> types.Array:
  """Returns whether steps [...] are stored; ids and positions broadcast."""
  del config
  env_ids, positions = ring_lib.as_steps(env_ids, positions)
  return ring_lib.find(state.ring, env_ids, positions)[1]


def get_field(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  name: Any,
  env_ids: types.Array,
  positions: types.Array,
) -> types.ArrayTree:
  """Returns a field of stored steps.

  Args:
    config: static.
    state: the state.
    name: path of the field: attributes, keys or indices separated by dots, such
      as 'observation.image', '' for the whole step; or a nesting of such paths.
    env_ids: int32, broadcast against `positions`.
    positions: int32.

  Returns:
    Leaves [..., *shape]. Under `jit`, zero for steps that are not stored.

  Raises:
    ValueError: if there is no such field; outside `jit`, if a step is not
      stored.
  """
  field = ring_lib.select(state.ring.data, name)
  env_ids, _, slot, stored = _find_stored(config, state, env_ids, positions)
  return ring_lib.mask(stored, ring_lib.read(field, env_ids, slot))


def _find_stored(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  env_ids: types.Array,
  positions: types.Array,
) -> tuple[types.Array, types.Array, types.Array, types.Array]:
  """Returns valid ids, positions, slots, and which of the steps are stored."""
  env_ids, positions = ring_lib.as_steps(env_ids, positions)
  ring_lib.check_stored(state.ring, env_ids, positions, config.checkify)
  slot, stored = ring_lib.find(state.ring, env_ids, positions)
  return jnp.where(stored, env_ids, 0), positions, slot, stored


def _oldest(
  ring: ring_lib.Ring,
  env_ids: types.Array,
  num_steps: int,
  num_skipped: int,
) -> Steps:
  """Returns the oldest steps of each environment after `num_skipped`."""
  _, max_length = ring_lib.dimensions(ring)
  size = ring_lib.take(ring.size, env_ids)
  # The oldest step has the age `size`; ages below 1 do not exist.
  steps = jnp.arange(num_skipped, num_skipped + num_steps, dtype=jnp.int32)
  age = size[None] - steps[:, None]  # [num_steps, K]
  is_valid = age >= 1
  rows = jnp.broadcast_to(env_ids, age.shape)
  # Skipped ids of E read another environment. Their rows are arbitrary.
  rows = jnp.minimum(rows, ring.size.shape[0] - 1)
  slot = ring_lib.slot_of_age(ring, rows, jnp.clip(age, 1, max_length))
  return Steps(
    data=ring_lib.mask(is_valid, ring_lib.read(ring.data, rows, slot)),
    position=ring.position[rows] - age,
    is_valid=is_valid,
  )


def gather_all(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  ignore_earliest_frames: bool = False,
) -> Steps:
  """Returns all stored steps, oldest first.

  Args:
    config: static.
    state: the state.
    ignore_earliest_frames: whether to leave out the oldest
      `num_earliest_frames_ignored` steps of each environment; static.

  Returns:
    Steps [num_steps, E, ...], where `num_steps` is `max_length` minus the
    ignored frames. Environments may hold fewer steps: their rows come first,
    and the rest is not valid.
  """
  num_skipped = 0
  if ignore_earliest_frames:
    num_skipped = config.num_earliest_frames_ignored
  env_ids = jnp.arange(config.num_environments, dtype=jnp.int32)
  return _oldest(
    state.ring, env_ids, config.max_length - num_skipped, num_skipped
  )


def dequeue(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  num_steps: int = 1,
  env_ids: types.Array | None = None,
) -> tuple[ReplayState, Steps]:
  """Removes the oldest steps and returns them.

  Args:
    config: static.
    state: the state; donate it.
    num_steps: number of steps of each environment; static.
    env_ids: int [K], unique; None for all environments.

  Returns:
    The new state, and steps [num_steps, K, ...]. Under `jit`, environments with
    fewer steps keep them, and their rows are not valid.

  Raises:
    ValueError: if `num_steps` is not in [1, L]; outside `jit`, if an
      environment holds fewer steps, or `env_ids` are repeated or out of range.
  """
  if not 1 <= num_steps <= config.max_length:
    raise ValueError(
      f'num_steps ({num_steps}) must lie in [1, {config.max_length}]; dequeue'
      ' in parts.'
    )
  ring = state.ring
  env_ids = ring_lib.resolve_env_ids(ring, env_ids, config.checkify)
  size = ring.size.at[env_ids].get(mode='fill', fill_value=0)
  replay_checks.check(
    config.checkify,
    size >= num_steps,
    f'each environment must hold num_steps ({num_steps}) steps, but one'
    ' holds {size}; add more first.',
    size=jnp.min(size, initial=config.max_length),
  )
  has_steps = size >= num_steps
  steps = _oldest(ring, env_ids, num_steps, 0)
  steps = Steps(
    data=ring_lib.mask(
      jnp.broadcast_to(has_steps, steps.is_valid.shape), steps.data
    ),
    position=steps.position,
    is_valid=steps.is_valid & has_steps[None],
  )
  removed = jnp.where(has_steps, num_steps, 0)
  return _remove(config, state, removed, env_ids), steps


def remove_up_to(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  num_steps: types.Array | int,
  env_ids: types.Array | None = None,
) -> ReplayState:
  """Removes the oldest steps, or all if there are fewer.

  Args:
    config: static.
    state: the state; donate it.
    num_steps: int32, or int32 [K]; negative numbers count as 0.
    env_ids: int [K], unique; None for all environments.

  Returns:
    The new state.
  """
  env_ids = ring_lib.resolve_env_ids(state.ring, env_ids, config.checkify)
  size = ring_lib.take(state.ring.size, env_ids)
  return _remove(config, state, jnp.clip(num_steps, 0, size), env_ids)


def _remove(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  num_steps: types.Array,
  env_ids: types.Array,
) -> ReplayState:
  # Steps are not erased: what is older than `size` counts as not stored.
  size = state.ring.size.at[env_ids].add(-num_steps, mode='drop')
  state = state._replace(ring=state.ring._replace(size=size))
  if state.priorities is None:
    return state
  return state._replace(
    priorities=prioritized.restrict(config, state.priorities, state.ring)
  )


def clear(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  env_ids: types.Array | None = None,
) -> ReplayState:
  """Removes all steps; positions continue to count.

  The next step of a cleared environment begins an episode.

  Args:
    config: static.
    state: the state; donate it.
    env_ids: int [K], unique; None for all environments.

  Returns:
    The new state.
  """
  state = remove_up_to(config, state, config.max_length, env_ids)
  return _begin_anew(config, state, env_ids)


def _begin_anew(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  env_ids: types.Array | None,
) -> ReplayState:
  """Makes the next step begin an episode, whatever its step type."""
  if state.episodes is None:
    return state
  env_ids = ring_lib.resolve_env_ids(state.ring, env_ids, config.checkify)
  is_fresh = state.episodes.is_fresh.at[env_ids].set(True, mode='drop')
  return state._replace(episodes=state.episodes._replace(is_fresh=is_fresh))


def steps_to_episode_end(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  env_ids: types.Array,
  positions: types.Array,
) -> types.Array:
  """Returns the number of stored steps that follow each step in its episode.

  Args:
    config: static.
    state: the state.
    env_ids: int32, broadcast against `positions`.
    positions: int32.

  Returns:
    int32 [...], 0 for the newest step of an episode. Under `jit`, -1 for steps
    that are not stored.

  Raises:
    ValueError: if the replay does not index episodes; outside `jit`, if a step
      is not stored.
  """
  episodes = _episodes(config, state)
  ids, positions, slot, stored = _find_stored(config, state, env_ids, positions)
  end = episodes.end[ids, episodes.number[ids, slot]]
  return jnp.where(stored, end - positions, -1)


def episode_begin_position(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  env_ids: types.Array,
  positions: types.Array,
) -> types.Array:
  """Returns the position, int32 [...], at which each step's episode began.

  That first step may have been overwritten. Arguments and errors are those of
  `steps_to_episode_end`. Under `jit`, steps that are not stored return their
  own position.
  """
  episodes = _episodes(config, state)
  ids, positions, slot, stored = _find_stored(config, state, env_ids, positions)
  begin = episodes.begin[ids, episodes.number[ids, slot]]
  return jnp.where(stored, begin, positions)


def _episodes(
  config: config_lib.ReplayConfig, state: ReplayState
) -> episodes_lib.Episodes:
  if state.episodes is None:
    raise ValueError(
      f'this replay does not track episodes (episodes={config.episodes}); make'
      ' it with episodes=True.'
    )
  return state.episodes


def end_episodes(
  config: config_lib.ReplayConfig,
  state: ReplayState,
  env_ids: types.Array | None = None,
) -> ReplayState:
  """Turns the newest steps into `LAST` steps, without changing their discounts.

  This is needed if environments are reset within an episode, as after restoring
  a checkpoint. The next steps begin episodes.

  Args:
    config: static.
    state: the state; donate it.
    env_ids: int [K], unique; None for all environments.

  Returns:
    The new state.

  Raises:
    ValueError: if the replay does not index episodes.
  """
  _episodes(config, state)  # Raises without them.
  ring = state.ring
  ids = ring_lib.resolve_env_ids(ring, env_ids, config.checkify)
  leaves, structure = jax.tree.flatten(ring.data)
  # Selecting from a tree of indices tells which leaf the path names.
  numbers = jax.tree.unflatten(structure, range(len(leaves)))
  number = ring_lib.select(numbers, config.step_type_field)
  leaves[number] = episodes_lib.end_episodes(leaves[number], ring, ids)
  ring = ring._replace(data=jax.tree.unflatten(structure, leaves))
  return _begin_anew(config, state._replace(ring=ring), env_ids)
