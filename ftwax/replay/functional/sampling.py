"""Sampling sequences from a replay."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ftwax import types
from ftwax.replay.functional import (
  draws,
  prioritized,
  replay_checks,
  segment_tree,
)
from ftwax.replay.functional import replay_config as config_lib
from ftwax.replay.functional import ring as ring_lib


class _Population(NamedTuple):
  """What is drawn from.

  Attributes:
    counts: int32 [E], candidates of each environment.
    recent_counts: int32 [E], those that are recent; they are the newest.
    groups: which rows are drawn from all, and which from recent ones.
  """

  counts: types.Array
  recent_counts: types.Array
  groups: draws.Groups


class _Chosen(NamedTuple):
  """What was drawn, [B] each.

  Attributes:
    env_id: int32.
    slot: int32.
    is_valid: bool.
    probability: float32, or [1] for all, without regard to recent rows.
    num_candidates: int32, the number of all sequences.
  """

  env_id: types.Array
  slot: types.Array
  is_valid: types.Array
  probability: types.Array
  num_candidates: types.Array


def sample(
  config: config_lib.ReplayConfig,
  state: config_lib.ReplayState,
  key: types.Key,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
) -> config_lib.Sample:
  """Draws B sequences of T consecutive steps each.

  Sequences may run across the ends of episodes, never across the head of the
  ring: what they hold is what one environment wrote, in order. Uniform draws
  give each stored sequence the same probability, whatever its environment.

  If `recent_data` is set, and less than `recent_data_ratio` of the candidates
  are recent, that share of the batch, rounded up, is drawn uniformly from
  recent ones; these rows come first, and the others may repeat them unless
  they are 'distinct'. The probabilities tell of that.

  Args:
    config: static.
    state: the state.
    key: key for the draw.
    hyperparameters: the share of recent steps, and the importance exponent.

  Returns:
    The sample. Rows for which there was nothing to draw are not valid.

  Raises:
    ValueError: outside `jit`, if there is a row that is not valid.
  """
  population = _make_population(config, state.ring, hyperparameters)
  if config.prioritized:
    assert state.priorities is not None
    tree = state.priorities.sampling
    chosen = _choose_proportional(config, state.ring, key, population, tree)
  else:
    chosen = _choose_uniform(config, state.ring, key, population)
  return _make_sample(config, state, population, chosen, hyperparameters)


def sample_weighted(
  config: config_lib.ReplayConfig,
  state: config_lib.ReplayState,
  key: types.Key,
  weights: types.Array,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
) -> config_lib.Sample:
  """Draws B sequences in proportion to weights that are given, in O(E L).

  For draws that depend on what is stored, such as those that balance rewards
  of zero and others for reward prediction (Jaderberg et al., 2017,
  arXiv:1611.05397). The weight of the sequence that begins in a slot belongs
  into the slot; what a step `n` slots later says of it is brought there by
  `jnp.roll(x, -n, axis=1)`, since slots are consecutive modulo L.

  Args:
    config: static.
    state: the state.
    key: key for the draw.
    weights: float32 [E, L], not negative; those of slots in which no sequence
      begins do not matter.
    hyperparameters: as for `sample`.

  Returns:
    As `sample`.

  Raises:
    ValueError: outside `jit`, if there is a row that is not valid, or a weight
      is negative or not finite; under `jit` such weights are taken for zero.
  """
  if weights.shape != ring_lib.dimensions(state.ring):
    raise ValueError(
      f'weights {weights.shape} must be [num_environments, max_length]'
      f' {ring_lib.dimensions(state.ring)}, one for each slot.'
    )
  is_weight = jnp.isfinite(weights) & (weights >= 0)
  replay_checks.check(
    config.checkify,
    is_weight,
    'weights must be finite and not negative, got {weight}; clip them.',
    weight=weights.reshape(-1)[jnp.argmin(is_weight)],
  )
  is_weight &= config.candidates.in_slots(state.ring)
  tree = segment_tree.build(
    segment_tree.SUM, jnp.where(is_weight, weights, 0.0).reshape(-1)
  )
  population = _make_population(config, state.ring, hyperparameters)
  chosen = _choose_proportional(config, state.ring, key, population, tree)
  return _make_sample(config, state, population, chosen, hyperparameters)


def can_sample(
  config: config_lib.ReplayConfig, state: config_lib.ReplayState
) -> types.Array:
  """Returns whether all rows of a sample would be valid, bool."""
  distinct = config.draw == draws.DISTINCT
  if not config.prioritized:
    count = jnp.sum(config.candidates.count(state.ring))
  elif distinct:
    assert state.priorities is not None
    count = segment_tree.count_nonzero(state.priorities.sampling)
  else:
    assert state.priorities is not None
    count = segment_tree.summary(state.priorities.sampling) > 0
  return count >= (config.batch_size if distinct else 1)


def _make_population(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> _Population:
  """Counts the candidates and shares out the rows of the batch."""
  ratio = jnp.asarray(hyperparameters.recent_data_ratio, jnp.float32)
  replay_checks.check(
    config.checkify,
    (ratio >= 0) & (ratio <= float(config.recent_data)),
    'recent_data_ratio must lie in [0, 1], and be 0 unless the replay was made'
    ' with recent_data=True; got {ratio}.',
    ratio=ratio,
  )
  counts = config.candidates.count(ring)
  if not config.recent_data:
    groups = draws.make_groups(config.batch_size, jnp.int32(0))
    return _Population(counts, counts, groups)
  recent_steps = jnp.maximum(hyperparameters.recent_data_steps, 1)
  recent_counts = jnp.minimum(counts, recent_steps)
  is_scarce = jnp.sum(recent_counts) < ratio * jnp.sum(counts)
  # In float32 0.15 of 100 is more than 15, yet 15 are meant.
  num_recent = jnp.ceil(config.batch_size * ratio * (1 - 1e-6))
  num_recent = jnp.where(is_scarce, num_recent, 0).astype(jnp.int32)
  num_recent = jnp.clip(num_recent, 0, config.batch_size)
  groups = draws.make_groups(config.batch_size, num_recent)
  return _Population(counts, recent_counts, groups)


def _locate(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  population: _Population,
  number: types.Array,
) -> tuple[types.Array, types.Array]:
  """Returns environment and slot [B] of candidates by number in their group."""
  env_id, rank = draws.locate(number, population.counts)
  if config.recent_data:
    is_recent = population.groups.is_recent
    recent = draws.locate(number, population.recent_counts)
    env_id = jnp.where(is_recent, recent[0], env_id)
    rank = jnp.where(is_recent, recent[1], rank)
  # Numbers of candidates that do not exist must still give a slot.
  _, max_length = ring_lib.dimensions(ring)
  age = jnp.clip(config.sequence_length + rank, 1, max_length)
  return env_id, ring_lib.slot_of_age(ring, env_id, age)


def _choose_uniform(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  key: types.Key,
  population: _Population,
) -> _Chosen:
  """Draws from all candidates alike."""
  if config.draw == draws.DISTINCT:
    weights = config.candidates.in_slots(ring).astype(jnp.float32)
    env_id, slot, is_valid = _choose_distinct(
      config, ring, key, population, weights.reshape(-1)
    )
  else:
    groups = population.groups
    # The last of the sums that locating needs.
    num_all = jnp.cumsum(population.counts)[-1]
    num_of_group = jnp.where(
      groups.is_recent, jnp.sum(population.recent_counts), num_all
    )
    bits = jax.random.bits(key, (2, config.batch_size + 2))
    number = draws.draw_uniform(bits, groups, num_of_group, config.draw)
    env_id, slot = _locate(config, ring, population, number)
    is_valid = _after(slot, num_of_group) > 0
  num_candidates = jnp.sum(_after(slot, population.counts))
  probability = 1.0 / jnp.maximum(num_candidates, 1)[None]
  return _Chosen(env_id, slot, is_valid, probability, num_candidates)


def _choose_proportional(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  key: types.Key,
  population: _Population,
  tree: segment_tree.SegmentTree,
) -> _Chosen:
  """Draws in proportion to the leaves of `tree`."""
  num_environments, max_length = ring_lib.dimensions(ring)
  is_recent = population.groups.is_recent
  if config.recent_data:
    key, recent_key = jax.random.split(key)
  if config.draw == draws.DISTINCT:
    weights = segment_tree.get_all(tree, num_environments * max_length)
    env_id, slot, is_valid = _choose_distinct(
      config, ring, key, population, weights
    )
    value = segment_tree.get(tree, env_id * max_length + slot)
  else:
    leaf, value = draws.draw_proportional(
      jax.random.bits(key, (2, config.batch_size)),
      population.groups,
      tree,
      config.draw,
    )
    env_id, slot = jnp.divmod(leaf, max_length)
    is_valid = value > 0
  if config.recent_data and config.draw != draws.DISTINCT:
    recent = _choose_uniform(config, ring, recent_key, population)
    env_id = jnp.where(is_recent, recent.env_id, env_id)
    slot = jnp.where(is_recent, recent.slot, slot)
    is_valid = jnp.where(is_recent, recent.is_valid, is_valid)
    value = segment_tree.get(tree, env_id * max_length + slot)
  total = segment_tree.summary(tree)
  probability = jnp.where(total > 0, value / total, 0.0)
  num_candidates = jnp.sum(_after(slot, population.counts))
  return _Chosen(env_id, slot, is_valid, probability, num_candidates)


def _choose_distinct(
  config: config_lib.ReplayConfig,
  ring: ring_lib.Ring,
  key: types.Key,
  population: _Population,
  weights: types.Array,
) -> tuple[types.Array, types.Array, types.Array]:
  """Returns environment, slot and validity [B] of draws without replacement."""
  _, max_length = ring_lib.dimensions(ring)
  is_recent = None
  if config.recent_data:
    rank = ring_lib.slot_ages(ring) - config.sequence_length
    is_recent = (rank >= 0) & (rank < population.recent_counts[:, None])
    is_recent = is_recent.reshape(-1)
  leaf, is_valid = draws.draw_distinct(
    key, population.groups, weights, is_recent
  )
  return leaf // max_length, leaf % max_length, is_valid


def _mix_in_recent(
  config: config_lib.ReplayConfig,
  population: _Population,
  age: types.Array,
  chosen: _Chosen,
) -> types.Array:
  """Returns the probabilities [B] with regard to recent rows."""
  if not config.recent_data:
    return chosen.probability
  share = population.groups.num_recent / config.batch_size
  recent_counts = population.recent_counts
  is_recent = age - config.sequence_length < recent_counts[chosen.env_id]
  recent = is_recent / jnp.maximum(jnp.sum(recent_counts), 1)
  return share * recent + (1 - share) * chosen.probability


def _make_sample(
  config: config_lib.ReplayConfig,
  state: config_lib.ReplayState,
  population: _Population,
  chosen: _Chosen,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> config_lib.Sample:
  """Reads what was chosen."""
  ring = state.ring
  _, max_length = ring_lib.dimensions(ring)
  # Or XLA would fuse the random draw into each of the reads, and repeat it.
  chosen = lax.optimization_barrier(chosen)
  env_id, slot, is_valid = chosen.env_id, chosen.slot, chosen.is_valid
  _check_valid(config, chosen.num_candidates, is_valid)
  steps = jnp.arange(config.sequence_length, dtype=jnp.int32)[:, None]
  slots = slot[None] + steps  # [T, B]
  slots = jnp.where(slots < max_length, slots, slots - max_length)
  age = ring_lib.age_of_slot(ring, env_id, slot)
  probability = _mix_in_recent(config, population, age, chosen)
  discounted_return = None
  if state.returns is not None:
    discounted_return = ring_lib.read(state.returns.value, env_id, slot)
  info = config_lib.SampleInfo(
    env_id=env_id,
    position=ring_lib.take(ring.position, env_id) - age,
    probability=jnp.where(is_valid, probability, 0.0),
    num_candidates=chosen.num_candidates,
    importance_weight=prioritized.importance_weights(
      probability,
      hyperparameters.importance_exponent,
      is_valid,
    ),
    is_valid=is_valid,
    discounted_return=discounted_return,
  )
  rows = jnp.broadcast_to(env_id, slots.shape)
  return config_lib.Sample(ring_lib.read(ring.data, rows, slots), info)


def _after(slot: types.Array, number: types.Array) -> types.Array:
  """Returns `number`, to be computed after the draw of `slot` [B].

  XLA on a CPU calls another thread where more than a few things could be
  computed at once, which takes longer than these. Slots are not negative.
  """
  return number - jnp.minimum(slot[0], 0)


def _check_valid(
  config: config_lib.ReplayConfig,
  num_candidates: types.Array,
  is_valid: types.Array,
) -> None:
  needed = config.batch_size if config.draw == draws.DISTINCT else 1
  replay_checks.check(
    config.checkify,
    is_valid,
    f'a sample needs at least {needed} sequences of {config.sequence_length}'
    ' steps whose priority is not zero, out of {num_candidates} stored; add'
    ' more steps first, which can_sample() tells.',
    num_candidates=num_candidates,
  )
