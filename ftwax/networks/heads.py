"""Policy and value heads on the features of a core.

The policy has a branch for each part of the action; parts are independent given
the features (Jaderberg et al., 2019, supplement: architecture of the agent,
whose branches have one hidden layer of 256 units). The standard deviations of
continuous parts do not depend on the features by default, as in Schulman et
al., 2015 (arXiv:1502.05477).
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import continuous, distributions, parts, registry, types
from ftwax.networks import deferred, layers, noisy, recurrence

# Scale of the last layer's initial variance: small, so that the initial policy
# is nearly uniform for all features.
_LAST_LAYER_SCALE = 1e-4

# Initial logarithm of the standard deviation: that of a uniform distribution
# over the bounds of a part, which the policy sees as -1 and 1.
_LOG_SCALE = -0.5 * math.log(3.0)


@registry.register('heads')
@dataclasses.dataclass(frozen=True)
class Heads(parts.Part):
  """Options of the policy and value heads.

  Attributes:
    policy_hidden_sizes: hidden layer sizes of each branch of the policy head.
    value_hidden_sizes: hidden layer sizes of the value head.
    noise: kind of parameter noise of all their layers, one of `noisy.KINDS`,
      sampled at each call that has a key; None for plain layers.
    policy_layer: the layer of the core whose output the policy head reads, 0
      for the lowest, in cores of several layers such as `cores.StackedLSTM`;
      None for the features, the output of the last layer. With a skip
      connection, it reads the core's inputs beside it.
    value_layer: the same for the value head.
    activation: nonlinearity of their hidden layers, one of
      `layers.ACTIVATIONS`.
    initializer: of their matrices, `truncated_normal` or `orthogonal`; noisy
      layers have their own.
    initial_log_scale: initial logarithm of the standard deviation of continuous
      parts, whose bounds the policy sees as -1 and 1.
    state_dependent_scale: whether each state has a standard deviation of its
      own, an output of the branch, and not all the same.
  """

  policy_hidden_sizes: tuple[int, ...] = parts.option((), low=1)
  value_hidden_sizes: tuple[int, ...] = parts.option((), low=1)
  noise: str | None = parts.option(None, choices=noisy.KINDS)
  policy_layer: int | None = parts.option(None, low=0)
  value_layer: int | None = parts.option(None, low=0)
  activation: str = parts.option('relu', choices=tuple(layers.ACTIVATIONS))
  initializer: str = parts.option(
    'truncated_normal', choices=layers.INITIALIZERS
  )
  initial_log_scale: float = parts.option(_LOG_SCALE, low=-20, high=2)
  state_dependent_scale: bool = False

  def __post_init__(self) -> None:
    """Checks that noisy layers are not given an initializer."""
    super().__post_init__()
    if self.noise is not None and self.initializer != 'truncated_normal':
      raise ValueError(
        f'initializer ({self.initializer!r}) of Heads must be'
        " 'truncated_normal' with noise, whose layers have an initialization of"
        ' their own; choose noise=None, or leave initializer out.'
      )

  def make_policy_head(self, action_parts: Any) -> 'PolicyHead':
    """Makes the policy head; call within a Haiku transform."""
    return PolicyHead(
      action_parts,
      self.policy_hidden_sizes,
      self.noise,
      layers.Style(self.activation, self.initializer),
      self.initial_log_scale,
      self.state_dependent_scale,
    )

  def make_value_head(self) -> 'ValueHead':
    """Makes the value head; call within a Haiku transform."""
    style = layers.Style(self.activation, self.initializer)
    return ValueHead(self.value_hidden_sizes, self.noise, style)

  def join(
    self,
    logits: types.ArrayTree,
    value: Callable[[], types.Array],
    mask: Callable[[types.ArrayTree], types.ArrayTree],
  ) -> tuple[types.ArrayTree, types.Array]:
    """Returns the network's logits and value, from those of the heads.

    Args:
      logits: of the policy head, [..., num_actions] for each part.
      value: applies the value head; returns [...].
      mask: forbids actions in logits.
    """
    return mask(logits), value()

  def with_size(self, size: int) -> 'Heads':
    """Returns a copy with `size` units in each hidden layer."""
    return self.replace(
      policy_hidden_sizes=(size,) * len(self.policy_hidden_sizes),
      value_hidden_sizes=(size,) * len(self.value_hidden_sizes),
    )


@registry.register('heads.action_values')
@dataclasses.dataclass(frozen=True)
class ActionValues(Heads):
  """Heads of agents that learn action values; the greedy policy is their mode.

  Each part of an action has its own values. With `dueling`, the policy head has
  advantages, to whose difference from their mean the value head's value is
  added (Wang et al., 2016, arXiv:1511.06581, equation 9). The network's value
  is that of the greedy action.

  Attributes:
    dueling: whether values and advantages have separate heads.
  """

  dueling: bool = True

  def make_policy_head(self, action_parts: Any) -> 'PolicyHead':
    """Makes the head of values or advantages; within a Haiku transform.

    Raises:
      ValueError: if a part of the action is not discrete.
    """
    for path, leaf in jax.tree.leaves_with_path(action_parts):
      if distributions.num_choices(leaf) is None:
        raise ValueError(
          f'action_spec{jax.tree_util.keystr(path)} ({leaf!r}) must be discrete'
          ' for action values, of which the largest is chosen; choose'
          " agent='ppo', or wrap the environment."
        )
    return super().make_policy_head(action_parts)

  def join(
    self,
    logits: types.ArrayTree,
    value: Callable[[], types.Array],
    mask: Callable[[types.ArrayTree], types.ArrayTree],
  ) -> tuple[types.ArrayTree, types.Array]:
    """Returns action values, and those of the greedy action."""
    if self.dueling:
      base = value()[..., None]
      logits = jax.tree.map(
        lambda part: base + part - jnp.mean(part, axis=-1, keepdims=True),
        logits,
      )
    logits = mask(logits)
    largest = [jnp.max(part, axis=-1) for part in jax.tree.leaves(logits)]
    return logits, jnp.mean(jnp.stack(largest), axis=0)


class PolicyHead(hk.Module):
  """Maps features to a distribution for each part of an action.

  See `distributions` for the parameters of each kind of part.
  """

  def __init__(
    self,
    action_parts: Any,
    hidden_sizes: Sequence[int] = (),
    noise: str | None = None,
    style: layers.Style = layers.Style(),  # noqa: B008
    initial_log_scale: float = _LOG_SCALE,
    state_dependent_scale: bool = False,
    name: str | None = None,
  ):
    """Makes a head.

    Args:
      action_parts: spec of each part, or its number of choices, in the action's
        structure.
      hidden_sizes: sizes of the hidden layers; each part has its own layers.
      noise: see `Heads`.
      style: nonlinearity of the hidden layers, and first weights of all.
      initial_log_scale: see `Heads`.
      state_dependent_scale: see `Heads`.
      name: name of the module.
    """
    super().__init__(name)
    self._parts = action_parts
    self._hidden_sizes = tuple(hidden_sizes)
    self._noise = noise
    self._style = style
    self._initial_log_scale = initial_log_scale
    self._state_dependent_scale = state_dependent_scale

  def __call__(self, features: types.Array) -> types.ArrayTree:
    """Maps features [..., num_features] to logits, leaves [..., size]."""
    action_parts, structure = jax.tree.flatten(self._parts)
    w_init = layers.make_w_init(self._style.initializer, layers.POLICY_GAIN)
    outputs = _apply_branches(
      features,
      self._hidden_sizes,
      self._noise,
      [_num_outputs(one, self._state_dependent_scale) for one in action_parts],
      self._style,
      w_init or hk.initializers.VarianceScaling(_LAST_LAYER_SCALE),
    )
    make = functools.partial(_to_distribution, self._initial_log_scale)
    return jax.tree.unflatten(structure, map(make, action_parts, outputs))


def _num_outputs(part: Any, state_dependent_scale: bool) -> int:
  """Returns the size of the branch of a part of an action."""
  count = distributions.num_choices(part)
  if count is not None:
    return count
  size: int = part.shape[0]
  is_simplex = isinstance(part, continuous.SimplexArray)
  return size if is_simplex or not state_dependent_scale else 2 * size


def _to_distribution(
  initial_log_scale: float, part: Any, x: types.Array
) -> Any:
  """Returns the distribution of a part of an action, from [..., size]."""
  if distributions.num_choices(part) is not None:
    return x
  if isinstance(part, continuous.SimplexArray):
    return continuous.Dirichlet(x)
  if x.shape[-1] == part.shape[0]:
    return continuous.Normal(x, _LogScale(initial_log_scale)(x))
  loc, change = jnp.split(x, 2, axis=-1)
  return continuous.Normal(loc, initial_log_scale + change)


class _LogScale(hk.Module):
  """Learned log standard deviations, the same for all features."""

  def __init__(self, initial: float):
    super().__init__()
    self._initial = initial

  def __call__(self, like: types.Array) -> types.Array:
    """Returns float32 [..., n] in the shape of `like`."""
    log_scale = hk.get_parameter(
      'log_scale', like.shape[-1:], init=hk.initializers.Constant(self._initial)
    )
    return jnp.broadcast_to(log_scale, like.shape)


class ValueHead(hk.Module):
  """Maps features to the expected return."""

  def __init__(
    self,
    hidden_sizes: Sequence[int] = (),
    noise: str | None = None,
    style: layers.Style = layers.Style(),  # noqa: B008
    name: str | None = None,
  ):
    super().__init__(name)
    self._hidden_sizes = tuple(hidden_sizes)
    self._noise = noise
    self._style = style

  def __call__(self, features: types.Array) -> types.Array:
    """Maps features [..., num_features] to values [...]."""
    w_init = layers.make_w_init(self._style.initializer, layers.VALUE_GAIN)
    (x,) = _apply_branches(
      features, self._hidden_sizes, self._noise, [1], self._style, w_init
    )
    return jnp.squeeze(x, axis=-1)


def _apply_branches(
  x: types.Array,
  hidden_sizes: Sequence[int],
  noise: str | None,
  sizes: Sequence[int],
  style: layers.Style,
  w_init: Any,
) -> list[types.Array]:
  """Returns the outputs of branches with hidden layers, [..., size] each.

  Args:
    x: [..., num_features].
    hidden_sizes: sizes of the hidden layers of each branch.
    noise: see `Heads`.
    sizes: numbers of outputs.
    style: of the hidden layers.
    w_init: initializer of the last layers, which does not apply to noisy ones.
  """
  activation = layers.ACTIVATIONS[style.activation]
  if noise is not None:
    make = functools.partial(noisy.NoisyLinear, kind=noise)
    return [
      hk.Sequential(
        [
          *(f for n in hidden_sizes for f in (make(n), activation)),
          make(size),
        ]
      )(x)
      for size in sizes
    ]
  widths = x.shape[-1], *hidden_sizes
  hidden_init = layers.make_w_init(style.initializer)
  branches = [
    [
      *(_parameters(*pair, hidden_init) for pair in itertools.pairwise(widths)),
      _parameters(widths[-1], size, w_init),
    ]
    for size in sizes
  ]
  return recurrence.apply_to_rows(
    functools.partial(_apply_joined, branches, activation), x
  )


def _apply_joined(
  branches: Sequence[Sequence[deferred.Parameters]],
  activation: Callable[[types.Array], types.Array],
  x: types.Array,
) -> list[types.Array]:
  """Applies branches of equally many layers to rows x [N, num_features].

  Returns:
    The outputs of each branch, [N, size].
  """
  num_layers = len(branches[0])
  # One layer for all branches, since each is a launch on a GPU.
  for index, layer in enumerate(zip(*branches, strict=True)):
    matrices, biases = zip(*layer, strict=True)
    if index == 0:
      x = jnp.dot(x, jnp.concatenate(matrices, axis=1))
    elif index == num_layers - 1:
      # Small, so that zeros between branches cost little.
      x = jnp.dot(x, jax.scipy.linalg.block_diag(*matrices))
    else:
      rows = jnp.split(x, len(branches), axis=-1)
      x = jnp.concatenate(list(map(jnp.dot, rows, matrices)), axis=-1)
    x = x + jnp.broadcast_to(jnp.concatenate(biases), x.shape)
    x = activation(x) if index < num_layers - 1 else x
  sizes = [bias.shape[0] for bias in biases]
  return jnp.split(x, list(itertools.accumulate(sizes))[:-1], axis=-1)


def _parameters(
  num_inputs: int, num_outputs: int, w_init: Any = None
) -> deferred.Parameters:
  return deferred.Linear(
    num_outputs,
    w_init or hk.initializers.TruncatedNormal(1.0 / math.sqrt(num_inputs)),
  )(num_inputs)
