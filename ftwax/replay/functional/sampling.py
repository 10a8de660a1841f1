"""Samples sequences from a replay."""

import operator
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ftwax import types
from ftwax.replay.functional import (
  choices,
  contents,
  draws,
  prioritized,
  replay_checks,
  segment_tree,
)
from ftwax.replay.functional import replay_config as config_lib
from ftwax.replay.functional import ring as ring_lib


class SampleInfo(NamedTuple):
  """Origin and weight of sampled sequences.

  Attributes:
    env_id: int32 [B].
    position: int32 [B], position of the first step.
    probability: float32 [B], probability that a row of the batch is this
      sequence; for distinct rows, that the first row drawn is.
    num_candidates: int32 [], number of sequences to sample from.
    importance_weight: float32 [B], (num_candidates * probability) ** -beta,
      divided by the largest one of the batch.
    is_valid: bool [B]; if false, no complete sequence was drawn, the weight is
      zero and the data are arbitrary.
    discounted_return: float32 [B, ...], the episodic return of the first step;
      None if not recorded.
  """

  env_id: types.Array
  position: types.Array
  probability: types.Array
  num_candidates: types.Array
  importance_weight: types.Array
  is_valid: types.Array
  discounted_return: types.Array | None


class Sample(NamedTuple):
  """A batch of sequences.

  Attributes:
    data: leaves [T, B, ...].
    info: their origin and weight.
  """

  data: types.ArrayTree
  info: SampleInfo


def sample(
  config: config_lib.ReplayConfig,
  state: contents.ReplayState,
  key: types.Key,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
  batch_size: int | None = None,
  sequence_length: int | None = None,
) -> Sample:
  """Samples B sequences of T consecutive steps each.

  Sequences may cross episode boundaries, but not the head of the ring: each
  holds steps that one environment added in this order. Uniform sampling gives
  each stored sequence the same probability, whatever its environment.

  Rows of stratified draws are in the order of environments and slots, so that
  consecutive rows come from the same environment. Shuffle them before splitting
  the batch into minibatches.

  If `recent_data` is set, and less than `recent_data_ratio` of the candidates
  are recent, that share of the batch, rounded up, is sampled uniformly from
  recent candidates of nonzero priority. These rows come first, and the others
  may repeat them unless `draw` is 'distinct'. Probabilities take this into
  account. With priorities, recent rows cost O(E L).

  Args:
    config: static.
    state: the state.
    key: random key.
    hyperparameters: the share of recent steps, and the importance exponent.
    batch_size: B, static; by default the config's.
    sequence_length: T, static; by default the config's. A sequence of another
      length has the priority of the sequence with the same first step.

  Returns:
    The sample. Rows are not valid if there was nothing to sample, or if the
    sequence is incomplete, as may happen if a replay with a shorter sequence
    length filled the state (`reindex` fixes this). Under `jit`, an importance
    exponent that is negative or not finite counts as 0.

  Raises:
    ValueError: if the state is not of this replay; outside `jit`, if a row is
      not valid, or a hyperparameter is out of range.
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
  state: contents.ReplayState,
  key: types.Key,
  weights: types.Array,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
  batch_size: int | None = None,
  sequence_length: int | None = None,
) -> Sample:
  """Samples B sequences in proportion to given weights, in O(E L).

  It is for sampling that depends on the stored data, such as balancing zero and
  nonzero rewards for reward prediction (Jaderberg et al., 2017,
  arXiv:1611.05397). The weight of a sequence is at the slot of its first step.
  To weight it by a property `x` of the step `n` slots later, use
  `jnp.roll(x, -n, axis=1)`, since slots are consecutive modulo L.

  Args:
    config: static.
    state: the state.
    key: random key.
    weights: float32 [E, L], non-negative; those of slots in which no sequence
      begins are ignored.
    hyperparameters: as for `sample`.
    batch_size: as for `sample`.
    sequence_length: as for `sample`.

  Returns:
    As for `sample`.

  Raises:
    ValueError: outside `jit`, if a row is not valid, or a weight is negative or
      not finite; under `jit` such weights count as zero.
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
  is_weight &= prioritized.candidates_in_slots(config, state.ring)
  tree = segment_tree.build(
    segment_tree.SUM, jnp.where(is_weight, weights, 0.0).reshape(-1)
  )
  population, chosen = choices.choose_proportional(
    config, state.ring, key, hyperparameters, tree
  )
  return _make_sample(config, state, population, chosen, hyperparameters)


def can_sample(
  config: config_lib.ReplayConfig,
  state: contents.ReplayState,
  hyperparameters: config_lib.ReplayHyperparameters = config_lib.DEFAULTS,
  batch_size: int | None = None,
  sequence_length: int | None = None,
) -> types.Array:
  """Returns whether all rows of a sample would be valid, bool [].

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
    count = jnp.sum(prioritized.count_candidates(new, state.ring))
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
  """Returns the config with other sizes of a sample, if given."""
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
  state: contents.ReplayState,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> segment_tree.SegmentTree:
  """Returns the priorities of sequences of the length in `new`."""
  priorities = state.priorities
  assert priorities is not None  # Checked by `check_state`.
  if new.sequence_length != config.sequence_length:
    priorities = prioritized.resize(
      config, priorities, state.ring, new.sequence_length, hyperparameters
    )
  return priorities.sampling


def _make_sample(
  config: config_lib.ReplayConfig,
  state: contents.ReplayState,
  population: choices.Population,
  chosen: choices.Chosen,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> Sample:
  """Reads the chosen sequences."""
  ring = state.ring
  _, max_length = ring_lib.dimensions(ring)
  # Otherwise XLA fuses the random draw into each of the reads and repeats it.
  chosen = lax.optimization_barrier(chosen)
  env_id, slot, is_valid = chosen.env_id, chosen.slot, chosen.is_valid
  steps = jnp.arange(config.sequence_length, dtype=jnp.int32)[:, None]
  slots = slot[None] + steps  # [T, B]
  slots = jnp.where(slots < max_length, slots, slots - max_length)
  age = ring_lib.age_of_slot(ring, env_id, slot)
  if config.prioritized:
    # The state may hold priorities for another sequence length.
    size = ring_lib.take(ring.size, env_id)
    is_whole = prioritized.begins_candidate(config, age, size)
    replay_checks.check(
      config.checkify,
      is_whole | ~is_valid,
      f'a sequence must have {config.sequence_length} steps, but one that was'
      ' drawn has not: the priorities of the state are for another'
      ' sequence_length; call reindex() once.',
    )
    is_valid &= is_whole
  _check_valid(config, chosen.num_candidates, is_valid)
  probability = choices.mix_in_recent(config, population, age, chosen)
  discounted_return = None
  if state.returns is not None:
    discounted_return = ring_lib.read(state.returns.value, env_id, slot)
  info = SampleInfo(
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
  return Sample(ring_lib.read(ring.data, rows, slots), info)


def _importance_exponent(
  config: config_lib.ReplayConfig,
  hyperparameters: config_lib.ReplayHyperparameters,
) -> types.Array:
  exponent = hyperparameters.importance_exponent
  is_good = replay_checks.check_scalar(
    config.checkify, 'importance_exponent', exponent
  )
  return jnp.where(is_good, jnp.asarray(exponent, jnp.float32), 0.0)


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
    ' more steps first, and check can_sample().',
    num_candidates=num_candidates,
  )
