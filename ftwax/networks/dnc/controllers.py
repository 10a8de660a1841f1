"""Controllers: the part of a memory network between its inputs and the memory.

A controller is a recurrent core with two kinds of inputs: those known for all
steps before the loop, and those fed back from the last step, the words read.
Products with the first kind are computed for all steps at once.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax.numpy as jnp

from ftwax import types
from ftwax.networks import noise, recurrence

# `(prepared, fed_back, state) -> (output, state)` does one step, leaves
# [B, ...]: `prepared` is this step's entry of the result of
# `Controller.prepare`, and `fed_back` has arrays of [B, num_fed_back] in all.
ControllerStep = Callable[
  [Any, list[types.Array], Any], tuple[types.Array, Any]
]


class Controller(Protocol):
  """A Haiku module with inputs known in advance and inputs fed back."""

  def initial_state(self, batch_size: int) -> Any:
    """Returns the zero state, leaves [batch_size, ...]."""

  def prepare(
    self, inputs: types.Array, num_fed_back: int
  ) -> tuple[ControllerStep, Any]:
    """Does the computation that needs no state.

    Args:
      inputs: [B, num_inputs], or [T, B, num_inputs] for all steps of a loop.
      num_fed_back: number of inputs that are fed back to a step.

    Returns:
      The step, and its prepared inputs, leaves [B, ...] or [T, B, ...].
    """


class CoreController:
  """Adapts any recurrent core as a controller."""

  def __init__(self, core: recurrence.RecurrentCore):
    self._core = core

  def initial_state(self, batch_size: int) -> types.RecurrentState:
    """Returns the core's zero state."""
    return self._core.initial_state(batch_size)

  def prepare(
    self, inputs: types.Array, num_fed_back: int
  ) -> tuple[ControllerStep, tuple[types.Array, types.Array | None]]:
    """Returns the inputs, which a core takes all at once, and their seeds."""
    del num_fed_back

    def step(
      prepared: tuple[types.Array, types.Array | None],
      fed_back: list[types.Array],
      state: types.RecurrentState,
    ) -> tuple[types.Array, types.RecurrentState]:
      known, seeds = prepared
      inputs = jnp.concatenate([known, *fed_back], axis=-1)
      with noise.seeded(seeds):
        output, state = self._core(inputs, state)
      return output.features, state

    return step, (inputs, noise.seeds())
