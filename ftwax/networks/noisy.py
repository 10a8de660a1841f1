"""Linear layers with learned noise on their weights.

Fortunato et al., "Noisy networks for exploration", 2018 (arXiv:1706.10295):

  y = (mu_w + sigma_w * eps_w)^T x + mu_b + sigma_b * eps_b

with independent noise for every weight (section 3, a), or factorised noise of
f(e_i) f(e_j) with f(e) = sign(e) sqrt(|e|) (b).

The noise is part of the policy, not of the step: actor and learner have the
same policy only if they use the same noise. The key is therefore an argument of
the layer, and a key determines the noise of all rows and steps.
"""

import math
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types

KINDS = ('factorised', 'independent')


class Noise(NamedTuple):
  """Noise of a layer.

  Attributes:
    w: float32 [num_inputs, num_outputs].
    b: float32 [num_outputs].
  """

  w: types.Array
  b: types.Array


def draw_noise(
  key: types.Key, num_inputs: int, num_outputs: int, kind: str
) -> Noise:
  """Samples the noise of a layer.

  Args:
    key: random key.
    num_inputs: number of inputs.
    num_outputs: number of outputs.
    kind: one of `KINDS`.
  """
  key_i, key_j = jax.random.split(key)
  if kind == 'independent':
    return Noise(
      w=jax.random.normal(key_i, (num_inputs, num_outputs)),
      b=jax.random.normal(key_j, (num_outputs,)),
    )
  e_i = _signed_root(jax.random.normal(key_i, (num_inputs,)))
  e_j = _signed_root(jax.random.normal(key_j, (num_outputs,)))
  # num_inputs + num_outputs samples instead of their product. The bias shares
  # those of the outputs (equations 10 and 11).
  return Noise(w=e_i[:, None] * e_j[None, :], b=e_j)


def _signed_root(x: types.Array) -> types.Array:
  return jnp.sign(x) * jnp.sqrt(jnp.abs(x))


class NoisyLinear(hk.Module):
  """A linear layer with noise on its weights."""

  def __init__(
    self,
    num_outputs: int,
    kind: str = 'factorised',
    name: str | None = None,
  ):
    """Makes a layer.

    Args:
      num_outputs: number of outputs.
      kind: 'factorised' or 'independent' noise.
      name: name of the module.

    Raises:
      ValueError: if the kind is unknown, or there is no output.
    """
    super().__init__(name)
    if kind not in KINDS:
      raise ValueError(
        f'kind ({kind!r}) of noise must be one of {", ".join(KINDS)}; choose'
        " kind='factorised'."
      )
    if num_outputs < 1:
      raise ValueError(
        f'num_outputs ({num_outputs}) of a noisy layer must be at least one;'
        ' choose num_outputs=1 or more.'
      )
    self._num_outputs = num_outputs
    self._kind = kind

  def __call__(self, inputs: types.Array, key: types.Key | None) -> types.Array:
    """Maps [..., num_inputs] to [..., num_outputs].

    Args:
      inputs: [..., num_inputs].
      key: random key of the noise, which is the same for all rows; None for no
        noise, as in evaluation.
    """
    num_inputs = inputs.shape[-1]
    bound, scale = self._initial_bounds(num_inputs)
    shape = (num_inputs, self._num_outputs)
    mu_init = hk.initializers.RandomUniform(-bound, bound)
    sigma_init = hk.initializers.Constant(scale)
    w = hk.get_parameter('mu_w', shape, init=mu_init)
    b = hk.get_parameter('mu_b', shape[1:], init=mu_init)
    sigma_w = hk.get_parameter('sigma_w', shape, init=sigma_init)
    sigma_b = hk.get_parameter('sigma_b', shape[1:], init=sigma_init)
    if key is not None:
      noise = draw_noise(key, *shape, self._kind)
      w = w + sigma_w * noise.w
      b = b + sigma_b * noise.b
    outputs = jnp.dot(inputs, w)
    return outputs + jnp.broadcast_to(b, outputs.shape)

  def _initial_bounds(self, num_inputs: int) -> tuple[float, float]:
    """Returns the bound of the initial means, and the initial noise scale.

    Both are the paper's (section 3.2).
    """
    if self._kind == 'independent':
      return math.sqrt(3.0 / num_inputs), 0.017
    bound = 1.0 / math.sqrt(num_inputs)
    return bound, 0.5 * bound
