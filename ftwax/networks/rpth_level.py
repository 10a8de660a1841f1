"""One level of a temporal hierarchy: a core that outputs a latent."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import registry, trees, types
from ftwax.networks import deferred, named_cores
from ftwax.networks.dnc import controllers, core, memory_access


@registry.register('core.levels')
@dataclasses.dataclass(frozen=True)
class LevelOptions(named_cores.CoreOptions):
  """Options that all levels of a hierarchy share; see also `CoreOptions`.

  Attributes:
    core: the core of each level, one of `named_cores.NAMES`.
    init_scale: standard deviation of the latent if the layer outputs zero.
    min_scale: added to standard deviations.
    noise_scale: scale of the noise in z: 1 samples z from the posterior, as in
      the paper; 0 uses the posterior's mean, with which short runs learn
      sooner. It does not change the distributions.
    tanh_loc: whether to bound means to (-1, 1) by tanh.
    clip_value: magnitude to which the outputs of the cores and, with a memory,
      the inputs of the latent layer are clipped; None for no clipping.
  """

  core: str = 'lstm'
  init_scale: float = 0.1
  min_scale: float = 1e-6
  noise_scale: float = 1.0
  tanh_loc: bool = False
  clip_value: float | None = None

  def __post_init__(self) -> None:
    """Checks the core's name and the numbers."""
    if self.core not in named_cores.NAMES:
      raise ValueError(
        f'core ({self.core!r}) of the levels of a temporal hierarchy must be'
        f' one of {named_cores.NAMES}; choose one.'
      )
    for name in ('init_scale', 'min_scale'):
      if not getattr(self, name) > 0:
        raise ValueError(
          f'{name} ({getattr(self, name)}) of a temporal hierarchy must be'
          f' above zero; the default is {getattr(LevelOptions, name)}.'
        )
    if not self.noise_scale >= 0.0:
      raise ValueError(
        f'noise_scale ({self.noise_scale}) of a temporal hierarchy must not be'
        ' negative; choose 1.0 to draw latents, or 0.0 for their means.'
      )
    if self.clip_value is not None and not self.clip_value > 0.0:
      raise ValueError(
        f'clip_value ({self.clip_value}) of a temporal hierarchy must be above'
        ' zero; choose clip_value=20.0, or None for no clipping.'
      )


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
    context: float32 [B, context_size], inputs other than the network's inputs.
    mask: bool [B], the rows that do the step; None for all.
  """

  prepared: Any
  context: types.Array
  mask: types.Array | None


# `(inputs, state, memory) -> (state, memory)`, leaves [B, ...].
LevelStep = Callable[[LevelInputs, LevelState, Any], tuple[LevelState, Any]]


class Level(hk.Module):
  """One level: a core that may read and write a memory, and its latent."""

  def __init__(
    self,
    hidden_size: int,
    latent_size: int,
    context_size: int,
    options: LevelOptions,
    memory: memory_access.Memory,
    name: str | None = None,
  ):
    """Makes a level.

    Args:
      hidden_size: units of the core.
      latent_size: size of the latent variable.
      context_size: size of a step's inputs other than the network's inputs.
      options: options that all levels share.
      memory: the memory that all levels share.
      name: name of the module.
    """
    super().__init__(name)
    self._hidden_size = hidden_size
    self._latent_size = latent_size
    self._context_size = context_size
    self._options = options
    self._memory = memory
    self._controller = _make_controller(hidden_size, options)
    self._latent = deferred.Linear(2 * latent_size, name='latent')
    if memory.num_words:
      self._output = deferred.Linear(hidden_size, name='output')

  def initial_state(self, batch_size: int) -> LevelState:
    """Returns the zero state."""
    latent = (batch_size, self._latent_size)
    return LevelState(
      controller=self._controller.initial_state(batch_size),
      output=jnp.zeros((batch_size, self._hidden_size)),
      words=jnp.zeros((batch_size, self._memory.num_words)),
      loc=jnp.zeros(latent),
      scale=jnp.zeros(latent),
    )

  def prepare(self, inputs: types.Array) -> tuple[LevelStep, Any]:
    """Returns one step and its prepared inputs, from [..., num_inputs]."""
    leading_shape = inputs.shape[:-1]
    control, gates = self._controller.prepare(inputs, self._context_size)
    access, access_taps = self._memory.prepare(self._hidden_size, leading_shape)
    mix, mix_taps = self._prepare_mix(leading_shape)
    latent, latent_taps = self._latent(self._hidden_size, leading_shape)

    def step(
      inputs: LevelInputs, level: LevelState, memory: Any
    ) -> tuple[LevelState, Any]:
      gates, access_tap, mix_tap, latent_tap = inputs.prepared
      hidden, controller = control(
        gates, inputs.context, level.controller, None
      )
      hidden = core.clip(hidden, self._options.clip_value)
      words, memory = access(hidden, access_tap, memory, inputs.mask)
      # [B, 2 * latent_size]
      numbers = latent(mix(hidden, words, mix_tap), latent_tap)
      loc, scale = self._parse_latent(numbers)
      new_level = LevelState(controller, hidden, words, loc, scale)
      if inputs.mask is not None:
        # The memory needs no selection: its access was masked.
        new_level = trees.where_rows(inputs.mask, new_level, level)
      return new_level, memory

    return step, (gates, access_taps, mix_taps, latent_taps)

  def _prepare_mix(
    self, leading_shape: tuple[int, ...]
  ) -> tuple[Callable[[types.Array, types.Array, Any], types.Array], Any]:
    """Returns a function that mixes the core's output and words, and its taps.

    Without a memory, it returns the core's output unchanged.
    """
    if not self._memory.num_words:
      return lambda hidden, words, tap: hidden, ()
    project, taps = self._output(
      self._hidden_size + self._memory.num_words, leading_shape
    )

    def mix(
      hidden: types.Array, words: types.Array, tap: deferred.Tap
    ) -> types.Array:
      # [B, hidden_size + num_words] to [B, hidden_size].
      output = project(jnp.concatenate([hidden, words], -1), tap)
      return core.clip(output, self._options.clip_value)

    return mix, taps

  def _parse_latent(
    self, numbers: types.Array
  ) -> tuple[types.Array, types.Array]:
    """Returns mean and standard deviation [B, latent_size]."""
    options = self._options
    loc, scale = jnp.split(numbers, 2, axis=-1)  # [B, latent_size] each
    # softplus(0) = log 2: the scale is `init_scale` if the layer outputs zero.
    scale = jax.nn.softplus(scale) * (options.init_scale / math.log(2.0))
    loc = jnp.tanh(loc) if options.tanh_loc else loc
    return loc, scale + options.min_scale


def _make_controller(
  hidden_size: int, options: LevelOptions
) -> controllers.Controller:
  if options.core == 'lstm' and options.memory_length is None:
    # The same as the core, but for fewer products inside the loop.
    return controllers.LSTMController(hidden_size, options.forget_bias)
  make_core = named_cores.prepare(options.core, hidden_size, options)
  return controllers.CoreController(make_core())


def skip_if_idle(step: LevelStep, memory: memory_access.Memory) -> LevelStep:
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
