"""Recurrences that are parallel in time: an associative scan with resets.

If steps can be combined associatively, all states of an unroll follow in about
`log2(T)` rounds (Blelloch, 1990; Martin and Cundy, 2018, arXiv:1709.04057). In
a linear recurrence, `h -> a h + b`, a step is the pair (a, b).
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from ftwax import shapes, trees, types

_Element = TypeVar('_Element')


def unroll(
  combine: Callable[[_Element, _Element], _Element],
  elements: _Element,
  start: types.Array,
  state: _Element,
) -> _Element:
  """Combines all steps up to each one, since the start of its episode.

  Args:
    combine: `(earlier, later) -> both`, associative, on leaves [..., B, *rest].
    elements: a step each, leaves [T, B, *rest].
    start: bool [T, B], true at the first step of an episode.
    state: what happened before the first step, leaves [B, *rest].

  Returns:
    The combinations, leaves [T, B, *rest].

  Raises:
    ValueError: if elements, start and state do not have the same T and B.
  """
  jax.tree.map(
    lambda element, before: shapes.check(
      'unroll',
      start=(start, 'T B'),
      elements=(element, 'T B ...'),
      state=(before, 'B ...'),
    ),
    elements,
    state,
  )

  def combine_in_episode(
    earlier: tuple[types.Array, _Element], later: tuple[types.Array, _Element]
  ) -> tuple[types.Array, _Element]:
    # A start hides what is before it; with this flag, `combine` stays
    # associative, whatever it computes.
    both = combine(earlier[1], later[1])
    both = trees.where_rows(later[0], later[1], both)
    return earlier[0] | later[0], both

  first = trees.take((start, elements), 0)
  _, first = combine_in_episode((jnp.zeros_like(start[0]), state), first)
  elements = jax.tree.map(
    lambda leaf, row: jnp.concatenate([row[None], leaf[1:]]), elements, first
  )
  return jax.lax.associative_scan(combine_in_episode, (start, elements))[1]


class Affine(NamedTuple):
  """A step `h -> scale * h + shift`, float32 or complex64 [..., num_units]."""

  scale: types.Array
  shift: types.Array


def combine_affine(earlier: Affine, later: Affine) -> Affine:
  """Returns the step that does both."""
  return Affine(
    later.scale * earlier.scale, later.scale * earlier.shift + later.shift
  )
