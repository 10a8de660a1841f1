"""A ring of steps for each of several environments, as pure functions.

Each environment writes at its own pace. A step is identified by its environment
and its position, which counts all steps that the environment ever added.
Clearing and removing do not reset positions, so that a priority of an old step
can never apply to a new one. Positions are int32 and wrap around after 2^31
steps. Only their differences are used, which stay correct. The age of a step
determines its slot; the newest step has age 1:

  age = position[env] - step's position,  slot = (head[env] - age) mod L.

Shapes: `E` environments, `L` steps kept of each, `K` selected environments.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ftwax import trees, types
from ftwax.replay.functional import replay_checks


class Ring(NamedTuple):
  """Steps of E environments.

  Attributes:
    data: leaves [E, L, ...]; the step of age `a` is in slot (head - a) mod L.
    position: int32 [E], position of the next step.
    head: int32 [E], slot of the next step.
    size: int32 [E], number of stored steps, which have ages 1 to size.
  """

  data: types.ArrayTree
  position: types.Array
  head: types.Array
  size: types.Array


def init(spec: types.SpecTree, num_environments: int, max_length: int) -> Ring:
  """Returns an empty ring; leaves of `spec` have the shape of one step."""
  shape = (num_environments, max_length)

  # Separate arrays: one that occurs twice in a state could not be donated.
  def zeros() -> types.Array:
    return jnp.zeros([num_environments], jnp.int32)

  return Ring(
    data=jax.tree.map(
      lambda leaf: jnp.zeros((*shape, *leaf.shape), leaf.dtype), spec
    ),
    position=zeros(),
    head=zeros(),
    size=zeros(),
  )


def dimensions(ring: Ring) -> tuple[int, int]:
  """Returns E, the number of environments, and L, the steps kept of each."""
  num_environments, max_length = jax.tree.leaves(ring.data)[0].shape[:2]
  return num_environments, max_length


def resolve_env_ids(
  ring: Ring, env_ids: types.Array | None, emit: bool
) -> types.Array:
  """Returns unique environments, int32 [K]; entries of E are to be skipped.

  Ids out of range are skipped, and of repeated ids all but the last.

  Args:
    ring: the ring.
    env_ids: int [K], or None for all environments.
    emit: whether to emit checks under `jit`.

  Raises:
    ValueError: outside `jit`, if ids are repeated or out of range.
  """
  num_environments, _ = dimensions(ring)
  if env_ids is None:
    return jnp.arange(num_environments, dtype=jnp.int32)
  env_ids = replay_checks.as_array(env_ids, 'env_ids')
  if env_ids.ndim != 1 or not jnp.issubdtype(env_ids.dtype, jnp.integer):
    raise ValueError(
      f'env_ids must be integers [K], got {env_ids.dtype} of shape'
      f' {env_ids.shape}; give one id for each row of the batch.'
    )
  check_env_ids(ring, env_ids, emit)
  in_range = (env_ids >= 0) & (env_ids < num_environments)
  env_ids = env_ids.astype(jnp.int32)
  equal = env_ids[:, None] == env_ids[None, :]
  is_repeated = jnp.any(jnp.triu(equal, k=1), axis=1)
  replay_checks.check(
    emit,
    ~is_repeated,
    'env_ids must be unique, but {env_id} is repeated; add its steps one'
    ' after another.',
    env_id=env_ids,
  )
  return jnp.where(in_range & ~is_repeated, env_ids, num_environments)


def check_env_ids(ring: Ring, env_ids: types.Array, emit: bool) -> None:
  """Checks that ids [...] lie in 0 ... E - 1."""
  num_environments, _ = dimensions(ring)
  in_range = (env_ids >= 0) & (env_ids < num_environments)
  replay_checks.check(
    emit,
    in_range,
    f'env_ids must lie in [0, {num_environments}), got {{env_id}}; make the'
    ' replay for more environments.',
    env_id=env_ids,
  )


def write(
  ring: Ring,
  batch: types.ArrayTree,
  env_ids: types.Array,
  is_all: bool,
) -> Ring:
  """Adds steps, overwriting the oldest ones.

  Args:
    ring: the ring.
    batch: leaves [S, K, ...], S steps of each of K environments.
    env_ids: int32 [K], unique; entries of E are skipped.
    is_all: whether `env_ids` are 0 ... E - 1, which saves time.

  Returns:
    The new ring.
  """
  num_steps = jax.tree.leaves(batch)[0].shape[0]
  _, max_length = dimensions(ring)
  steps = jnp.arange(num_steps, dtype=jnp.int32)[:, None]  # [S, 1]
  # Skipped ids read an arbitrary head here, and are dropped below.
  head = ring.head if is_all else take(ring.head, env_ids)
  slots = (head[None] + steps) % max_length
  rows = jnp.broadcast_to(env_ids, slots.shape)  # [S, K]

  def write_leaf(leaf: types.Array, new: types.Array) -> types.Array:
    if is_all and slots.size == 1:
      # For a single step, XLA's scatter would also read what it overwrites.
      return lax.dynamic_update_slice(
        leaf, new, (0, slots[0, 0], *[0] * (leaf.ndim - 2))
      )
    return leaf.at[rows, slots].set(new, mode='drop')

  data = jax.tree.map(write_leaf, ring.data, batch)
  num_new = jnp.full_like(ring.size, num_steps)  # [E]
  if not is_all:
    num_new = jnp.zeros_like(ring.size).at[env_ids].set(num_steps, mode='drop')
  return Ring(
    data=data,
    position=ring.position + num_new,
    head=(ring.head + num_new) % max_length,
    size=jnp.minimum(ring.size + num_new, max_length),
  )


def take(array: types.Array, env_ids: types.Array) -> types.Array:
  """Returns the entries of `array` [E, ...] for ids; arbitrary for ids of E."""
  if array.shape[0] == 1:
    return jnp.broadcast_to(array[0], (*env_ids.shape, *array.shape[1:]))
  return array.at[env_ids].get(mode='clip')


def slot_of_age(
  ring: Ring, env_ids: types.Array, age: types.Array
) -> types.Array:
  """Returns the slot of a step of age 1 to L; arguments broadcast."""
  _, max_length = dimensions(ring)
  shape = jnp.broadcast_shapes(env_ids.shape, age.shape)
  slot = jnp.broadcast_to(take(ring.head, env_ids), shape) - age
  return jnp.where(slot < 0, slot + max_length, slot)


def age_of_slot(
  ring: Ring, env_ids: types.Array, slot: types.Array
) -> types.Array:
  """Returns the age, 1 to L, of the step in a slot; arguments broadcast."""
  _, max_length = dimensions(ring)
  shape = jnp.broadcast_shapes(env_ids.shape, slot.shape)
  age = jnp.broadcast_to(take(ring.head, env_ids), shape) - slot
  return jnp.where(age <= 0, age + max_length, age)


def slot_ages(ring: Ring) -> types.Array:
  """Returns the age of each slot, int32 [E, L]; above size, it is empty."""
  num_environments, max_length = dimensions(ring)
  env_ids = jnp.arange(num_environments, dtype=jnp.int32)[:, None]
  return age_of_slot(
    ring, env_ids, jnp.arange(max_length, dtype=jnp.int32)[None, :]
  )


def find(
  ring: Ring, env_ids: types.Array, positions: types.Array
) -> tuple[types.Array, types.Array]:
  """Returns the slots of steps, int32 [...], and whether they are stored.

  Slots of steps that are not stored are in range but meaningless.
  """
  num_environments, max_length = dimensions(ring)
  env_ids, positions = jnp.broadcast_arrays(env_ids, positions)
  in_range = (env_ids >= 0) & (env_ids < num_environments)
  age = take(ring.position, env_ids) - positions
  is_stored = (age >= 1) & (age <= take(ring.size, env_ids))
  is_stored &= in_range
  slot = slot_of_age(ring, env_ids, jnp.clip(age, 1, max_length))
  return slot, is_stored


def as_integers(value: Any, name: str) -> types.Array:
  """Converts an argument to int32.

  Raises:
    ValueError: if it does not consist of integers that fit into int32.
  """
  array = replay_checks.as_array(value, name)
  if not jnp.issubdtype(array.dtype, jnp.integer):
    raise ValueError(
      f'{name} must be integers, got {array.dtype}; give those of a sample.'
    )
  return array.astype(jnp.int32)


def as_steps(
  env_ids: types.Array, positions: types.Array
) -> tuple[types.Array, types.Array]:
  """Converts ids and positions to int32 and broadcasts them."""
  ids, steps = jnp.broadcast_arrays(
    as_integers(env_ids, 'env_ids'), as_integers(positions, 'positions')
  )
  return ids, steps


def check_stored(
  ring: Ring,
  env_ids: types.Array,
  positions: types.Array,
  emit: bool,
) -> None:
  """Checks that steps are stored: neither overwritten nor removed."""
  check_env_ids(ring, env_ids, emit)
  env_ids, positions = jnp.broadcast_arrays(env_ids, positions)
  replay_checks.check(
    emit,
    find(ring, env_ids, positions)[1],
    'positions must be stored; {position} of environment {env_id} is not,'
    ' which holds {size} steps before {end}; ask is_stored() first.',
    position=positions,
    env_id=env_ids,
    size=take(ring.size, env_ids),
    end=take(ring.position, env_ids),
  )


def read(
  data: types.ArrayTree, env_ids: types.Array, slot: types.Array
) -> types.ArrayTree:
  """Reads leaves [*shape, ...] of `data` at valid ids and slots."""
  return jax.tree.map(
    lambda leaf: leaf.at[env_ids, slot].get(mode='promise_in_bounds'), data
  )


def mask(is_kept: types.Array, tree: types.ArrayTree) -> types.ArrayTree:
  """Sets rows of leaves [*shape, ...] to zero where `is_kept` is false."""
  return trees.where_rows(is_kept, tree, jax.tree.map(jnp.zeros_like, tree))


def select(tree: Any, name: Any) -> Any:
  """Returns the part of `tree` that a path names, or a nesting of such parts.

  Args:
    tree: any nesting of NamedTuples, dicts, tuples and lists.
    name: names of attributes, keys or indices separated by dots, such as
      'observation.image'; or a nesting of such paths. Keys of dicts may contain
      dots; the longest matching key counts.

  Raises:
    ValueError: if there is no such part.
  """
  return jax.tree.map(lambda path: _select_one(tree, path), name)


def _select_one(tree: Any, path: str) -> Any:
  parts = path.split('.') if path else []
  while parts:
    names = _names(tree)
    # Keys of a dict may contain dots.
    longest = len(parts) if isinstance(tree, dict) else 1
    heads = ['.'.join(parts[:n]) for n in range(longest, 0, -1)]
    head = next((head for head in heads if head in names), None)
    if head is None:
      raise ValueError(
        f'field {path!r} must name a part of the stored step; there is no'
        f' {parts[0]!r} among {list(names)}; choose one of these.'
      )
    tree = names[head]
    parts = parts[head.count('.') + 1 :]
  return tree


def _names(tree: Any) -> dict[str, Any]:
  """Returns the parts of a nesting by name; empty for an array."""
  if isinstance(tree, dict):
    return {str(key): tree[key] for key in sorted(tree)}
  if dataclasses.is_dataclass(tree):
    fields = [field.name for field in dataclasses.fields(tree)]
    return {name: getattr(tree, name) for name in fields}
  if isinstance(tree, tuple | list):
    names = getattr(tree, '_fields', map(str, range(len(tree))))
    return dict(zip(names, tree, strict=True))
  return {}
