"""Noise that an actor and its learner share.

A network with noise is a different policy for each draw. The learner computes
the probabilities of the policy that acted only if it draws the same noise.
Noise is therefore a function of a seed. There is one for each step of each row.
Actors choose the seeds, which travel with the trajectories.
"""

import contextlib
import contextvars
import zlib
from collections.abc import Callable, Iterator

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types

_seeds: contextvars.ContextVar[types.Array | None] = contextvars.ContextVar(
  'seeds', default=None
)


@contextlib.contextmanager
def seeded(given: types.Array | None) -> Iterator[None]:
  """Gives modules that are called inside the seeds of their noise.

  Args:
    given: int32 [B] or [T, B], the leading axes of what the modules compute;
      None for no noise.
  """
  token = _seeds.set(given)
  try:
    yield
  finally:
    _seeds.reset(token)


def seeds() -> types.Array | None:
  """Returns the seeds that `seeded` gave, int32 [B] or [T, B], or None."""
  return _seeds.get()


def keys() -> types.Array | None:
  """Returns a random key for each row and step; None for no noise.

  Call it from a method of a Haiku module. Modules of different names get
  different keys.

  Returns:
    uint32 [B, 2] in a step, also one within `recurrence.unroll_step`;
    [T, B, 2] in the rest of an unroll.
  """
  given = seeds()
  if given is None:
    return None
  # The second half of a key tells modules apart; `hash` differs by process.
  name = zlib.crc32(hk.experimental.current_name().encode())
  numbers = jax.lax.bitcast_convert_type(given, jnp.uint32)
  return jnp.stack([numbers, jnp.full_like(numbers, name)], axis=-1)


def normal(size: int) -> types.Array | None:
  """Draws standard normals [..., B, size]; None for no noise."""
  return _draw(jax.random.normal, size)


def uniform(size: int) -> types.Array | None:
  """Draws from [0, 1), [..., B, size]; None for no noise."""
  return _draw(jax.random.uniform, size)


def _draw(
  distribution: Callable[..., types.Array], size: int
) -> types.Array | None:
  row_keys = keys()
  if row_keys is None:
    return None

  def draw(key: types.Key) -> types.Array:
    return distribution(key, (size,))

  for _ in range(row_keys.ndim - 1):
    draw = jax.vmap(draw)
  return draw(row_keys)
