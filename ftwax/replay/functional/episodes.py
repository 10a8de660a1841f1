"""The index of the episodes of stored steps, and their returns.

Episodes of an environment are numbered consecutively, modulo L. A ring of L
steps never holds parts of more than L episodes, so that tables of L first and L
last positions suffice. The end of an episode is found even if its first step
has been overwritten.

The return of a step is the discounted sum of rewards from its action on,

  G_t = r_tp1 + discount * d_tp1 * G_tp1,

where `r` and `d` are the environment's reward and discount from step t + 1. It
is known once a step with discount zero arrives, and is then filled in
backwards, which cannot overflow. Until then, and forever in an episode that was
truncated, a step has a default return. Lower bounds on values can be computed
from returns (He et al., 2017, arXiv:1611.01606).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ftwax import trees, types
from ftwax.replay.functional import replay_config as config_lib
from ftwax.replay.functional import ring as ring_lib
from ftwax.replay.functional import transforms


class Episodes(NamedTuple):
  """The index of episodes of E environments.

  Attributes:
    current: int32 [E], the number of the current episode.
    number: int32 [E, L], the episode number of each slot's step.
    begin: int32 [E, L], by number, the position of the first step.
    end: int32 [E, L], by number, the position of the last step so far.
    is_fresh: bool [E], whether the next step begins an episode whatever its
      step type: initially and after clearing.
  """

  current: types.Array
  number: types.Array
  begin: types.Array
  end: types.Array
  is_fresh: types.Array


class Returns(NamedTuple):
  """Episodic returns of E environments.

  Attributes:
    value: float32 [E, L, ...], the return of each slot's step, with the shape
      of a reward.
    first_open: int32 [E], the first position in the current episode whose
      return is not filled in yet.
  """

  value: types.Array
  first_open: types.Array


class Transition(NamedTuple):
  """The fields of steps that episodes need, leaves [E, L, ...] or [S, K, ...].

  Attributes:
    step_type: integers, as in `dm_env.StepType`.
    reward: floats; None if returns are not recorded.
    discount: floats; None if returns are not recorded.
  """

  step_type: types.Array
  reward: Any = None
  discount: Any = None


def init(num_environments: int, max_length: int) -> Episodes:
  """Returns the index of an empty ring."""

  def table() -> types.Array:
    return jnp.zeros([num_environments, max_length], jnp.int32)

  return Episodes(
    current=jnp.zeros([num_environments], jnp.int32),
    number=table(),
    begin=table(),
    end=table(),
    is_fresh=jnp.ones([num_environments], bool),
  )


def init_returns(reward: types.Array) -> Returns:
  """Returns the returns of an empty ring with rewards [E, L, ...]."""
  return Returns(
    value=jnp.zeros(reward.shape, jnp.float32),
    first_open=jnp.zeros(reward.shape[:1], jnp.int32),
  )


@jax.jit
def add(
  episodes: Episodes,
  ring: ring_lib.Ring,
  step_type: types.Array,
  env_ids: types.Array,
) -> tuple[Episodes, types.Array]:
  """Adds S steps that were just written.

  Args:
    episodes: the index before.
    ring: the ring after the steps were written.
    step_type: [S, K].
    env_ids: int32 [K], unique; entries of E are skipped.

  Returns:
    The new index, and bool [S, K], whether each step begins an episode.
  """
  num_steps = step_type.shape[0]

  def enter(
    episodes: Episodes, inputs: tuple[types.Array, types.Array]
  ) -> tuple[Episodes, types.Array]:
    age, step_type = inputs
    slot = ring_lib.slot_of_age(ring, env_ids, age)
    position = ring_lib.take(ring.position, env_ids) - age
    begins = step_type == types.FIRST
    begins |= episodes.is_fresh.at[env_ids].get(mode='clip')
    current = episodes.current.at[env_ids].get(mode='clip')
    current = (current + begins.astype(jnp.int32)) % episodes.begin.shape[1]
    # Writes to row E are dropped.
    begin_ids = jnp.where(begins, env_ids, episodes.begin.shape[0])
    episodes = Episodes(
      current=episodes.current.at[env_ids].set(current, mode='drop'),
      number=episodes.number.at[env_ids, slot].set(current, mode='drop'),
      begin=episodes.begin.at[begin_ids, current].set(position, mode='drop'),
      end=episodes.end.at[env_ids, current].set(position, mode='drop'),
      is_fresh=episodes.is_fresh.at[env_ids].set(False, mode='drop'),
    )
    return episodes, begins

  episodes, step_type, *_ = transforms.vary_alike(
    (episodes, step_type, env_ids, ring)
  )
  return lax.scan(enter, episodes, (_new_ages(num_steps), step_type))


def _new_ages(num_steps: int) -> types.Array:
  """Returns the ages [S] of the steps written last, in temporal order."""
  return num_steps - jnp.arange(num_steps, dtype=jnp.int32)


def add_returns(
  returns: Returns,
  ring: ring_lib.Ring,
  transition: Transition,
  begins: types.Array,
  ends: types.Array,
  env_ids: types.Array,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> Returns:
  """Fills in the returns that S newly written steps complete.

  It fills in one step after another, for all environments at once, and takes
  time in proportion to the longest of them; under `vmap`, of all members.

  Args:
    returns: the returns before.
    ring: the ring after the steps were written.
    transition: fields of the ring's steps, leaves [E, L, ...].
    begins: bool [S, K], which of the steps begin an episode.
    ends: bool [S, K], after which of the steps nothing more is earned.
    env_ids: int32 [K], unique; entries of E are skipped.
    hyperparameters: the parameters of returns.

  Returns:
    The new returns.
  """
  # One per environment, so that the members of a population can be merged.
  rows = config_lib.ReplayHyperparameters(
    *(
      jnp.broadcast_to(jnp.asarray(value, jnp.float32), env_ids.shape)
      for value in hyperparameters
    )
  )
  # The rest of the ring's data is not needed.
  ring = ring._replace(data=transition)
  return _merged_add_returns(
    *transforms.vary_alike((returns, ring, begins.T, ends.T, env_ids, rows))
  )


def _add_returns(
  returns: Returns,
  ring: ring_lib.Ring,
  begins: types.Array,
  ends: types.Array,
  env_ids: types.Array,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> Returns:
  """Implements `add_returns`, by environment, [K, S] and [K]."""

  def enter(
    returns: Returns, inputs: tuple[types.Array, ...]
  ) -> tuple[Returns, None]:
    age, begins, ends = inputs
    slot = ring_lib.slot_of_age(ring, env_ids, age)
    position = ring_lib.take(ring.position, env_ids) - age
    new = jnp.zeros((*env_ids.shape, *returns.value.shape[2:]), jnp.float32)
    new += trees.align(hyperparameters.default_return, new)
    value = returns.value.at[env_ids, slot].set(new, mode='drop')
    first_open = returns.first_open.at[env_ids].get(mode='clip')
    # Skips steps that have been overwritten, even by later ones of this batch.
    num_open = jnp.minimum(
      position - first_open, ring_lib.take(ring.size, env_ids) - age
    )
    # No action led to the first step of an episode, so it completes nothing.
    num_open = jnp.where(ends & ~begins, num_open, 0)
    value = _fill(value, ring, env_ids, age, num_open, hyperparameters)
    # The step at an end stays open itself: what it earns comes after it.
    first_open = jnp.where(begins | ends, position, first_open)
    new_first_open = returns.first_open.at[env_ids].set(first_open, mode='drop')
    return Returns(value, new_first_open), None

  ages = _new_ages(begins.shape[1])
  return lax.scan(enter, returns, (ages, begins.T, ends.T))[0]


def _shift_members(
  axis_size: int,
  returns: Returns,
  ring: ring_lib.Ring,
  begins: types.Array,
  ends: types.Array,
  env_ids: types.Array,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> tuple[Any, ...]:
  """Points ids [A, K] to the environments of their member, [A, E, ...]."""
  num_environments = ring.size.shape[1]
  member = jnp.arange(axis_size, dtype=jnp.int32)[:, None]
  env_ids = jnp.where(
    env_ids < num_environments,
    env_ids + num_environments * member,
    num_environments * axis_size,
  )
  return returns, ring, begins, ends, env_ids, hyperparameters


_merged_add_returns = transforms.merge_members(_add_returns, _shift_members)


def _fill(
  value: types.Array,
  ring: ring_lib.Ring,
  env_ids: types.Array,
  age: types.Array,
  num_open: types.Array,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> types.Array:
  """Fills in the returns of `num_open` [K] steps before those of age `age`."""
  transition: Transition = ring.data
  env_ids = jnp.where(num_open > 0, env_ids, value.shape[0])
  zero = jnp.zeros((*env_ids.shape, *value.shape[2:]), value.dtype)

  def get(leaf: types.Array, slot: types.Array) -> types.Array:
    """Reads `leaf` at `slot`, [K, ...], and aligns it with returns."""
    leaf = leaf.at[env_ids, slot].get(mode='clip').astype(value.dtype)
    return trees.align(leaf, zero)

  def fill_step(carry: Any) -> Any:
    step, value, return_tp1 = carry
    slot_tp1 = ring_lib.slot_of_age(ring, env_ids, age + step)
    slot_t = ring_lib.slot_of_age(ring, env_ids, age + step + 1)
    reward_tp1 = jnp.clip(
      get(transition.reward, slot_tp1),
      trees.align(hyperparameters.min_reward, zero),
      trees.align(hyperparameters.max_reward, zero),
    )
    discount_tp1 = trees.align(hyperparameters.discount, zero) * get(
      transition.discount, slot_tp1
    )
    return_t = reward_tp1 + discount_tp1 * return_tp1
    rows = jnp.where(step < num_open, env_ids, value.shape[0])
    value = value.at[rows, slot_t].set(return_t, mode='drop')
    return step + 1, value, return_t

  # Environments with fewer open steps go on until the longest is done, without
  # writing. The return after the last step is zero.
  last = jnp.max(num_open, initial=0)
  # Under `shard_map`, all parts of a carry must vary over the same axes.
  start = transforms.vary_alike((jnp.int32(0), value, zero, env_ids))[:3]
  _, new, _ = lax.while_loop(lambda carry: carry[0] < last, fill_step, start)
  return new


def end_episodes(
  step_type: types.Array, ring: ring_lib.Ring, env_ids: types.Array
) -> types.Array:
  """Returns `step_type` [E, L] with the newest steps set to `LAST`.

  Args:
    step_type: [E, L].
    ring: the ring.
    env_ids: int32 [K], unique; entries of E are skipped.
  """
  slot = ring_lib.slot_of_age(ring, env_ids, jnp.int32(1))
  has_steps = ring_lib.take(ring.size, env_ids) > 0
  rows = jnp.where(has_steps, env_ids, step_type.shape[0])
  return step_type.at[rows, slot].set(types.LAST, mode='drop')


def is_end(transition: Transition, at_truncation: bool) -> types.Array:
  """Returns whether nothing more is earned after each step, bool [...].

  Args:
    transition: leaves [...].
    at_truncation: whether a `LAST` step counts whatever its discount.
  """
  ends = jnp.asarray(transition.discount) == 0
  if at_truncation:
    ends |= jnp.asarray(transition.step_type) == types.LAST
  return ends


def check_transition(transition: Transition) -> None:
  """Checks that stored steps, leaves [E, L, ...], have the required shapes."""
  if not jnp.issubdtype(transition.step_type.dtype, jnp.integer) or (
    transition.step_type.ndim != 2
  ):
    raise ValueError(
      f'step_type ({transition.step_type.dtype} of shape'
      f' {transition.step_type.shape[2:]}) must be an integer scalar, as in'
      ' dm_env.StepType; name the right field in step_type_field.'
    )
  if transition.discount is not None and transition.discount.ndim != 2:
    raise ValueError(
      f'discount (of shape {transition.discount.shape[2:]}) must be a scalar;'
      ' name the right field in discount_field.'
    )
