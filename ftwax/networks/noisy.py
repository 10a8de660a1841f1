"""Linear layers with learned noise on their weights.

Fortunato et al., "Noisy networks for exploration", 2018 (arXiv:1706.10295):

  y = (mu_w + sigma_w * eps_w)^T x + mu_b + sigma_b * eps_b

with independent noise for every weight (section 3, a), or factorised noise of
f(e_i) f(e_j) with f(e) = sign(e) sqrt(|e|) (b).

Each row and step has its own noise (`networks.noise`), so no weights with noise
are made. Factorised noise scales inputs and outputs instead, which is equal:

  y = mu_w^T x + f(e_j) * (sigma_w^T (f(e_i) * x)) + mu_b + sigma_b * f(e_j)

Of independent noise, one number for each output is drawn, which has the same
distribution given x (Kingma et al., 2015, arXiv:1506.02557, section 2.3):

  y = mu_w^T x + mu_b + sqrt((sigma_w^2)^T x^2 + sigma_b^2) * e_j
"""

import math

import haiku as hk
import jax.numpy as jnp

from ftwax import types
from ftwax.networks import noise

KINDS = ('factorised', 'independent')

# Keeps the gradient of the root finite.
_EPSILON = 1e-12


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

  def __call__(self, inputs: types.Array) -> types.Array:
    """Maps [..., B, num_inputs] to [..., B, num_outputs]."""
    num_inputs = inputs.shape[-1]
    bound, scale = self._initial_bounds(num_inputs)
    shape = (num_inputs, self._num_outputs)
    mu_init = hk.initializers.RandomUniform(-bound, bound)
    sigma_init = hk.initializers.Constant(scale)
    mu_w = hk.get_parameter('mu_w', shape, init=mu_init)
    mu_b = hk.get_parameter('mu_b', shape[1:], init=mu_init)
    sigma_w = hk.get_parameter('sigma_w', shape, init=sigma_init)
    sigma_b = hk.get_parameter('sigma_b', shape[1:], init=sigma_init)
    outputs = jnp.dot(inputs, mu_w)
    outputs += jnp.broadcast_to(mu_b, outputs.shape)
    if self._kind == 'independent':
      e_j = noise.normal(self._num_outputs)  # [..., B, num_outputs]
      if e_j is None:
        return outputs
      variance = jnp.dot(jnp.square(inputs), jnp.square(sigma_w))
      variance += jnp.broadcast_to(jnp.square(sigma_b), variance.shape)
      return outputs + e_j * jnp.sqrt(variance + _EPSILON)
    e = noise.normal(num_inputs + self._num_outputs)
    if e is None:
      return outputs
    roots = jnp.sign(e) * jnp.sqrt(jnp.abs(e))
    e_i, e_j = jnp.split(roots, [num_inputs], axis=-1)
    # The bias shares the noise of the outputs (equations 10 and 11).
    noisy = jnp.dot(inputs * e_i, sigma_w)
    return outputs + e_j * (noisy + jnp.broadcast_to(sigma_b, noisy.shape))

  def _initial_bounds(self, num_inputs: int) -> tuple[float, float]:
    """Returns the bound of the initial means, and the initial noise scale.

    Both are the paper's (section 3.2).
    """
    if self._kind == 'independent':
      return math.sqrt(3.0 / num_inputs), 0.017
    bound = 1.0 / math.sqrt(num_inputs)
    return bound, 0.5 * bound
