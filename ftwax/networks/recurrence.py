"""Recurrent cores: their protocol, and the unroll of a step over time.

A core is a Haiku module with a zero state, a single step, and an unroll of many
steps. Torsos come before it and run on all `T * B` frames at once; only the
core is inside the loop over time.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import shapes, trees, types
from ftwax.networks import noise, unrolling

_Inputs = TypeVar('_Inputs')
_Output = TypeVar('_Output')
_State = TypeVar('_State')

_is_batch_first: contextvars.ContextVar[bool] = contextvars.ContextVar(
  'is_batch_first', default=False
)


class CoreOutput(NamedTuple):
  """Outputs of a core; leaves are [B, ...] or [T, B, ...].

  Attributes:
    features: float32 [..., num_features], the input of the policy, value and
      auxiliary heads.
    auxiliary: other outputs that losses use, by name. A core of several layers
      has the tuple `layers` of their features, the lowest first, which
      `heads.Heads` can choose from.
  """

  features: types.Array
  auxiliary: Mapping[str, types.ArrayTree]


class RecurrentCore(Protocol):
  """A Haiku module that carries a state from step to step.

  A core with noise draws it by `networks.noise`.
  """

  def initial_state(self, batch_size: int) -> types.RecurrentState:
    """Returns the zero state, leaves [batch_size, ...]."""

  def __call__(
    self,
    inputs: types.Array,
    state: types.RecurrentState,
  ) -> tuple[CoreOutput, types.RecurrentState]:
    """Does one step on inputs [B, num_inputs]."""

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: types.RecurrentState,
  ) -> tuple[CoreOutput, types.RecurrentState]:
    """Does `T` steps on inputs [T, B, num_inputs].

    Args:
      inputs: [T, B, num_inputs].
      start: bool [T, B], true at the first step of an episode, before which
        the state is reset to zero.
      state: leaves [B, ...], the state before the first step.
    """


def from_step(
  init: types.NetworkInit,
  step: Callable[..., tuple[types.ArrayTree, types.Array, Any]],
  initial_state: types.InitialState,
) -> types.RecurrentNetwork:
  """Makes the network of an agent from one step, in any library.

  Args:
    init: returns the parameters.
    step: `(params, observation, state) -> (logits, value, state)`, leaves
      [B, ...].
    initial_state: returns zeros for a batch size, leaves [B, ...]; where an
      episode begins, the state is set to zero.
  """

  def apply(
    params: Any, hyperparameters: Any, seeds: Any, inputs: Any, state: Any
  ) -> Any:
    logits, value, state = step(params, inputs.observation, state)
    return types.NetworkOutput(logits, value, state, {}), state

  def unroll(
    params: Any,
    hyperparameters: Any,
    seeds: Any,
    inputs: Any,
    start: Any,
    state: Any,
  ) -> Any:
    def scanned(state: Any, row: Any) -> Any:
      state = reset_state(row[1], state)
      return apply(params, hyperparameters, seeds, row[0], state)[::-1]

    return jax.lax.scan(scanned, state, (inputs, start))[::-1]

  return types.RecurrentNetwork(init, apply, unroll, initial_state)


def reset_state(start: types.Array, state: _State) -> _State:
  """Sets `state` [B, ...] to zero in the rows where `start` [B] is true."""
  shapes.check('reset_state', start=(start, 'B'))
  shapes.check_leaves('reset_state', 'state', state, jnp.shape(start))
  zeros = jax.tree.map(jnp.zeros_like, state)
  return trees.where_rows(start, zeros, state)


def unroll_step(
  step: Callable[[_Inputs, _State], tuple[_Output, _State]],
  inputs: _Inputs,
  start: types.Array,
  state: _State,
) -> tuple[_Output, _State]:
  """Scans `step` over time, resetting the state at the start of episodes.

  Args:
    step: `(inputs, state) -> (output, state)`, leaves [B, ...].
    inputs: leaves [T, B, ...].
    start: bool [T, B].
    state: leaves [B, ...].

  Returns:
    The outputs, leaves [T, B, ...], and the state after the last step.

  Raises:
    ValueError: if inputs, start and state do not have the same T and B.
  """
  check_unroll('unroll_step', inputs, start, state)

  def scan_step(
    carry: _State, step_inputs: tuple[types.Array, _Inputs, Any]
  ) -> tuple[_State, _Output]:
    # [B], leaves [B, ...], [B]
    step_start, step_input, seeds = step_inputs
    with noise.seeded(seeds):
      # `start` marks the first step of an episode, so the reset comes first.
      output, carry = step(step_input, reset_state(step_start, carry))
    return carry, output

  state, outputs = unrolling.scan(
    scan_step, state, (start, inputs, noise.seeds())
  )
  return outputs, state


def check_unroll(
  function: str, inputs: Any, start: types.Array, state: Any
) -> None:
  """Checks the axes of time and batch of what an unroll takes.

  Args:
    function: name of the function, for the message.
    inputs: leaves [T, B, ...].
    start: bool [T, B].
    state: leaves [B, ...].

  Raises:
    ValueError: naming the argument that differs.
  """
  shapes.check(function, start=(start, 'T B'))
  steps = jnp.shape(start)
  shapes.check_leaves(function, 'inputs', inputs, steps)
  shapes.check_leaves(function, 'state', state, steps[1:])


@contextlib.contextmanager
def batch_first(is_split: bool) -> Iterator[None]:
  """Chooses how axes are merged when traced inside.

  `batch_apply` merges them in this order; `apply_to_rows` leaves a batch that
  is split as it is.

  Args:
    is_split: whether the batch is split over devices, and then comes first:
      with time first, XLA would gather it on all of them, since no contiguous
      part of the merged axis would belong to one device. Otherwise time comes
      first, and no array is transposed.
  """
  token = _is_batch_first.set(is_split)
  try:
    yield
  finally:
    _is_batch_first.reset(token)


def is_batch_first() -> bool:
  """Returns whether the batch is split over devices, and comes first."""
  return _is_batch_first.get()


def batch_apply(function: Callable[..., Any]) -> Callable[..., Any]:
  """Merges the time and batch axes around a function of [B, ...].

  Args:
    function: a function between arrays [T * B, ...], or [B * T, ...] in
      `batch_first`.

  Returns:
    A function between arrays [T, B, ...].
  """
  apply = hk.BatchApply(function)

  def apply_to_all(*args: Any) -> Any:
    if not is_batch_first():
      return apply(*args)
    return _swap_axes(apply(*_swap_axes(args)))

  return apply_to_all


def apply_to_rows(
  function: Callable[[types.Array], Any], inputs: types.Array
) -> Any:
  """Merges the leading axes around layers, which map rows [N, num_inputs].

  With several axes of rows, XLA on CPUs transposes what goes into the product
  for the gradient of a matrix. Merged, an update of the main experiment takes
  0.95 of the time. In `batch_first`, the axes stay as they are.

  Args:
    function: the layers; it returns leaves [N, ...].
    inputs: [..., num_inputs].

  Returns:
    What the function returns, with the leading axes of the inputs for N.
  """
  num_axes = inputs.ndim - 1
  if num_axes < 2 or is_batch_first():
    return function(inputs)
  return hk.BatchApply(function, num_dims=num_axes)(inputs)


def dot(inputs: types.Array, matrix: types.Array) -> types.Array:
  """Returns `inputs @ matrix`, [..., num_outputs]; see `apply_to_rows`.

  Args:
    inputs: [..., num_inputs].
    matrix: [num_inputs, num_outputs].
  """
  product: types.Array = apply_to_rows(
    lambda rows: jnp.dot(rows, matrix), inputs
  )
  return product


class FlatLinear(hk.Linear):
  """A linear layer within `apply_to_rows`."""

  def __call__(
    self, inputs: types.Array, *, precision: jax.lax.Precision | None = None
  ) -> types.Array:
    """Maps [..., num_inputs] to [..., num_outputs]."""
    layer = functools.partial(super().__call__, precision=precision)
    outputs: types.Array = apply_to_rows(layer, inputs)
    return outputs


def _swap_axes(tree: Any) -> Any:
  return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), tree)


class SkipConnection:
  """A core whose features are another core's, concatenated with its inputs.

  So are the features of each of its `layers`, if the other core has several.
  Heads then see the current observation directly as well as through the memory,
  so that tasks without memory are learned about as fast as without a core.
  """

  def __init__(self, core: RecurrentCore):
    """Wraps `core`, within the same Haiku transform."""
    self._core = core
    self.initial_state = core.initial_state

  def __call__(
    self,
    inputs: types.Array,
    state: types.RecurrentState,
  ) -> tuple[CoreOutput, types.RecurrentState]:
    """Does one step on inputs [B, num_inputs]."""
    output, state = self._core(inputs, state)
    return _append(output, inputs), state

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: types.RecurrentState,
  ) -> tuple[CoreOutput, types.RecurrentState]:
    """Does `T` steps on inputs [T, B, num_inputs]."""
    output, state = self._core.unroll(inputs, start, state)
    return _append(output, inputs), state


def _append(output: CoreOutput, inputs: types.Array) -> CoreOutput:
  def append(features: types.Array) -> types.Array:
    # [..., num_features + num_inputs]
    return jnp.concatenate([features, inputs], axis=-1)

  auxiliary = output.auxiliary
  if 'layers' in auxiliary:
    auxiliary = {**auxiliary, 'layers': tuple(map(append, auxiliary['layers']))}
  return CoreOutput(append(output.features), auxiliary)
