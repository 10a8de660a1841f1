"""Nonlinearities and first weights of dense layers, by name."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types

ACTIVATIONS: Mapping[str, Callable[[types.Array], types.Array]] = {
  'relu': jax.nn.relu,
  'tanh': jnp.tanh,
  'elu': jax.nn.elu,
  'silu': jax.nn.silu,
}

# `truncated_normal` is Haiku's default. `orthogonal` is that of PPO (Huang et
# al., 2022, "The 37 implementation details of PPO", detail 2).
INITIALIZERS = ('truncated_normal', 'orthogonal')

# Gains of orthogonal matrices: of hidden layers, and of the last layers of a
# policy, which is then nearly the same in all states, and of a value.
HIDDEN_GAIN = math.sqrt(2.0)
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0


class Style(NamedTuple):
  """How the layers of a head are.

  Attributes:
    activation: nonlinearity of hidden layers, one of `ACTIVATIONS`.
    initializer: of the matrices, one of `INITIALIZERS`.
  """

  activation: str = 'relu'
  initializer: str = 'truncated_normal'


def make_w_init(
  initializer: str, gain: float = HIDDEN_GAIN
) -> hk.initializers.Initializer | None:
  """Makes the initializer of a matrix; None for Haiku's own.

  Args:
    initializer: one of `INITIALIZERS`.
    gain: factor of orthogonal matrices; others have none.
  """
  if initializer != 'orthogonal':
    return None
  # Haiku's promotes ranks.
  draw = jax.nn.initializers.orthogonal(gain)
  return lambda shape, dtype: draw(hk.next_rng_key(), shape, dtype)
