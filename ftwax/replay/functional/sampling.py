"""Sampling sequences from a replay."""

import operator
from typing import Any

import jax.numpy as jnp
from jax import lax

from ftwax import types
from ftwax.replay.functional import (
  choices,
  draws,
  prioritized,
  replay_checks,
  segment_tree,
)
from ftwax.replay.functional import replay_config as config_lib
from ftwax.replay.functional import ring as ring_lib


def sample(
  config: config_lib.ReplayConfig,
  state: config_lib.ReplayState,
  key: types.Key,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
  batch_size: int | None = None,
  sequence_length: int | None = None,
) -> config_lib.Sample:
  """Draws B sequences of T consecutive steps each.

  Sequences may run across the ends of episodes, never across the head of the
  ring: what they hold is what one environment wrote, in order. Uniform draws
  give each stored sequence the same probability, whatever its environment.

  Rows of stratified draws come in the order of environments and slots, so that
  consecutive rows are from the same environment. Permute them before cutting
  the batch into minibatches.

  If `recent_data` is set, and less than `recent_data_ratio` of the candidates
  are recent, that share of the batch, rounded up, is drawn uniformly from
  recent ones whose priority is not zero; these rows come first, and the others
  may repeat them unless they are 'distinct'. The probabilities include that.
  With priorities recent rows take O(E L).

  Args:
    config: static.
    state: the state.
    key: key for the draw.
    hyperparameters: the share of recent steps, and the importance exponent.
    batch_size: B, static; that of the config unless given.
    sequence_length: T, static; that of the config unless given. Priorities of
      another length are those of sequences that begin with the same step.

  Returns:
    The sample. Rows for which there was nothing to draw are not valid, nor are
    those with which no whole sequence begins, as may happen where a replay of a
    shorter sequence length filled the state (`reindex` mends that). Under
    `jit`, an importance exponent that is negative or not finite is taken for 0.

  Raises:
    ValueError: if the state is not of this replay; outside `jit`, if there is a
      row that is not valid, or a hyperparameter out of range.
  """
  new = _resize(config, batch_size, sequence_length)
  if config.prioritized:
    tree = _sampling_tree(config, new, state, hyperparameters)
    population, chosen = choices.choose_proportional(
      new, state.ring, key, hyperparameters, tree
    )
  else:
    population, _ = choices.make_population(new, state.ring, hyperparameters)
    chosen = choices.choose_uniform(new, state.ring, key, population)
  return _make_sample(new, state, population, chosen, hyperparameters)


def sample_weighted(
  config: config_lib.ReplayConfig,
  state: config_lib.ReplayState,
  key: types.Key,
  weights: types.Array,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
  batch_size: int | None = None,
  sequence_length: int | None = None,
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
    batch_size: as for `sample`.
    sequence_length: as for `sample`.

  Returns:
    As `sample`.

  Raises:
    ValueError: outside `jit`, if there is a row that is not valid, or a weight
      is negative or not finite; under `jit` such weights are taken for zero.
  """
  config = _resize(config, batch_size, sequence_length)
  weights = jnp.asarray(weights)
  if weights.shape != ring_lib.dimensions(state.ring):
    raise ValueError(
      f'weights {weights.shape} must be [num_environments, max_length]'
      f' {ring_lib.dimensions(state.ring)}; give one for each slot.'
    )
  is_weight = jnp.isfinite(weights) & (weights >= 0)
  replay_checks.check(
    config.checkify,
    is_weight,
    'weights must be finite and not negative, got {weight}; clip them.',
    weight=weights,
  )
  is_weight &= config.candidates.in_slots(state.ring)
  tree = segment_tree.build(
    segment_tree.SUM, jnp.where(is_weight, weights, 0.0).reshape(-1)
  )
  population, chosen = choices.choose_proportional(
    config, state.ring, key, hyperparameters, tree
  )
  return _make_sample(config, state, population, chosen, hyperparameters)


def can_sample(
  config: config_lib.ReplayConfig,
  state: config_lib.ReplayState,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
  batch_size: int | None = None,
  sequence_length: int | None = None,
) -> types.Array:
  """Returns whether all rows of a sample would be valid, bool.

  Args:
    config: static.
    state: the state.
    hyperparameters: the initial priority.
    batch_size: as for `sample`.
    sequence_length: as for `sample`.
  """
  new = _resize(config, batch_size, sequence_length)
  distinct = new.draw == draws.DISTINCT
  if not config.prioritized:
    count = jnp.sum(new.candidates.count(state.ring))
  else:
    tree = _sampling_tree(config, new, state, hyperparameters)
    if not distinct:
      return segment_tree.summary(tree) > 0
    count = segment_tree.count_nonzero(tree)
  return count >= (new.batch_size if distinct else 1)


def _resize(
  config: config_lib.ReplayConfig,
  batch_size: int | None,
  sequence_length: int | None,
) -> config_lib.ReplayConfig:
  """Returns a config with other sizes of a sample, where they are given."""
  changes: dict[str, Any] = {}
  for name, value in (
    ('batch_size', batch_size),
    ('sequence_length', sequence_length),
  ):
    if value is None:
      continue
    try:
      changes[name] = operator.index(value)
    except TypeError as error:
      raise ValueError(
        f'{name} ({value}) must be an integer that is known when the function'
        f' is compiled, since it is a shape; add static_argnames={name!r} to'
        ' jit.'
      ) from error
  return config.replace(**changes) if changes else config


def _sampling_tree(
  config: config_lib.ReplayConfig,
  new: config_lib.ReplayConfig,
  state: config_lib.ReplayState,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> segment_tree.SegmentTree:
  """Returns the priorities of sequences of the length that `new` has."""
  priorities = state.priorities
  assert priorities is not None  # `check_state` saw to it.
  if new.sequence_length != config.sequence_length:
    priorities = prioritized.resize(
      priorities,
      state.ring,
      config.candidates,
      new.candidates,
      config_lib.lowest_priority(config, hyperparameters),
    )
  return priorities.sampling


def _make_sample(
  config: config_lib.ReplayConfig,
  state: config_lib.ReplayState,
  population: choices.Population,
  chosen: choices.Chosen,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> config_lib.Sample:
  """Reads the chosen sequences."""
  ring = state.ring
  _, max_length = ring_lib.dimensions(ring)
  # Or XLA would fuse the random draw into each of the reads, and repeat it.
  chosen = lax.optimization_barrier(chosen)
  env_id, slot, is_valid = chosen.env_id, chosen.slot, chosen.is_valid
  steps = jnp.arange(config.sequence_length, dtype=jnp.int32)[:, None]
  slots = slot[None] + steps  # [T, B]
  slots = jnp.where(slots < max_length, slots, slots - max_length)
  age = ring_lib.age_of_slot(ring, env_id, slot)
  if config.prioritized:
    size = ring_lib.take(ring.size, env_id)
    is_whole = config.candidates.contain(age, size)
    _check_whole(config, is_whole | ~is_valid)
    is_valid &= is_whole
  _check_valid(config, chosen.num_candidates, is_valid)
  probability = choices.mix_in_recent(config, population, age, chosen)
  discounted_return = None
  if state.returns is not None:
    discounted_return = ring_lib.read(state.returns.value, env_id, slot)
  info = config_lib.SampleInfo(
    env_id=env_id,
    position=ring_lib.take(ring.position, env_id) - age,
    probability=jnp.where(is_valid, probability, 0.0),
    num_candidates=chosen.num_candidates,
    importance_weight=prioritized.importance_weights(
      probability, _importance_exponent(config, hyperparameters), is_valid
    ),
    is_valid=is_valid,
    discounted_return=discounted_return,
  )
  rows = jnp.broadcast_to(env_id, slots.shape)
  return config_lib.Sample(ring_lib.read(ring.data, rows, slots), info)


def _importance_exponent(
  config: config_lib.ReplayConfig,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> types.Array:
  exponent = hyperparameters.importance_exponent
  is_good = replay_checks.check_scalar(
    config.checkify, 'importance_exponent', exponent
  )
  return jnp.where(is_good, jnp.asarray(exponent, jnp.float32), 0.0)


def _check_whole(
  config: config_lib.ReplayConfig, is_whole: types.Array
) -> None:
  replay_checks.check(
    config.checkify,
    is_whole,
    f'a sequence must have {config.sequence_length} steps, one that was drawn'
    ' has not: priorities of the state are of another sequence_length; call'
    ' reindex() once.',
  )


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
