"""Priorities of sequences, indexed by their first step.

The probability of a sequence is proportional to its priority (Schaul et al.,
2016, arXiv:1511.05952, section 3.3). Two segment trees hold the priorities of
all slots, leaf `env * L + slot`:

  * `sampling`, a sum: the priorities used for sampling; zero in slots that are
    empty, or in which no complete and allowed sequence begins.
  * `learned`, a maximum: priorities that updates set. Its maximum is the
    priority of new sequences, so that each is soon sampled once. Since new
    sequences do not enter `learned` themselves, a single huge priority does not
    persist: it is forgotten when it is updated or overwritten.

A sequence of T steps is a candidate if the age of its first step is at least T
and at most size - num_ignored.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from ftwax import shapes, types
from ftwax.replay.functional import replay_checks, segment_tree
from ftwax.replay.functional import replay_config as config_lib
from ftwax.replay.functional import ring as ring_lib

# Lower bound of positive priorities: products of smaller ones with a
# probability might underflow to zero in float32.
_SMALLEST = 2.0**-60


class Priorities(NamedTuple):
  """Priorities of E L sequences.

  Attributes:
    sampling: a tree of sums.
    learned: a tree of maxima.
  """

  sampling: segment_tree.SegmentTree
  learned: segment_tree.SegmentTree


def count_candidates(
  config: config_lib.ReplayConfig, ring: ring_lib.Ring
) -> types.Array:
  """Returns the number of candidates of each environment, int32 [E]."""
  first_ages = ring.size - config.num_earliest_frames_ignored
  return jnp.maximum(first_ages - config.sequence_length + 1, 0)


def begins_candidate(
  config: config_lib.ReplayConfig, age: types.Array, size: types.Array
) -> types.Array:
  """Returns whether steps of age `age` begin a candidate, bool [...].

  Args:
    config: where sequences may begin.
    age: int32 [...].
    size: int32 [...], number of stored steps of the environment.
  """
  first_age = size - config.num_earliest_frames_ignored
  return (age >= config.sequence_length) & (age <= first_age)


def candidates_in_slots(
  config: config_lib.ReplayConfig, ring: ring_lib.Ring
) -> types.Array:
  """Returns whether each slot's step begins a candidate, bool [E, L]."""
  return begins_candidate(config, ring_lib.slot_ages(ring), ring.size[:, None])


def init(num_environments: int, max_length: int) -> Priorities:
  """Returns the priorities of an empty ring."""
  capacity = num_environments * max_length
  return Priorities(
    sampling=segment_tree.init(segment_tree.SUM, capacity),
    learned=segment_tree.init(segment_tree.MAX, capacity),
  )


def initial_priority(
  config: config_lib.ReplayConfig,
  priorities: Priorities,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> types.Array:
  """Returns the priority of new sequences: the largest learned, or the minimum.

  Returns:
    float32 [], with the exponent applied.

  Raises:
    ValueError: outside `jit`, if the minimum or its power is negative or not
      finite; under `jit` it is then 1.
  """
  priority = jnp.asarray(hyperparameters.initial_priority, jnp.float32)
  exponent = jnp.asarray(hyperparameters.priority_exponent, jnp.float32)
  power = priority**exponent
  is_good = [
    replay_checks.check_scalar(config.checkify, name, value)
    for name, value in (
      ('initial_priority', priority),
      ('priority_exponent', exponent),
      ('initial_priority ** priority_exponent', power),
    )
  ]
  lowest = jnp.where(is_good[0] & is_good[1] & is_good[2], power, 1.0)
  return jnp.maximum(segment_tree.summary(priorities.learned), lowest)


def add(
  config: config_lib.ReplayConfig,
  priorities: Priorities,
  ring: ring_lib.Ring,
  num_steps: int,
  env_ids: types.Array,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> Priorities:
  """Adds sequences that a write of `num_steps` steps completes.

  Args:
    config: where sequences may begin.
    priorities: the priorities before.
    ring: the ring after the write.
    num_steps: S.
    env_ids: int32 [K], unique; entries of E are skipped.
    hyperparameters: the initial priority.

  Returns:
    The new priorities.
  """
  length = config.sequence_length
  num_ignored = config.num_earliest_frames_ignored
  size = ring_lib.take(ring.size, env_ids)[None]  # [1, K]
  # The leaves that change: sequences that the new steps complete, the new steps
  # themselves, which begin none yet, and the oldest, which are now ignored.
  steps = jnp.arange(num_steps, dtype=jnp.int32)[:, None]  # [S, 1]
  ages = [length + steps, 1 + steps[: min(num_steps, length - 1)]]
  if num_ignored:
    ages.append(size - num_ignored + 1 + steps)
  age = jnp.concatenate(
    [jnp.broadcast_to(part, (len(part), len(env_ids))) for part in ages]
  )  # [A, K]
  leaf = _leaf_of_age(ring, env_ids, age)
  learned = segment_tree.update_all(
    (segment_tree.MAX,),
    (priorities.learned,),
    leaf.reshape(-1),
    jnp.full(leaf.size, segment_tree.MAX.identity, jnp.float32),
  )[0]
  new = priorities._replace(learned=learned)
  first = initial_priority(config, new, hyperparameters)
  if num_steps > 1:
    forgotten = _forgotten_later(config, priorities, ring, num_steps, env_ids)
    first = jnp.maximum(first, forgotten)[:, None]  # [S, 1]
    first = jnp.pad(first, ((0, len(age) - num_steps), (0, 0)))
  value = jnp.where(begins_candidate(config, age, size), first, 0.0)
  return _set_sampling(new, leaf, value)


def _set_sampling(
  priorities: Priorities, leaf: types.Array, value: types.Array
) -> Priorities:
  """Sets the sampling priorities at leaves [A, K]."""
  sampling = segment_tree.update_all(
    (segment_tree.SUM,),
    (priorities.sampling,),
    leaf.reshape(-1),
    value.reshape(-1),
  )[0]
  return priorities._replace(sampling=sampling)


def _leaf_of_age(
  ring: ring_lib.Ring, env_ids: types.Array, age: types.Array
) -> types.Array:
  """Returns the leaves of steps of age [A, K], int32 [A, K].

  It is `segment_tree.LEFT_OUT` for ages outside [1, L] and for ids of E.
  """
  num_environments, max_length = ring_lib.dimensions(ring)
  slot = ring_lib.slot_of_age(ring, env_ids, age)
  is_leaf = (age >= 1) & (age <= max_length)
  is_leaf &= env_ids[None] < num_environments
  leaf = env_ids[None] * max_length + slot
  return jnp.where(is_leaf, leaf, segment_tree.LEFT_OUT)


def _forgotten_later(
  config: config_lib.ReplayConfig,
  priorities: Priorities,
  ring: ring_lib.Ring,
  num_steps: int,
  env_ids: types.Array,
) -> types.Array:
  """Returns the largest replaced priority that each new step still found.

  Each step of a write replaces the oldest candidate and its learned priority.
  The initial priority of a sequence may depend on learned priorities that later
  steps of the same write replace, but not on those that earlier steps replaced.
  Priorities are those before the write, the ring is that after it.

  Returns:
    float32 [S], in the order of ages: the newest sequence first.
  """
  _, max_length = ring_lib.dimensions(ring)
  # If nothing had been overwritten, the candidate that the newest step replaced
  # would be just too old now; those replaced before it would be older still.
  steps = jnp.arange(num_steps, dtype=jnp.int32)  # [S]
  age = max_length - config.num_earliest_frames_ignored + 1 + steps
  age = jnp.where(age > max_length, age - max_length, age)[:, None]
  age = jnp.broadcast_to(age, (num_steps, len(env_ids)))
  leaf = _leaf_of_age(ring, env_ids, age)
  old = segment_tree.take(priorities.learned, jnp.maximum(leaf, 0))
  old = jnp.where(leaf < 0, segment_tree.MAX.identity, old)
  largest = lax.cummax(jnp.max(old, axis=1, initial=segment_tree.MAX.identity))
  # Exclusive: a step finds what newer steps will replace, but not what it
  # replaces itself.
  return jnp.roll(largest, 1).at[0].set(segment_tree.MAX.identity)


def resize(
  config: config_lib.ReplayConfig,
  priorities: Priorities,
  ring: ring_lib.Ring,
  sequence_length: int,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> Priorities:
  """Returns priorities of sequences of another length.

  Candidates of both lengths keep their priorities, new ones get the initial
  priority. Only sequences at the newest steps differ, so that it takes
  O(E |T - T'| log E L), apart from a copy.

  Args:
    config: where sequences begin, with T steps each.
    priorities: priorities of these sequences.
    ring: the ring.
    sequence_length: T', the steps of the others.
    hyperparameters: the initial priority.

  Returns:
    Priorities, whose `learned` are unchanged.
  """
  num_environments, _ = ring_lib.dimensions(ring)
  least, most = sorted((config.sequence_length, sequence_length))
  env_ids = jnp.arange(num_environments, dtype=jnp.int32)
  age = jnp.arange(least, most, dtype=jnp.int32)[:, None]
  age = jnp.broadcast_to(age, (len(age), num_environments))
  first = initial_priority(config, priorities, hyperparameters)
  new = config.replace(sequence_length=sequence_length)
  value = jnp.where(begins_candidate(new, age, ring.size[None]), first, 0.0)
  leaf = _leaf_of_age(ring, env_ids, age)
  return _set_sampling(priorities, leaf, value)


def update(
  config: config_lib.ReplayConfig,
  priorities: Priorities,
  ring: ring_lib.Ring,
  env_ids: types.Array,
  positions: types.Array,
  new_priorities: types.Array,
  exponent: types.Array | float,
) -> Priorities:
  """Implements `buffer.update_priorities`, for arrays [M].

  It skips sequences that are not candidates (any more) and priorities that are
  negative or not finite.
  """

  def enter(
    env_id: types.Array, position: types.Array, priority: types.Array
  ) -> tuple[types.Array, types.Array]:
    """Returns a sequence's leaf, or `LEFT_OUT`, and its new value."""
    _, max_length = ring_lib.dimensions(ring)
    slot, is_stored = ring_lib.find(ring, env_id, position)
    age = ring_lib.age_of_slot(ring, env_id, slot)
    size = ring_lib.take(ring.size, env_id)
    power = priority**exponent
    is_set = is_stored & begins_candidate(config, age, size)
    is_set &= (priority >= 0) & jnp.isfinite(priority) & jnp.isfinite(power)
    leaf = jnp.where(is_set, env_id * max_length + slot, segment_tree.LEFT_OUT)
    return leaf, jnp.where(power > 0, jnp.maximum(power, _SMALLEST), 0.0)

  # On a CPU, XLA runs a loop of scalars without calling other threads.
  leaf, value = lax.platform_dependent(
    env_ids,
    positions,
    new_priorities,
    cpu=lambda *columns: lax.map(lambda entry: enter(*entry), columns),
    default=enter,
  )
  operations = segment_tree.SUM, segment_tree.MAX
  trees = tuple(priorities)
  return Priorities(*segment_tree.update_all(operations, trees, leaf, value))


def restrict(
  config: config_lib.ReplayConfig, priorities: Priorities, ring: ring_lib.Ring
) -> Priorities:
  """Drops sequences that are not candidates after a removal, in O(E L)."""
  is_kept = candidates_in_slots(config, ring).reshape(-1)
  sampling = segment_tree.get_all(priorities.sampling, is_kept.size)
  learned = segment_tree.get_all(priorities.learned, is_kept.size)
  return Priorities(
    sampling=segment_tree.build(
      segment_tree.SUM, jnp.where(is_kept, sampling, 0.0)
    ),
    learned=segment_tree.build(
      segment_tree.MAX,
      jnp.where(is_kept, learned, segment_tree.MAX.identity),
    ),
  )


def importance_weights(
  probability: types.Array,
  importance_exponent: types.Array | float,
  is_valid: types.Array,
) -> types.Array:
  """Returns loss weights that correct for sampling by priority.

  The weights of Schaul et al. (2016), section 3.4, (N P(i))^-beta, divided by
  the largest one of the batch, which is that of the least probable row.

  Args:
    probability: float32 [B], P(i), positive where valid; [1] if all are equal.
    importance_exponent: float, beta, finite and non-negative.
    is_valid: bool [B]; other rows have weight zero.

  Returns:
    float32 [B].

  Raises:
    ValueError: if there is not a probability for each row, or one for all.
  """
  shapes.check(
    'importance_weights',
    is_valid=(is_valid, 'B'),
    probability=(probability, '1' if jnp.size(probability) == 1 else 'B'),
    importance_exponent=(importance_exponent, ''),
  )
  if probability.shape[0] == 1:
    return is_valid.astype(jnp.float32)
  least = jnp.min(jnp.where(is_valid, probability, jnp.inf))
  # Faster than `**`, which takes several times as long on a CPU.
  weights = jnp.exp(importance_exponent * jnp.log(least / probability))
  # Weights of rows that are not valid may be NaN here.
  return jnp.where(is_valid, weights, 0.0)
