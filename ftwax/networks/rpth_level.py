"""One level of a temporal hierarchy: a core that outputs a latent."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import trees, types
from ftwax.networks import deferred
from ftwax.networks.dnc import core, memory_access


class LevelState(NamedTuple):
  """State of one level, float32; zero at the start of an episode.

  Attributes:
    controller: the core's state.
    output: [B, hidden_size], the core's output in the last step, clipped.
    words: [B, num_words], the words read in the last step.
    loc: [B, latent_size], mean of the level's latent.
    scale: [B, latent_size], standard deviation of the level's latent.
  """

  controller: types.RecurrentState
  output: types.Array
  words: types.Array
  loc: types.Array
  scale: types.Array


class LevelInputs(NamedTuple):
  """Inputs of one step of a level.

  Attributes:
    prepared: this step's entry of the result of `Level.prepare`.
    context: inputs other than the network's, float32 [B, context_size] in all.
    mask: bool [B], the rows that do the step; None for all.
  """

  prepared: Any
  context: list[types.Array]
  mask: types.Array | None


# `(inputs, state, memory) -> (state, memory)`, leaves [B, ...].
LevelStep = Callable[[LevelInputs, LevelState, Any], tuple[LevelState, Any]]


class Level(hk.Module):
  """One level: a core that may read and write a memory, and its latent."""

  def __init__(
    self,
    config: Any,
    context_size: int,
    memory: memory_access.WorkingMemory,
    name: str | None = None,
  ):
    """Makes a level.

    Args:
      config: sizes and options that all levels share, an `rpth.RPTH`.
      context_size: size of a step's inputs other than the network's inputs.
      memory: the memory that all levels share.
      name: name of the module.
    """
    super().__init__(name)
    self._context_size = context_size
    self._options = config
    self._memory = memory
    self._controller = config.level_core.make_controller()
    num_numbers = 1 if config.fixed_scale else 2  # For each latent.
    self._latent = deferred.Linear(
      num_numbers * config.num_latents, name='latent'
    )
    self._projects = memory.num_words > 0 and config.memory_projection
    if self._projects:
      self._output = deferred.Linear(config.hidden_size, name='output')

  def initial_state(self, batch_size: int) -> LevelState:
    """Returns the zero state."""
    latent = (batch_size, self._options.num_latents)
    return LevelState(
      controller=self._controller.initial_state(batch_size),
      output=jnp.zeros((batch_size, self._options.hidden_size)),
      words=jnp.zeros((batch_size, self._memory.num_words)),
      loc=jnp.zeros(latent),
      scale=jnp.zeros(latent),
    )

  def prepare(
    self,
    inputs: types.Array,
  ) -> tuple[LevelStep, Any]:
    """Returns one step and its prepared inputs, from [..., num_inputs]."""
    leading_shape = inputs.shape[:-1]
    control, gates = self._controller.prepare(inputs, self._context_size)
    access, access_taps = self._memory.prepare(
      self._options.hidden_size, leading_shape
    )
    project, project_taps = self._prepare_projection(leading_shape)

    def step(
      inputs: LevelInputs, level: LevelState, memory: Any
    ) -> tuple[LevelState, Any]:
      gates, access_tap, taps = inputs.prepared
      hidden, controller = control(gates, inputs.context, level.controller)
      hidden = core.clip(hidden, self._options.clip_value)
      words, memory = access(hidden, access_tap, memory, inputs.mask)
      loc, scale = self._parse_latent(project(hidden, words, taps))
      new_level = LevelState(controller, hidden, words, loc, scale)
      if inputs.mask is not None:
        # The memory needs no selection: its access was masked.
        new_level = trees.where_rows(inputs.mask, new_level, level)
      return new_level, memory

    return step, (gates, access_taps, project_taps)

  def _prepare_projection(
    self, leading_shape: tuple[int, ...]
  ) -> tuple[Callable[..., types.Array], list[deferred.Tap]]:
    """Returns a function from the core's output and words, and its taps.

    It returns the numbers of the latent, [B, 2 * latent_size], or half as many
    with a fixed scale.
    """
    layers = []
    num_inputs = self._options.hidden_size + self._memory.num_words
    if self._projects:
      layers.append(self._output(num_inputs))
      num_inputs = self._options.hidden_size
    layers.append(self._latent(num_inputs))
    # Nothing is between them: one product in each step of a loop, not two.
    if self._options.clip_value is None and len(leading_shape) > 1:
      layers = [functools.reduce(deferred.compose, layers)]
    prepared = [deferred.prepare_linear(each, leading_shape) for each in layers]

    def project(
      hidden: types.Array, words: types.Array, taps: list[deferred.Tap]
    ) -> types.Array:
      x = jnp.concatenate([hidden, words], -1)
      *projection, (latent, _) = prepared
      for (layer, _), tap in zip(projection, taps, strict=False):
        x = layer(x, tap)
      return latent(core.clip(x, self._options.clip_value), taps[-1])

    return project, [taps for _, taps in prepared]

  def _parse_latent(
    self, numbers: types.Array
  ) -> tuple[types.Array, types.Array]:
    """Returns mean and standard deviation [B, latent_size]."""
    options = self._options
    loc = numbers[..., : options.num_latents]  # [B, latent_size]
    loc = jnp.tanh(loc) if options.tanh_loc else loc
    if options.fixed_scale:
      return loc, jnp.full_like(loc, options.init_scale)
    scale = numbers[..., options.num_latents :]
    # softplus(0) = log 2: the scale is `init_scale` if the layer outputs zero.
    scale = jax.nn.softplus(scale) * (options.init_scale / math.log(2.0))
    return loc, scale + options.min_scale


def skip_if_idle(
  step: LevelStep, memory: memory_access.WorkingMemory
) -> LevelStep:
  """Makes a step skip its computation if no row does it (except under `vmap`).

  Args:
    step: the step of any level but the fastest.
    memory: the memory that the step reads and writes.

  Returns:
    A step with the same results.
  """

  def step_or_hold(
    inputs: LevelInputs, level: LevelState, state: Any
  ) -> tuple[LevelState, Any]:
    if inputs.mask is None:
      return step(inputs, level, state)
    return memory.access_if(
      jnp.any(inputs.mask),
      lambda level, state: step(inputs, level, state),
      level,
      state,
    )

  return step_or_hold
