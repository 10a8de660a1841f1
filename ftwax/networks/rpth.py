"""Recurrent processing with temporal hierarchy (RPTH).

Jaderberg et al., "Human-level performance in 3D multiplayer games with
population-based reinforcement learning", Science 364:859, 2019
(arXiv:1807.01281), supplement, "Architecture". A fast core steps at every step,
a slow core every `slow_period` steps. Each outputs a diagonal normal
distribution of a latent variable. The slow core's distribution is held between
its ticks and is the prior; the fast core's is the posterior. The rest of the
network sees a sample z of the posterior.

  tick        t mod slow_period == 0, counted from the start of the episode
  slow core   h^p_t = g_p(h^q_{t-1}, h^p_{t-1}) on ticks, else h^p_{t-1}
  fast core   h^q_t = g_q(x_t, h^p_t, mu^p_t, sigma^p_t, z_{t-1}, h^q_{t-1})
  latent      z_t ~ N(mu^q_t, sigma^q_t)

With a memory, the cores are differentiable neural computers that share one
memory and the weights of its access. The slow core's access comes first. Each
core also sees the last words r that it read itself. Where it sees the other
core's h, it also sees that core's words:

  slow core   h^p_t = g_p(h^q_{t-1}, r^q_{t-1}, r^p_{t-1}, h^p_{t-1}) on ticks
  fast core   h^q_t = g_q(x_t, h^p_t, r^p_t, mu^p_t, sigma^p_t, z_{t-1},
                          r^q_{t-1}, h^q_{t-1})

The latents are then computed from a projection of h_t and r_t; h itself is
always the output of the LSTM.

The gradient from the fast core into its inputs from the slow core is scaled by
`fast_to_slow_gradient_scale`; the gradient through the shared memory is not.
Period and scale are hyperparameters: data, which may differ between members of
a population and change during training.

There may be more than two levels: level l ticks every `slow_period ** l` steps,
or by a period of its own, and sees h and words of level l - 1 from the previous
step, and its latent is the prior of the latent of level l - 1.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import parts, registry, types
from ftwax.networks import (
  core_parts,
  noise,
  recurrence,
  recurrent_cores,
  rpth_level,
)
from ftwax.networks.dnc import interfaces, memory_access

# `(prepared, state) -> (output, state)`, leaves [B, ...].
_Step = Callable[[Any, 'RPTHState'], tuple[recurrence.CoreOutput, 'RPTHState']]


class RPTHState(NamedTuple):
  """State of a temporal hierarchy; zero at the start of an episode.

  Attributes:
    levels: a `rpth_level.LevelState` for each level, the fastest first.
    memory: the shared memory's state, or `()`.
    sample: float32 [B, latent_size], z of the last step.
    step: int32 [B], number of steps done in this episode.
  """

  levels: tuple[rpth_level.LevelState, ...]
  memory: Any
  sample: types.Array
  step: types.Array


@registry.register('core.rpth')
@dataclasses.dataclass(frozen=True)
class RPTH(core_parts.Core):
  """A temporal hierarchy of cores, maybe with a shared memory.

  Features are the samples z; without seeds they are the means. Auxiliary
  outputs, for `losses.latent_kl`, are `loc`, `scale` and `tick`: tuples with an
  entry for each level, the fastest first, of shape [..., latent_size] and bool
  [...]. With a memory there are also the `read_weights` and `write_weights` of
  the fastest level's access.

  Attributes:
    level: the core of each level; a number stands for an LSTM of that size.
    latent_size: size of the latent variable; None for that of a level.
    num_levels: number of levels.
    memory: the memory that all levels share; None for none.
    slow_period: int32, steps between two ticks of the slow core; with more
      levels, level l ticks every `slow_period ** l` steps. A tuple has a period
      for each slow level, the fastest first.
    fast_to_slow_gradient_scale: scale of the gradient from the fast core into
      the slow core's output.
    noise_scale: scale of the noise in z: 1 samples z from the posterior, as in
      the paper; 0 uses the posterior's mean, with which short runs learn
      sooner. It does not change the distributions.
    init_scale: standard deviation of the latent if the layer outputs zero.
    min_scale: added to standard deviations.
    fixed_scale: whether all standard deviations are `init_scale`, not learned.
    memory_projection: whether latents are computed from a linear layer, of the
      size of a level, of a core's output and the words read; False: from both
      themselves.
    tanh_loc: whether to bound means to (-1, 1) by tanh.
    clip_value: magnitude to which the outputs of the cores and, with a memory,
      the inputs of the latent layer are clipped; None for no clipping.
  """

  has_latents: ClassVar[bool] = True

  level: int | core_parts.SizedCore = recurrent_cores.LSTM(  # noqa: RUF009
    forget_bias=1.0
  )
  latent_size: int | None = parts.option(None, low=1)
  num_levels: int = parts.option(2, low=2, high=parts.MAX_UNROLLED)
  memory: interfaces.Memory | None = None
  slow_period: parts.Integers = parts.scalar(8, low=1)
  fast_to_slow_gradient_scale: parts.Scalar = parts.scalar(1.0, high=1.0)
  noise_scale: float = parts.option(1.0, low=0)
  init_scale: float = parts.option(0.1, above=0)
  min_scale: float = parts.option(1e-6, above=0)
  fixed_scale: bool = False
  memory_projection: bool = True
  tanh_loc: bool = False
  clip_value: float | None = parts.option(None, above=0)

  def __post_init__(self) -> None:
    """Replaces a size by an LSTM, and checks the numbers."""
    if isinstance(self.level, int):
      level = recurrent_cores.LSTM(self.level, forget_bias=1.0)
      object.__setattr__(self, 'level', level)
    core_parts.check_sized('level', self, ', or the size of an LSTM')
    super().__post_init__()
    periods = self.slow_period
    if isinstance(periods, tuple) and len(periods) != self.num_levels - 1:
      raise ValueError(
        f'slow_period ({periods}) of RPTH must be one period, or one for each'
        f' of the {self.num_levels - 1} slow levels; for a range choose'
        ' hyperparameters.UniformInteger(5, 20).'
      )

  @property
  def level_core(self) -> core_parts.SizedCore:
    """The core of each level."""
    level: Any = self.level
    made: core_parts.SizedCore = level
    return made

  @property
  def hidden_size(self) -> int:
    """Units of each level."""
    return self.level_core.hidden_size

  @property
  def num_latents(self) -> int:
    """Size of the latent variable, that of a level by default."""
    return self.latent_size or self.hidden_size

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return _RPTH(self, name or 'rpth')

  def with_size(self, size: int) -> 'RPTH':
    """Returns a copy with `size` units in each level, and as many latents."""
    return self.replace(level=self.level_core.with_size(size), latent_size=None)


class _RPTH(hk.Module):
  """The module of `RPTH`."""

  def __init__(self, config: RPTH, name: str):
    super().__init__(name)
    self._config = config
    self._memory = memory_access.WorkingMemory()
    if config.memory is not None:
      self._memory = memory_access.MemoryAccess(
        config.memory, accesses_per_step=config.num_levels
      )
    self._levels = [
      rpth_level.Level(
        config,
        _context_size(config, self._memory.num_words, index),
        self._memory,
        name=f'level_{index}',
      )
      for index in range(config.num_levels)
    ]

  def initial_state(self, batch_size: int) -> RPTHState:
    """Returns the zero state."""
    return RPTHState(
      levels=tuple(level.initial_state(batch_size) for level in self._levels),
      memory=self._memory.initial_state(batch_size),
      sample=jnp.zeros((batch_size, self._config.num_latents)),
      step=jnp.zeros((batch_size,), jnp.int32),
    )

  def __call__(
    self,
    inputs: types.Array,
    state: RPTHState,
  ) -> tuple[recurrence.CoreOutput, RPTHState]:
    """Does one step on inputs [B, num_inputs].

    A slow level is not computed if it ticks in no row (except under `vmap`).
    """
    step, prepared = self._prepare(inputs, skips_idle=True)
    return self._memory.step(step, prepared, state)

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: RPTHState,
  ) -> tuple[recurrence.CoreOutput, RPTHState]:
    """Does `T` steps on inputs [T, B, num_inputs].

    All levels are computed at every step, and masked. Skipping idle levels was
    measured to be slower with a gradient, even if all rows tick together: the
    residuals of a branch are stored whether or not it is taken.
    """
    step, prepared = self._prepare(inputs, skips_idle=False)
    return self._memory.unroll(step, prepared, start, state)

  def _prepare(
    self,
    inputs: types.Array,
    skips_idle: bool,
  ) -> tuple[_Step, Any]:
    """Returns one step and its prepared inputs, from [..., num_inputs]."""
    leading_shape = inputs.shape[:-1]
    fast_step, prepared = self._levels[0].prepare(inputs)
    level_steps, all_prepared = [fast_step], [prepared]
    for level in self._levels[1:]:
      # Only the fastest level sees the network's inputs.
      level_step, prepared = level.prepare(jnp.zeros((*leading_shape, 0)))
      # While initializing, every level runs, so that all parameters exist.
      if skips_idle and not hk.running_init():
        level_step = rpth_level.skip_if_idle(level_step, self._memory)
      level_steps.append(level_step)
      all_prepared.append(prepared)
    latent_noise = self._draw_noise(leading_shape)
    periods = level_periods(self._config)
    gradient_scale: Any = self._config.fast_to_slow_gradient_scale

    def step(
      inputs: tuple[list[Any], types.Array], state: RPTHState
    ) -> tuple[recurrence.CoreOutput, RPTHState]:
      prepared, latent_noise = inputs
      ticks = [state.step % period == 0 for period in periods]  # [B] each
      levels, memory = list(state.levels), state.memory
      # From slow to fast: a level sees this step's state of the level above,
      # which has been replaced, and the last step's of the level below.
      for i in reversed(range(len(levels))):
        context = _make_context(i, levels, state.sample, gradient_scale)
        # The fastest level ticks always: its period is one.
        mask = ticks[i] if i else None
        level_inputs = rpth_level.LevelInputs(prepared[i], context, mask)
        levels[i], memory = level_steps[i](level_inputs, levels[i], memory)
      # [B, latent_size]
      sample = levels[0].loc + levels[0].scale * latent_noise
      state = RPTHState(tuple(levels), memory, sample, state.step + 1)
      auxiliary = {
        'loc': tuple(level.loc for level in levels),
        'scale': tuple(level.scale for level in levels),
        'tick': tuple(ticks),
        **self._memory.auxiliary(memory),
      }
      return recurrence.CoreOutput(sample, auxiliary), state

    return step, (all_prepared, latent_noise)

  def _draw_noise(self, leading_shape: tuple[int, ...]) -> types.Array:
    """Draws the noise of z; zeros without seeds, so that z is the mean."""
    size = self._config.num_latents
    scale = self._config.noise_scale
    drawn = noise.normal(size) if scale else None
    return jnp.zeros((*leading_shape, size)) if drawn is None else scale * drawn


def _context_size(config: RPTH, num_words: int, index: int) -> int:
  """Returns the size of all that `_make_context` returns."""
  context_size = config.num_latents + num_words
  if index:
    context_size = config.hidden_size + 2 * num_words
  if index + 1 < config.num_levels:
    context_size += config.hidden_size + num_words
    context_size += 2 * config.num_latents
  return context_size


def _make_context(
  index: int,
  levels: list[rpth_level.LevelState],
  sample: types.Array,
  gradient_scale: types.Array,
) -> list[types.Array]:
  """Returns a level's inputs but for the network's, [B, context_size] in all.

  - From the next slower level, in this step: the LSTM's output, the words read,
    and the latent. Their gradient is scaled.
  - From the next faster level, in the last step: the LSTM's output and the
    words read. The fastest level gets the last sample instead.
  - The last words that the level itself read.
  """
  context = []
  if index + 1 < len(levels):
    above = levels[index + 1]
    context = [
      scale_gradient(leaf, gradient_scale)
      for leaf in (above.output, above.words, above.loc, above.scale)
    ]
  if index:
    below = levels[index - 1]
    context += [below.output, below.words]
  else:
    context.append(sample)
  return [*context, levels[index].words]


def level_periods(config: RPTH) -> list[types.Array]:
  """Returns the steps between two ticks of each level, the fastest first.

  Args:
    config: has a period for each slow level, or one, of which slower levels
      have the powers.

  Returns:
    Integers [], the first of which is one.
  """
  slow: Any = config.slow_period
  if isinstance(slow, tuple):
    own = [jnp.maximum(check_period(period), 1) for period in slow]
    return [jnp.ones((), jnp.int32), *own]
  period = jnp.maximum(check_period(slow), 1)
  return [period**level for level in range(config.num_levels)]


def check_period(period: types.Array) -> types.Array:
  """Checks `slow_period`.

  Args:
    period: a scalar. If it is traced, only its type can be checked; a value
      below one then counts as one.

  Returns:
    The period as an array.

  Raises:
    ValueError: if it is not an integer or is less than one.
  """
  dtype = jnp.asarray(period).dtype
  if not jnp.issubdtype(dtype, jnp.integer):
    raise ValueError(
      f'slow_period ({period}) must be an integer, but has dtype {dtype};'
      ' choose slow_period=jnp.int32(10).'
    )
  if not isinstance(period, jax.core.Tracer) and np.any(np.asarray(period) < 1):
    raise ValueError(
      f'slow_period ({period}) must be at least one step; choose'
      ' slow_period=10.'
    )
  return jnp.asarray(period)


@jax.custom_vjp
def scale_gradient(x: types.Array, scale: types.Array) -> types.Array:
  """Returns `x` unchanged, its gradient multiplied by the scalar `scale`."""
  del scale
  return x


scale_gradient.defvjp(
  lambda x, scale: (x, scale),
  # The scale is a hyperparameter, which only a population changes.
  lambda scale, gradient: (scale * gradient, jnp.zeros_like(scale)),
)
