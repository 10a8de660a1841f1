"""A memory as a part of a recurrent core.

The state of a core includes that of its memory, which is passed from access to
access within a step. This module hides how links are stored within a step and
over an unroll (see `lazy_link` and `recompute`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import haiku as hk
import jax.numpy as jnp

from ftwax import types
from ftwax.networks import deferred, recurrence
from ftwax.networks.dnc import (
  access,
  access_kernel,
  interfaces,
  memory_state,
  open_links,
  recompute,
)

_Inputs = TypeVar('_Inputs')
_Output = TypeVar('_Output')
_State = TypeVar('_State')
_Carry = TypeVar('_Carry')

# A step of a core, leaves [B, ...].
CoreStep = Callable[[_Inputs, _State], tuple[_Output, _State]]


class AccessStep(Protocol):
  """Does one access: writes, then reads; leaves [B, ...]."""

  def __call__(
    self,
    hidden: types.Array,
    tap: Any,
    state: Any,
    mask: types.Array | None = None,
  ) -> tuple[types.Array, Any]:
    """Does the access.

    Args:
      hidden: float32 [B, num_hidden], the controller's output.
      tap: the tap of this step, from `Memory.prepare`.
      state: the memory's state before the access.
      mask: bool [B], the rows that do the access; None for all. The last access
        in a step must not have a mask, all others must have one.

    Returns:
      The words read, float32 [B, num_words], and the memory's state after the
      access.
    """


class WorkingMemory:
  """A memory that the controllers of a core read and write.

  This one stands in for the memory in a core without one: it reads no words,
  and its state is the empty tuple.
  """

  @property
  def num_words(self) -> int:
    """Total size of the words that the heads read in one access."""
    return 0

  def initial_state(self, batch_size: int) -> Any:
    """Returns the state of an empty memory, leaves [batch_size, ...]."""
    del batch_size
    return ()

  def prepare(
    self, num_hidden: int, leading_shape: tuple[int, ...]
  ) -> tuple[AccessStep, Any]:
    """Does the part of an access that needs no state.

    Args:
      num_hidden: size of the controller's output.
      leading_shape: [B], or [T, B] for all steps of a loop.

    Returns:
      The access, and its taps, leaves [*leading_shape, ...].
    """
    del num_hidden, leading_shape

    def step(
      hidden: types.Array,
      tap: tuple[()],
      state: tuple[()],
      mask: types.Array | None = None,
    ) -> tuple[types.Array, tuple[()]]:
      del tap, mask
      return jnp.zeros((*hidden.shape[:-1], 0)), state

    return step, ()

  def access_if(
    self,
    condition: types.Array,
    do_access: Callable[[_Carry, Any], tuple[_Carry, Any]],
    carry: _Carry,
    state: Any,
  ) -> tuple[_Carry, Any]:
    """Computes a masked access only if any row does it (except under `vmap`).

    Args:
      condition: bool [], whether any row does the access.
      do_access: `(carry, state) -> (carry, state)`, which does the access.
      carry: values that change with the access, other than the memory's state.
      state: the memory's state.

    Returns:
      `do_access(carry, state)`, or both unchanged if the condition is false.
    """
    carry, state = hk.cond(
      condition, do_access, lambda carry, state: (carry, state), carry, state
    )
    return carry, state

  def step(
    self,
    core_step: CoreStep[_Inputs, _State, _Output],
    inputs: _Inputs,
    state: _State,
  ) -> tuple[_Output, _State]:
    """Does one step of a core.

    Args:
      core_step: the core's step, which accesses the memory.
      inputs: inputs of the step, leaves [B, ...].
      state: the core's state, including the memory's, leaves [B, ...].

    Returns:
      The output and the state after the step.
    """
    return core_step(inputs, state)

  def unroll(
    self,
    core_step: CoreStep[_Inputs, _State, _Output],
    inputs: _Inputs,
    start: types.Array,
    state: _State,
  ) -> tuple[_Output, _State]:
    """Does `T` steps of a core; see `recurrence.unroll_step`.

    Args:
      core_step: the core's step, which accesses the memory.
      inputs: leaves [T, B, ...].
      start: bool [T, B], true where the state is reset to zero before the step.
      state: the core's state, including the memory's, leaves [B, ...].

    Returns:
      The outputs, leaves [T, B, ...], and the state after the last step.
    """
    return recurrence.unroll_step(core_step, inputs, start, state)

  def auxiliary(self, state: Any) -> Mapping[str, types.Array]:
    """Returns outputs of the last access for losses and figures, by name."""
    del state
    return {}


class MemoryAccess(hk.Module, WorkingMemory):
  """The memory of a differentiable neural computer.

  Auxiliary outputs: `read_weights` [B, R, N] and `write_weights` [B, H, N].
  """

  def __init__(
    self,
    config: interfaces.Memory,
    accesses_per_step: int = 1,
    name: str | None = None,
  ):
    super().__init__(name)
    self._is_kernel = access_kernel.is_used(config)
    if config.linkage == 'exact' and config.is_stored:
      # The exact link, with the gradient of all steps at once.
      config = config.replace(linkage='plain')
    self._config = config
    self._has_reads_ahead = accesses_per_step > 1
    self._interface = deferred.Linear(
      interfaces.interface_size(config), name='interface'
    )
    self._layer_norm = hk.LayerNorm(-1, create_scale=True, create_offset=True)

  @property
  def num_words(self) -> int:
    """Total size of the words that the heads read in one access."""
    return self._config.num_reads * self._config.word_size

  def initial_state(self, batch_size: int) -> memory_state.MemoryState:
    """Returns the state of an empty memory."""
    return memory_state.initial_state(self._config, batch_size)

  def prepare(
    self, num_hidden: int, leading_shape: tuple[int, ...]
  ) -> tuple[AccessStep, deferred.Tap]:
    """Does the part of an access that needs no state; see `Memory`."""
    layer, taps = deferred.prepare_linear(
      self._interface(num_hidden), leading_shape
    )

    def step(
      hidden: types.Array,
      tap: deferred.Tap,
      state: memory_state.MemoryState,
      mask: types.Array | None = None,
    ) -> tuple[types.Array, memory_state.MemoryState]:
      numbers = layer(hidden, tap)
      if self._config.layer_norm:
        numbers = self._layer_norm(numbers)
      if self._is_kernel:
        state = access_kernel.access(self._config, numbers, state, mask)
        return memory_state.join_words(state), state
      interface = interfaces.parse_interface(self._config, numbers)
      if mask is None:
        state = access.access(self._config, interface, state)
      else:
        state = access.masked_access(self._config, interface, state, mask)
      return memory_state.join_words(state), state

    return step, taps

  def access_if(
    self,
    condition: types.Array,
    do_access: Callable[[_Carry, Any], tuple[_Carry, Any]],
    carry: _Carry,
    state: memory_state.MemoryState,
  ) -> tuple[_Carry, memory_state.MemoryState]:
    """Computes a masked access only if any row does it; see `Memory`."""
    # Matrices stay outside of the branch, since `hk.cond` would copy them. The
    # branch must then not change them, so no write may be pending before it.
    state, matrix = open_links.detach(open_links.flush(state))

    def do(
      carry: _Carry, state: memory_state.MemoryState
    ) -> tuple[_Carry, memory_state.MemoryState]:
      carry, state = do_access(carry, open_links.attach(state, matrix))
      return carry, open_links.detach(state)[0]

    def hold(
      carry: _Carry, state: memory_state.MemoryState
    ) -> tuple[_Carry, memory_state.MemoryState]:
      return carry, open_links.write_nothing(state)

    carry, state = hk.cond(condition, do, hold, carry, state)
    return carry, open_links.attach(state, matrix)

  def step(
    self,
    core_step: CoreStep[_Inputs, _State, _Output],
    inputs: _Inputs,
    state: _State,
  ) -> tuple[_Output, _State]:
    """Does one step of a core; see `Memory`."""
    output, state = core_step(inputs, self._open(state))
    return output, open_links.close_links(self._config, state)

  def unroll(
    self,
    core_step: CoreStep[_Inputs, _State, _Output],
    inputs: _Inputs,
    start: types.Array,
    state: _State,
  ) -> tuple[_Output, _State]:
    """Does `T` steps of a core; see `Memory`."""
    output, state = recompute.unroll_step(
      core_step, inputs, start, self._open(state), self._config
    )
    return output, open_links.close_links(self._config, state)

  def auxiliary(
    self, state: memory_state.MemoryState
  ) -> Mapping[str, types.Array]:
    """Returns the weights of the last access."""
    return {
      'read_weights': state.read_weights,
      'write_weights': state.write_weights,
    }

  def _open(self, state: _State) -> _State:
    return open_links.open_links(self._config, state, self._has_reads_ahead)
