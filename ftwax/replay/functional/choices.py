"""Chooses the sequences for the rows of a sample.

`draws` has the algorithms, in terms of numbers and leaves. This module converts
them to environments and slots, and mixes in rows of recent steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.replay.functional import (
  draws,
  prioritized,
  replay_checks,
  segment_tree,
)
from ftwax.replay.functional import replay_config as config_lib
from ftwax.replay.functional import ring as ring_lib


class Population(NamedTuple):
  """The sequences to sample from.

  Attributes:
    counts: int32 [E], candidates of each environment.
    recent_counts: int32 [E], recent candidates, which are the newest ones.
    num_recent: int32 [], recent candidates of all environments that may be
      sampled.
    groups: which rows are sampled from all, and which from recent candidates.
  """

  counts: types.Array
  recent_counts: types.Array
  num_recent: types.Array
  groups: draws.Groups


class Chosen(NamedTuple):
  """The sampled sequences.

  Attributes:
    env_id: int32 [B].
    slot: int32 [B], slot of the first step.
    is_valid: bool [B].
    probability: float32 [B], or [1] for all, probability that a row which is
      not sampled from recent steps is this sequence.
    num_candidates: int32 [], the number of all candidates.
  """

  env_id: types.Array
  slot: types.Array
  is_valid: types.Array
  probability: types.Array
  num_candidates: types.Array


def make_population(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  hyperparameters: config_lib.ReplayHyperparameters,
  weights: types.Array | None = None,
) -> tuple[Population, types.Array | None]:
  """Counts the candidates and divides the rows of the batch into groups.

  Args:
    config: sizes and features.
    ring: the ring.
    hyperparameters: the share of recent steps.
    weights: float32 [E L], weights for proportional sampling; None for uniform
      sampling.

  Returns:
    The population, and, given weights and recent data, whether each recent
    sequence has a nonzero weight, bool [E, L] by environment and rank, the
    newest first; otherwise None.
  """
  ratio = hyperparameters.recent_data_ratio
  replay_checks.check_scalar(
    config.checkify, 'recent_data_ratio', ratio, highest=1.0
  )
  ratio = jnp.asarray(ratio, jnp.float32)
  counts = prioritized.count_candidates(config, ring)
  if not config.recent_data:
    replay_checks.check(
      config.checkify,
      ratio == 0,
      'recent_data_ratio must be 0 unless the replay was made with'
      ' recent_data=True; got {ratio}.',
      ratio=ratio,
    )
    groups = draws.make_groups(config.batch_size, jnp.int32(0))
    return Population(counts, counts, jnp.int32(0), groups), None
  recent_steps = jnp.maximum(hyperparameters.recent_data_steps, 1)
  recent_counts = jnp.minimum(counts, recent_steps)
  is_drawn = None
  num_candidates = jnp.sum(recent_counts)
  if weights is not None:
    is_drawn = _recent_with_weight(config, ring, recent_counts, weights)
    num_candidates = jnp.sum(is_drawn, dtype=jnp.int32)
  num_all = jnp.sum(counts).astype(jnp.float32)
  is_scarce = jnp.sum(recent_counts).astype(jnp.float32) < ratio * num_all
  # In float32, 100 * 0.15 is more than 15, which must not be rounded up.
  num_rows = jnp.ceil(config.batch_size * ratio * (1 - 1e-6))
  num_rows = jnp.where(is_scarce & (num_candidates > 0), num_rows, 0.0)
  num_rows = jnp.clip(num_rows.astype(jnp.int32), 0, config.batch_size)
  if weights is not None and config.draw == draws.DISTINCT:
    num_rows = jnp.minimum(num_rows, num_candidates)  # No repeated rows.
  groups = draws.make_groups(config.batch_size, num_rows)
  return Population(counts, recent_counts, num_candidates, groups), is_drawn


def _recent_with_weight(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  recent_counts: types.Array,
  weights: types.Array,
) -> types.Array:
  """Returns bool [E, L] by rank; rank 0 is the newest sequence."""
  num_environments, max_length = ring_lib.dimensions(ring)
  # Reverse the slots, then roll them so that the sequence of rank 0, whose age
  # is T, comes first.
  by_slot = weights.reshape(num_environments, max_length)[:, ::-1]
  shift = ring.head - config.sequence_length + 1
  by_rank = jax.vmap(jnp.roll)(by_slot, shift)
  rank = jnp.arange(max_length, dtype=jnp.int32)[None]
  return (by_rank > 0) & (rank < recent_counts[:, None])


def choose_uniform(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  key: types.Key,
  population: Population,
) -> Chosen:
  """Samples uniformly from all candidates."""
  if config.draw == draws.DISTINCT:
    weights = prioritized.candidates_in_slots(config, ring).astype(jnp.float32)
    env_id, slot, is_valid = _choose_distinct(
      config, ring, key, population, weights.reshape(-1)
    )
  else:
    groups = population.groups
    # `locate` needs the same cumulative sum, which XLA shares.
    num_all = jnp.cumsum(population.counts)[-1]
    num_of_group = jnp.where(groups.is_recent, population.num_recent, num_all)
    # The last two columns are for `draw_uniform` to rotate each group.
    bits = jax.random.bits(key, (2, config.batch_size + 2))
    number = draws.draw_uniform(bits, groups, num_of_group, config.draw)
    env_id, rank = draws.locate(number, population.counts)
    if config.recent_data:
      recent = draws.locate(number, population.recent_counts)
      env_id = jnp.where(groups.is_recent, recent[0], env_id)
      rank = jnp.where(groups.is_recent, recent[1], rank)
    slot = _slot_of_rank(config, ring, env_id, rank)
    is_valid = _after(slot, num_of_group) > 0
  num_candidates = jnp.sum(_after(slot, population.counts))
  probability = 1.0 / jnp.maximum(num_candidates, 1)[None].astype(jnp.float32)
  return Chosen(env_id, slot, is_valid, probability, num_candidates)


def choose_proportional(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  key: types.Key,
  hyperparameters: config_lib.ReplayHyperparameters,
  tree: segment_tree.SegmentTree,
) -> tuple[Population, Chosen]:
  """Samples in proportion to the leaves of `tree`; zero leaves never occur."""
  num_environments, max_length = ring_lib.dimensions(ring)
  weights = segment_tree.get_all(tree, num_environments * max_length)
  population, is_recent_drawn = make_population(
    config, ring, hyperparameters, weights
  )
  if config.recent_data:
    key, recent_key = jax.random.split(key)
  if config.draw == draws.DISTINCT:
    # A state from a replay of another sequence length may have other leaves.
    is_candidate = prioritized.candidates_in_slots(config, ring).reshape(-1)
    env_id, slot, is_valid = _choose_distinct(
      config, ring, key, population, jnp.where(is_candidate, weights, 0.0)
    )
    value = segment_tree.take(tree, env_id * max_length + slot)
  else:
    leaf, value = draws.draw_proportional(
      jax.random.bits(key, (2, config.batch_size)),
      population.groups,
      tree,
      config.draw,
    )
    env_id, slot = jnp.divmod(leaf, max_length)
    is_valid = value > 0
  if is_recent_drawn is not None and config.draw != draws.DISTINCT:
    is_recent = population.groups.is_recent
    recent_id, recent_slot = _choose_recent(
      config, ring, recent_key, population, is_recent_drawn
    )
    env_id = jnp.where(is_recent, recent_id, env_id)
    slot = jnp.where(is_recent, recent_slot, slot)
    is_valid |= is_recent
    value = segment_tree.take(tree, env_id * max_length + slot)
  total = segment_tree.summary(tree)
  probability = jnp.where(total > 0, value / total, 0.0)
  num_candidates = jnp.sum(_after(slot, population.counts))
  chosen = Chosen(env_id, slot, is_valid, probability, num_candidates)
  return population, chosen


def _choose_recent(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  key: types.Key,
  population: Population,
  is_drawn: types.Array,
) -> tuple[types.Array, types.Array]:
  """Samples environment and slot [B] uniformly where `is_drawn` [E, L]."""
  _, max_length = ring_lib.dimensions(ring)
  bits = jax.random.bits(key, (2, config.batch_size + 2))
  number = draws.draw_uniform(
    bits,
    population.groups,
    jnp.broadcast_to(population.num_recent, (config.batch_size,)),
    config.draw,
  )
  ends = jnp.cumsum(is_drawn.reshape(-1), dtype=jnp.int32)
  index = draws.count_up_to(ends, number)
  index = jnp.minimum(index, ends.size - 1)
  env_id, rank = index // max_length, index % max_length
  return env_id, _slot_of_rank(config, ring, env_id, rank)


def _slot_of_rank(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  env_id: types.Array,
  rank: types.Array,
) -> types.Array:
  """Returns the slots [B] of candidates; rank 0 is the newest one."""
  # Candidates that do not exist must still map to a valid slot.
  _, max_length = ring_lib.dimensions(ring)
  age = jnp.clip(config.sequence_length + rank, 1, max_length)
  return ring_lib.slot_of_age(ring, env_id, age)


def _choose_distinct(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  key: types.Key,
  population: Population,
  weights: types.Array,
) -> tuple[types.Array, types.Array, types.Array]:
  """Samples environment, slot and validity [B] without replacement."""
  _, max_length = ring_lib.dimensions(ring)
  is_recent = None
  if config.recent_data:
    rank = ring_lib.slot_ages(ring) - config.sequence_length
    is_recent = (rank >= 0) & (rank < population.recent_counts[:, None])
    is_recent = is_recent.reshape(-1) & (weights > 0)
  leaf, is_valid = draws.draw_distinct(
    key, population.groups, weights, is_recent
  )
  return leaf // max_length, leaf % max_length, is_valid


def mix_in_recent(
  config: config_lib.ReplayConfig,
  population: Population,
  age: types.Array,
  chosen: Chosen,
) -> types.Array:
  """Returns the probabilities [B], taking rows of recent steps into account."""
  if not config.recent_data:
    return chosen.probability
  groups = population.groups
  share = groups.num_recent.astype(jnp.float32) / config.batch_size
  recent_counts = ring_lib.take(population.recent_counts, chosen.env_id)
  is_recent = age - config.sequence_length < recent_counts
  num_recent = jnp.maximum(population.num_recent, 1).astype(jnp.float32)
  recent = is_recent.astype(jnp.float32) / num_recent
  return share * recent + (1 - share) * chosen.probability


def _after(slot: types.Array, number: types.Array) -> types.Array:
  """Returns `number`, but makes its computation wait for that of `slot` [B].

  XLA on a CPU calls another thread if several operations can run at once, which
  takes longer than these do. Slots are non-negative, so the value is unchanged.
  """
  return number - jnp.minimum(slot[0], 0)
