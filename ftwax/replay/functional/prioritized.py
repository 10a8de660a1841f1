"""Priorities of sequences, by the step that each of them begins with.

The probability of a sequence is in proportion to its priority (Schaul et al.,
2016, arXiv:1511.05952, section 3.3). Two segment trees hold the priorities of
all slots, leaf `env * L + slot`:

  * `sampling`, a sum: what a sequence is drawn with; zero in slots that hold
    nothing, or in which no sequence that is whole and allowed begins.
  * `learned`, a maximum: priorities that updates set. New sequences begin
    with its maximum, so that each is soon seen once. Since they do not enter
    it themselves, one huge priority is not handed down for ever: it is
    forgotten when it is updated or overwritten.

A sequence of T steps is a candidate if it begins with a step whose age is at
least T and at most size - num_ignored.
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from ftwax import types
from ftwax.replay.functional import ring as ring_lib
from ftwax.replay.functional import segment_tree

# Below it products of a priority and a probability might be zero in float32.
_SMALLEST = 2.0**-60


class Priorities(NamedTuple):
  """Priorities of E L sequences.

  Attributes:
    sampling: a tree of sums.
    learned: a tree of maxima.
  """

  sampling: segment_tree.SegmentTree
  learned: segment_tree.SegmentTree


@dataclasses.dataclass(frozen=True)
class Candidates:
  """The rule for where sequences may begin.

  Attributes:
    sequence_length: T, the number of steps of a sequence.
    num_ignored: how many of the oldest steps no sequence begins with.
  """

  sequence_length: int
  num_ignored: int

  def count(self, ring: ring_lib.Ring) -> types.Array:
    """Returns the number of candidates of each environment, int32 [E]."""
    num_starts = ring.size - self.num_ignored - self.sequence_length + 1
    return jnp.maximum(num_starts, 0)

  def contain(self, age: types.Array, size: types.Array) -> types.Array:
    """Returns whether steps of age `age` [...] begin a candidate.

    Args:
      age: int32 [...].
      size: int32 [...], the steps stored of the environment.
    """
    return (age >= self.sequence_length) & (age <= size - self.num_ignored)

  def in_slots(self, ring: ring_lib.Ring) -> types.Array:
    """Returns whether each slot's step begins a candidate, bool [E, L]."""
    return self.contain(ring_lib.slot_ages(ring), ring.size[:, None])


def init(num_environments: int, max_length: int) -> Priorities:
  """Returns the priorities of an empty ring."""
  capacity = num_environments * max_length
  return Priorities(
    sampling=segment_tree.init(segment_tree.SUM, capacity),
    learned=segment_tree.init(segment_tree.MAX, capacity),
  )


def initial_priority(
  priorities: Priorities, lowest: types.Array | float
) -> types.Array:
  """Returns the priority of new sequences: the largest learned, or `lowest`."""
  return jnp.maximum(segment_tree.summary(priorities.learned), lowest)


def add(
  priorities: Priorities,
  ring: ring_lib.Ring,
  num_steps: int,
  env_ids: types.Array,
  candidates: Candidates,
  lowest: types.Array | float,
) -> Priorities:
  """Enters sequences that a write of `num_steps` steps made whole.

  Args:
    priorities: those before.
    ring: the ring after the write.
    num_steps: S.
    env_ids: int32 [K], unique; E where one is to be left out.
    candidates: where sequences may begin.
    lowest: float32, the least priority of new sequences.

  Returns:
    The new priorities.
  """
  length = candidates.sequence_length
  size = ring_lib.take(ring.size, env_ids)[None]  # [1, K]
  # The leaves that change: sequences that the new steps made whole, the new
  # steps themselves, which begin none yet, and the oldest, which may no longer.
  steps = jnp.arange(num_steps, dtype=jnp.int32)[:, None]  # [S, 1]
  ages = [
    length + steps,
    1 + steps[: min(num_steps, length - 1)],
  ]
  if candidates.num_ignored:
    ages.append(size - candidates.num_ignored + 1 + steps)
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
  first = initial_priority(new, lowest).astype(jnp.float32)
  if num_steps > 1:
    forgotten = _forgotten_later(
      priorities, ring, num_steps, env_ids, candidates
    )
    first = jnp.maximum(first, forgotten)[:, None]  # [S, 1]
    first = jnp.pad(first, ((0, len(age) - num_steps), (0, 0)))
  value = jnp.where(candidates.contain(age, size), first, 0.0)
  return _set_sampling(new, leaf, value)


def _set_sampling(
  priorities: Priorities, leaf: types.Array, value: types.Array
) -> Priorities:
  """Sets what sequences are sampled with, at leaves [A, K]."""
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
  """Returns the leaves int32 [A, K] of steps of age [A, K], if there are any.

  It is `segment_tree.LEFT_OUT` for ages outside [1, L] and for ids of E.
  """
  num_environments, max_length = ring_lib.dimensions(ring)
  slot = ring_lib.slot_of_age(ring, env_ids, age)
  is_leaf = (age >= 1) & (age <= max_length)
  is_leaf &= env_ids[None] < num_environments
  leaf = env_ids[None] * max_length + slot
  return jnp.where(is_leaf, leaf, segment_tree.LEFT_OUT)


def _forgotten_later(
  priorities: Priorities,
  ring: ring_lib.Ring,
  num_steps: int,
  env_ids: types.Array,
  candidates: Candidates,
) -> types.Array:
  """Returns the largest priority that each new step still found, float32 [S].

  Each step of a write takes the oldest candidate's place, and with it what was
  learned of that: sequences made whole by earlier steps of the same write may
  begin with it, those of later steps may not.

  Args:
    priorities: those before the write.
    ring: the ring after the write.
    num_steps: S.
    env_ids: int32 [K], unique; E where one is to be left out.
    candidates: where sequences may begin.

  Returns:
    In the order of ages: the newest sequence first.
  """
  _, max_length = ring_lib.dimensions(ring)
  # Had nothing been overwritten, the one that the newest step drove out would
  # be just too old now, and those driven out before it are older still.
  steps = jnp.arange(num_steps, dtype=jnp.int32)  # [S]
  age = max_length - candidates.num_ignored + 1 + steps
  age = jnp.where(age > max_length, age - max_length, age)[:, None]
  age = jnp.broadcast_to(age, (num_steps, len(env_ids)))
  leaf = _leaf_of_age(ring, env_ids, age)
  old = segment_tree.take(priorities.learned, jnp.maximum(leaf, 0))
  old = jnp.where(leaf < 0, segment_tree.MAX.identity, old)
  largest = lax.cummax(jnp.max(old, axis=1, initial=segment_tree.MAX.identity))
  return jnp.roll(largest, 1).at[0].set(segment_tree.MAX.identity)


def resize(
  priorities: Priorities,
  ring: ring_lib.Ring,
  old: Candidates,
  new: Candidates,
  lowest: types.Array | float,
) -> Priorities:
  """Returns priorities of sequences of another length.

  Candidates of both lengths keep their priorities, new ones get the initial
  one. Sequences differ at the newest steps alone, so that it takes
  O(E |T - T'| log E L), beside a copy.

  Args:
    priorities: of sequences of `old`.
    ring: the ring.
    old: where sequences begin, T steps each.
    new: where sequences are to begin, T' steps each, as many ignored.
    lowest: float32, the least priority of new sequences.

  Returns:
    Priorities, whose `learned` are unchanged.
  """
  num_environments, _ = ring_lib.dimensions(ring)
  least, most = sorted((old.sequence_length, new.sequence_length))
  env_ids = jnp.arange(num_environments, dtype=jnp.int32)
  age = jnp.arange(least, most, dtype=jnp.int32)[:, None]
  age = jnp.broadcast_to(age, (len(age), num_environments))
  first = initial_priority(priorities, lowest).astype(jnp.float32)
  value = jnp.where(new.contain(age, ring.size[None]), first, 0.0)
  leaf = _leaf_of_age(ring, env_ids, age)
  return _set_sampling(priorities, leaf, value)


def update(
  priorities: Priorities,
  ring: ring_lib.Ring,
  env_ids: types.Array,
  positions: types.Array,
  new_priorities: types.Array,
  candidates: Candidates,
  exponent: types.Array | float,
) -> Priorities:
  """Sets priorities of sequences; of equal ones the last one counts.

  Left out are sequences that are no candidates (any more) and priorities that
  are negative or not finite.

  Args:
    priorities: those before.
    ring: the ring.
    env_ids: int32 [M].
    positions: int32 [M], of the sequences' first steps.
    new_priorities: float32 [M].
    candidates: where sequences may begin.
    exponent: float, what new priorities are raised to.

  Returns:
    The new priorities.
  """

  def enter(
    env_id: types.Array, position: types.Array, priority: types.Array
  ) -> tuple[types.Array, types.Array]:
    """Returns a sequence's leaf, if it is to be set, and its value."""
    _, max_length = ring_lib.dimensions(ring)
    slot, is_stored = ring_lib.find(ring, env_id, position)
    age = ring_lib.age_of_slot(ring, env_id, slot)
    size = ring_lib.take(ring.size, env_id)
    power = priority**exponent
    is_set = is_stored & candidates.contain(age, size)
    is_set &= (priority >= 0) & jnp.isfinite(priority) & jnp.isfinite(power)
    leaf = jnp.where(is_set, env_id * max_length + slot, segment_tree.LEFT_OUT)
    return leaf, jnp.where(power > 0, jnp.maximum(power, _SMALLEST), 0.0)

  # XLA on a CPU calls another thread for what is not a loop of scalars.
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
  priorities: Priorities, ring: ring_lib.Ring, candidates: Candidates
) -> Priorities:
  """Drops sequences that are no candidates after a removal, in O(E L)."""
  is_kept = candidates.in_slots(ring).reshape(-1)
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
  """Returns weights of a loss that correct for sampling by priority.

  The weights of Schaul et al. (2016), section 3.4, (N P(i))^-beta, divided by
  the largest of the batch, which is that of the least probable row.

  Args:
    probability: float32 [B], P(i), positive where valid; [1] if all are alike.
    importance_exponent: float, beta, finite and not negative.
    is_valid: bool [B]; other rows have the weight zero.

  Returns:
    float32 [B].
  """
  if probability.shape[0] == 1:
    return is_valid.astype(jnp.float32)
  least = jnp.min(jnp.where(is_valid, probability, jnp.inf))
  # Not `**`, which costs XLA on a CPU several times as much.
  weights = jnp.exp(importance_exponent * jnp.log(least / probability))
  return jnp.where(is_valid, weights, 0.0)
