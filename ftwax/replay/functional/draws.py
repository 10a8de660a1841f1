"""Random draws of sequences: uniform or proportional, repeated or not.

Uniform draws use integers of 64 random bits, which suffice for any number of
steps. There are three ways to draw a batch:

  * `independent`: rows are independent and may repeat.
  * `stratified`: the candidates are divided into as many equal parts as there
    are rows, with one draw from each (Schaul et al., 2016, arXiv:1511.05952,
    appendix B.2.1). Each row has the same distribution as an independent one,
    but the batch has less variance. Uniform rows only repeat if there are fewer
    candidates than rows, proportional ones if one candidate's share is large.
  * `distinct`: without replacement. Each row is drawn in proportion from the
    remaining candidates (Efraimidis & Spirakis, 2006,
    doi:10.1016/j.ipl.2005.11.003). It costs O(E L), the others O(rows log E L).

A candidate is the first step of a sequence, identified by environment and age.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ftwax import types
from ftwax.replay.functional import segment_tree

INDEPENDENT = 'independent'
STRATIFIED = 'stratified'
DISTINCT = 'distinct'
METHODS = (INDEPENDENT, STRATIFIED, DISTINCT)


class Groups(NamedTuple):
  """Which rows of a batch are drawn from recent steps, and which from all.

  Attributes:
    is_recent: bool [B], true in the first `num_recent` rows.
    rank: int32 [B], index of the row within its group.
    num_rows: int32 [B], number of rows of its group.
    num_recent: int32 [].
  """

  is_recent: types.Array
  rank: types.Array
  num_rows: types.Array
  num_recent: types.Array


def make_groups(batch_size: int, num_recent: types.Array) -> Groups:
  """Assigns the first `num_recent` rows to recent steps."""
  row = jnp.arange(batch_size, dtype=jnp.int32)
  is_recent = row < num_recent
  return Groups(
    is_recent=is_recent,
    rank=jnp.where(is_recent, row, row - num_recent),
    num_rows=jnp.where(is_recent, num_recent, batch_size - num_recent),
    num_recent=num_recent,
  )


def scale_bits(bits: types.Array, num_values: types.Array) -> types.Array:
  """Converts 64 random bits to an integer in [0, num_values), int32 [...].

  It is the integer part of bits / 2^64 * num_values, whose distribution differs
  from the uniform one by less than num_values / 2^64.

  Args:
    bits: uint32 [2, ...], the high words and the low words.
    num_values: int32 [...], at least 1.
  """
  # The highest 32 of the 96 bits of the product; JAX has no uint64 by default.
  high, low = bits
  num_values = num_values.astype(jnp.uint32)
  product_high, product_low = _multiply(high, num_values)
  carry_in, _ = _multiply(low, num_values)
  # An unsigned sum that wraps around is less than each of its terms.
  carries = product_low + carry_in < product_low
  return (product_high + carries.astype(jnp.uint32)).astype(jnp.int32)


def _multiply(
  a: types.Array, b: types.Array
) -> tuple[types.Array, types.Array]:
  """Returns the high and the low word of the product of two uint32."""
  # Products of 16-bit halves fit into 32 bits.
  a_high, a_low = a >> 16, a & 0xFFFF
  b_high, b_low = b >> 16, b & 0xFFFF
  middle = a_high * b_low + ((a_low * b_low) >> 16)
  low_middle = a_low * b_high + (middle & 0xFFFF)
  return a_high * b_high + (middle >> 16) + (low_middle >> 16), a * b


def draw_uniform(
  bits: types.Array,
  groups: Groups,
  num_candidates: types.Array,
  method: str,
) -> types.Array:
  """Draws the index of each row among the candidates of its group, int32 [B].

  Args:
    bits: uint32 [2, B + 2], random.
    groups: the groups of the rows.
    num_candidates: int32 [B], candidates of each row's group; 0 counts as 1.
    method: INDEPENDENT or STRATIFIED.
  """
  num_candidates = jnp.maximum(num_candidates, 1)
  if method == INDEPENDENT:
    return scale_bits(bits[:, :-2], num_candidates)
  num_rows = jnp.maximum(groups.num_rows, 1)
  # Part `i` of `n` candidates begins at floor(i n / rows). The product i n
  # could overflow int32, the product of `i` and the rest of n / rows cannot.
  whole, rest = num_candidates // num_rows, num_candidates % num_rows
  low = groups.rank * whole + groups.rank * rest // num_rows
  size = (
    whole
    + (groups.rank + 1) * rest // num_rows
    - (groups.rank * rest // num_rows)
  )
  number = low + scale_bits(bits[:, :-2], jnp.maximum(size, 1))
  # The sizes of parts differ by one: a random rotation of the candidates, one
  # for each group, gives all of them the same probability.
  angle_bits = bits[:, -2:][:, groups.is_recent.astype(jnp.int32)]
  number += scale_bits(angle_bits, num_candidates)
  return jnp.where(number >= num_candidates, number - num_candidates, number)


def locate(
  number: types.Array, counts: types.Array
) -> tuple[types.Array, types.Array]:
  """Converts indices of candidates to environment and rank within it, [B] each.

  Args:
    number: int32 [B], index among the candidates of all environments.
    counts: int32 [E], candidates of each environment.
  """
  num_environments = counts.shape[0]
  if num_environments == 1:
    return jnp.zeros_like(number), number
  ends = jnp.cumsum(counts)
  if num_environments <= 256:
    env_id = jnp.searchsorted(ends, number, side='right', method='compare_all')
  else:
    env_id = count_up_to(ends, number)
  # Without any candidate, number 0 lies beyond all ends.
  env_id = jnp.minimum(env_id.astype(jnp.int32), num_environments - 1)
  start = (ends - counts).at[env_id].get(mode='promise_in_bounds')
  return env_id, number - start


def count_up_to(ordered: types.Array, number: types.Array) -> types.Array:
  """Counts the entries of sorted `ordered` [n] that are at most `number` [...].

  Equivalent to `jnp.searchsorted(side='right')`, without its loop, whose carry
  `shard_map` rejects.
  """
  count = jnp.zeros_like(number, jnp.int32)
  # A binary search that decides the bits of the count, highest first.
  for bit in reversed(range(ordered.size.bit_length())):
    more = count + (1 << bit)
    last = ordered.at[jnp.minimum(more, ordered.size) - 1].get(
      mode='promise_in_bounds'
    )
    is_more = (more <= ordered.size) & (last <= number)
    count = jnp.where(is_more, more, count)
  return count


def draw_proportional(
  bits: types.Array,
  groups: Groups,
  tree: segment_tree.SegmentTree,
  method: str,
) -> tuple[types.Array, types.Array]:
  """Draws a leaf of `tree` for each row, in proportion to the leaves' values.

  Args:
    bits: uint32 [2, B], random.
    groups: the groups of the rows; results for recent rows are meaningless.
    tree: a tree of sums.
    method: INDEPENDENT or STRATIFIED.

  Returns:
    The leaves, int32 [B], and their values, float32 [B], which are nonzero
    unless all values are zero.
  """
  total = segment_tree.summary(tree)
  high, low = bits
  # float32 holds 24 bits; further ones go into the remainder.
  uniform = (high >> 8).astype(jnp.float32) * 2.0**-24
  remainder = low.astype(jnp.float32) * (2.0**-56 * total)
  if method == INDEPENDENT:
    return segment_tree.search(tree, uniform * total, remainder)
  num_rows = jnp.maximum(groups.num_rows, 1).astype(jnp.float32)
  part = total / num_rows
  start = groups.rank.astype(jnp.float32) * part
  offset = uniform * part
  threshold = start + offset
  # The second term is the rounding error of the threshold.
  remainder = remainder / num_rows + (offset - (threshold - start))
  return segment_tree.search(tree, threshold, remainder)


def draw_distinct(
  key: types.Key,
  groups: Groups,
  weights: types.Array,
  is_recent: types.Array | None,
) -> tuple[types.Array, types.Array]:
  """Draws a different leaf for each row, in proportion to weights.

  Each leaf gets an exponentially distributed random time whose rate is its
  weight; the earliest leaves are drawn. Rows of recent steps are drawn first,
  uniformly.

  Args:
    key: random key.
    groups: the groups of the rows.
    weights: float32 [E L], zero for leaves that must not be drawn.
    is_recent: bool [E L], candidates for recent rows; None without such rows.

  Returns:
    The leaves, int32 [B], and bool [B], false in rows for which no leaf was
    left.
  """
  batch_size = groups.rank.shape[0]
  if is_recent is None:
    return _race(key, jnp.log(weights), batch_size)
  key, recent_key = jax.random.split(key)
  chosen, was_found = _race(
    recent_key, jnp.where(is_recent, 0.0, -jnp.inf), batch_size
  )
  # Leaves that recent rows took leave the race. Index E L is dropped.
  recent = jnp.where(groups.is_recent, chosen, weights.size)
  rest = weights.at[recent].set(0.0, mode='drop')
  others, others_found = _race(key, jnp.log(rest), batch_size)
  return (
    jnp.where(groups.is_recent, chosen, others[groups.rank]),
    jnp.where(groups.is_recent, was_found, others_found[groups.rank]),
  )


def _race(
  key: types.Key, log_weights: types.Array, num_winners: int
) -> tuple[types.Array, types.Array]:
  """Returns the first `num_winners` leaves, and whether each has a weight."""
  bits = jax.random.bits(key, log_weights.shape)
  # Small numbers, which win, are the most precise. The bound avoids log(0).
  uniform = jnp.minimum((bits.astype(jnp.float32) + 0.5) * 2.0**-32, 1 - 2**-24)
  # Minus the log of the time, which is -log(1 - uniform) / weight.
  scores = log_weights - jnp.log(-jnp.log1p(-uniform))
  num_scores = min(num_winners, scores.size)
  scores, index = lax.top_k(scores, num_scores)
  padding = (0, num_winners - num_scores)
  return jnp.pad(index, padding), jnp.pad(scores > -jnp.inf, padding)
