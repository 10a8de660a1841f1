"""Recurrent processing with temporal hierarchy (RPTH).

Jaderberg et al., "Human-level performance in 3D multiplayer games with
population-based reinforcement learning", Science 364:859, 2019 (arXiv:
1807.01281), supplement, "Architecture". A fast core steps at every step, a
slow one every `slow_period` steps. Each gives a distribution of a latent
variable, a diagonal normal: the slow core's, held between its ticks, is the
prior of the fast core's, the posterior. What the rest of the network sees is a
sample z of the posterior.

  tick        t mod slow_period == 0, counted from the start of the episode
  slow core   h^p_t = g_p(h^q_{t-1}, h^p_{t-1}) on ticks, else h^p_{t-1}
  fast core   h^q_t = g_q(x_t, h^p_t, mu^p_t, sigma^p_t, z_{t-1}, h^q_{t-1})
  latent      z_t ~ N(mu^q_t, sigma^q_t)

With a memory, cores are differentiable neural computers that share one memory
and what they say to it means the same; the slow core's access comes first. The
gradient that the fast core sends into what it sees of the slow one is scaled
by `fast_to_slow_gradient_scale`. Both numbers are hyperparameters: data, which
may differ between the members of a population and change in training.

There may be more than two levels: level l ticks every `slow_period ** l` steps,
sees level l - 1's last output, and is the prior of it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.networks import cores, rpth_level
from ftwax.networks.dnc import access, interfaces, memory_state, recompute


@dataclasses.dataclass(frozen=True)
class RPTHConfig:
  """Sizes and options of a temporal hierarchy.

  Attributes:
    hidden_sizes: units of each level's core, the fastest first.
    latent_size: numbers in the latent variable.
    memory: of the memory that all levels share, or None for none.
    init_scale: standard deviation of the latents that an output of zero means.
    min_scale: added to standard deviations.
    noise_scale: of the noise in z: one draws it from the posterior, zero takes
      the posterior's mean. The distributions themselves stay as they are.
    tanh_loc: bound means to (-1, 1).
    clip_value: bound on the cores' outputs, None for none.
    forget_bias: of the levels' LSTMs; see `recurrent_cores.LSTM`.
  """

  hidden_sizes: tuple[int, ...] = (256, 256)
  latent_size: int = 256
  memory: interfaces.MemoryConfig | None = None
  init_scale: float = 0.1
  min_scale: float = 1e-6
  noise_scale: float = 1.0
  tanh_loc: bool = False
  clip_value: float | None = None
  forget_bias: float = 1.0

  def __post_init__(self):
    if len(self.hidden_sizes) < 2 or min(self.hidden_sizes) < 1:
      raise ValueError(
        f'hidden_sizes ({self.hidden_sizes}) of a temporal hierarchy must have'
        ' at least two levels of at least one unit; choose'
        ' hidden_sizes=(256, 256).'
      )
    if self.memory is not None and len(set(self.hidden_sizes)) > 1:
      raise ValueError(
        f'hidden_sizes ({self.hidden_sizes}) must be equal where levels share'
        ' a memory and its access; choose hidden_sizes='
        f'{(self.hidden_sizes[0],) * len(self.hidden_sizes)} or memory=None.'
      )
    for name in ('latent_size', 'init_scale', 'min_scale'):
      if not getattr(self, name) > 0:
        raise ValueError(
          f'{name} ({getattr(self, name)}) of a temporal hierarchy must be'
          f' above zero; the default is {getattr(RPTHConfig, name)}.'
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


# `(prepared, state) -> (output, state)`, leaves [B, ...].
_Step = Callable[[Any, Any], tuple[Any, Any]]


class RPTHState(NamedTuple):
  """State of a temporal hierarchy; zero at the start of an episode.

  Attributes:
    levels: a `rpth_level.LevelState` for each level, the fastest first.
    memory: the shared memory's state, or `()`.
    sample: float32 [B, latent_size], z of the last step.
    step: int32 [B], steps done in this episode.
  """

  levels: tuple[rpth_level.LevelState, ...]
  memory: Any
  sample: types.Array
  step: types.Array


class RPTH(hk.Module):
  """A temporal hierarchy as a recurrent core.

  Features are the samples z. Auxiliary outputs, for `losses.latent_kl`, are
  `loc`, `scale` and `tick`: of each level, the fastest first, leaves
  [..., latent_size] and bool [...]; with a memory also the `read_weights` and
  `write_weights` of the fastest level's access.

  Hyperparameters read: `slow_period`, an integer of at least one, and
  `fast_to_slow_gradient_scale`.
  """

  def __init__(self, config: RPTHConfig, name: str | None = None):
    super().__init__(name)
    self._config = config
    self._access = None
    if config.memory is not None:
      self._access = access.MemoryAccess(config.memory)
    self._levels = [
      rpth_level.Level(
        rpth_level.LevelConfig(
          hidden_size=hidden_size,
          num_seen=_count_seen(config, index),
          num_words=_count_words(config),
          latent_size=config.latent_size,
          init_scale=config.init_scale,
          min_scale=config.min_scale,
          tanh_loc=config.tanh_loc,
          clip_value=config.clip_value,
          forget_bias=config.forget_bias,
        ),
        self._access,
        name=f'level_{index}',
      )
      for index, hidden_size in enumerate(config.hidden_sizes)
    ]

  def initial_state(self, batch_size: int) -> RPTHState:
    """Returns the zero state."""
    return RPTHState(
      levels=tuple(level.initial_state(batch_size) for level in self._levels),
      memory=self._access.initial_state(batch_size) if self._access else (),
      sample=jnp.zeros((batch_size, self._config.latent_size)),
      step=jnp.zeros((batch_size,), jnp.int32),
    )

  def __call__(
    self,
    inputs: types.Array,
    state: RPTHState,
    hyperparameters: types.Hyperparameters,
  ) -> tuple[cores.CoreOutput, RPTHState]:
    """Does one step on inputs [B, num_inputs].

    Slow levels of which no row ticks are not computed (except under `vmap`).
    """
    step, prepared = self._prepare(inputs, hyperparameters, skips_idle=True)
    output, state = step(prepared, self._open_links(state))
    return output, self._close_links(state)

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: RPTHState,
    hyperparameters: types.Hyperparameters,
  ) -> tuple[cores.CoreOutput, RPTHState]:
    """Does `T` steps on inputs [T, B, num_inputs].

    All levels are computed at every step, and masked. To skip idle ones was
    measured to be slower with a gradient, even where all rows tick together:
    of a branch that may not be taken, all that its gradient reads is kept.
    """
    step, prepared = self._prepare(inputs, hyperparameters, skips_idle=False)
    if self._config.memory is None:
      return cores.unroll_step(step, prepared, start, state)
    output, state = recompute.unroll_step(
      step, prepared, start, self._open_links(state), self._config.memory
    )
    return output, self._close_links(state)

  def _open_links(self, state: RPTHState) -> RPTHState:
    if self._config.memory is None:
      return state
    return memory_state.open_links(
      self._config.memory, state, has_reads_ahead=True
    )

  def _close_links(self, state: RPTHState) -> RPTHState:
    if self._config.memory is None:
      return state
    return memory_state.close_links(self._config.memory, state)

  def _prepare(
    self,
    inputs: types.Array,
    hyperparameters: types.Hyperparameters,
    skips_idle: bool,
  ) -> tuple[_Step, Any]:
    """Returns one step and what it needs of inputs [..., num_inputs]."""
    leading_shape = inputs.shape[:-1]
    fast_step, prepared = self._levels[0].prepare(inputs)
    level_steps, all_prepared = [fast_step], [prepared]
    for level in self._levels[1:]:
      level_step, prepared = level.prepare(jnp.zeros((*leading_shape, 0)))
      if skips_idle and not hk.running_init():
        level_step = rpth_level.skip_if_idle(level_step)
      level_steps.append(level_step)
      all_prepared.append(prepared)
    noise = self._draw_noise((*leading_shape, self._config.latent_size))
    period = check_period(hyperparameters.slow_period)
    gradient_scale = hyperparameters.fast_to_slow_gradient_scale

    def step(prepared, state):
      prepared, noise = prepared
      ticks = [_ticks(state.step, period, i) for i in range(len(level_steps))]
      levels, memory = list(state.levels), state.memory
      for i in reversed(range(len(levels))):
        seen = _see(i, levels, state.sample, gradient_scale)
        mask = ticks[i] if i else None
        levels[i], memory = level_steps[i](
          rpth_level.LevelInputs(prepared[i], seen, mask),
          (levels[i], memory_state.flush_link(memory) if i else memory),
        )
      sample = levels[0].loc + levels[0].scale * noise
      state = RPTHState(tuple(levels), memory, sample, state.step + 1)
      return _make_output(state, ticks), state

    return step, (all_prepared, noise)

  def _draw_noise(self, shape: tuple[int, ...]) -> types.Array:
    """Returns the noise in z, in standard deviations of the posterior."""
    if self._config.noise_scale == 0.0:
      return jnp.zeros(shape)
    noise = jax.random.normal(hk.next_rng_key(), shape)
    return self._config.noise_scale * noise


def _count_seen(config: RPTHConfig, index: int) -> int:
  """Returns how many numbers `_see` returns."""
  num_words = _count_words(config)
  below = config.hidden_sizes[index - 1] if index else config.latent_size
  above = 0
  if index + 1 < len(config.hidden_sizes):
    above = config.hidden_sizes[index + 1] + num_words + 2 * config.latent_size
  return above + below + num_words


def _count_words(config: RPTHConfig) -> int:
  if config.memory is None:
    return 0
  return config.memory.num_reads * config.memory.word_size


def _see(
  index: int,
  levels: list[rpth_level.LevelState],
  sample: types.Array,
  gradient_scale: types.Array,
) -> types.Array:
  """Returns what a level sees, [B, num_seen].

  From above the next slower level as it is now, from below the next faster one
  as it was in the last step; from below the fastest the last sample. And the
  words that it, or if it is slow the level below, read last.
  """
  seen = []
  if index + 1 < len(levels):
    above = levels[index + 1]
    seen = [
      scale_gradient(leaf, gradient_scale)
      for leaf in (above.output, above.words, above.loc, above.scale)
    ]
  below = levels[max(index - 1, 0)]
  seen += [below.output if index else sample, below.words]
  return jnp.concatenate(seen, axis=-1)


def _make_output(
  state: RPTHState, ticks: list[types.Array]
) -> cores.CoreOutput:
  auxiliary = {
    'loc': tuple(level.loc for level in state.levels),
    'scale': tuple(level.scale for level in state.levels),
    'tick': tuple(ticks),
  }
  if state.memory:
    auxiliary['read_weights'] = state.memory.read_weights
    auxiliary['write_weights'] = state.memory.write_weights
  return cores.CoreOutput(features=state.sample, auxiliary=auxiliary)


def _ticks(step: types.Array, period: types.Array, level: int) -> types.Array:
  """Returns bool [B], the rows in which a level steps now."""
  return step % jnp.maximum(period, 1) ** level == 0


def check_period(period: types.Array) -> types.Array:
  """Returns `slow_period` if it may be one.

  Args:
    period: a scalar. Of a traced one only the type can be checked; its value is
      taken as one where it is less.

  Raises:
    ValueError: if it is no integer or less than one.
  """
  dtype = jnp.asarray(period).dtype
  if not jnp.issubdtype(dtype, jnp.integer):
    raise ValueError(
      f'slow_period ({period}) must be an integer and has dtype {dtype};'
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
  """Returns `x`, whose gradient is multiplied by the scalar `scale`."""
  del scale
  return x


scale_gradient.defvjp(
  lambda x, scale: (x, scale),
  lambda scale, gradient: (scale * gradient, jnp.zeros_like(scale)),
)
