"""One level of a temporal hierarchy: a core, and the latent it describes."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.networks.dnc import (
  access,
  controllers,
  core,
  deferred,
  memory_state,
)


@dataclasses.dataclass(frozen=True)
class LevelConfig:
  """Sizes and options of a level; see `rpth.RPTHConfig`.

  Attributes:
    hidden_size: units of the core.
    num_seen: how many numbers a step sees beside the network's inputs.
    num_words: how many numbers it reads from a memory, or 0 without one.
    latent_size: numbers in the latent variable.
    init_scale: standard deviation that an output of zero means.
    min_scale: added to standard deviations.
    tanh_loc: bound means to (-1, 1).
    clip_value: bound on the core's outputs, None for none.
    forget_bias: of the core.
  """

  hidden_size: int
  num_seen: int
  num_words: int
  latent_size: int
  init_scale: float
  min_scale: float
  tanh_loc: bool
  clip_value: float | None
  forget_bias: float


class LevelState(NamedTuple):
  """State of one level, float32; zero at the start of an episode.

  Attributes:
    controller: the LSTM's state.
    output: [B, hidden_size], what the level's core said last.
    words: [B, num_reads * word_size], what it read last; without a memory
      [B, 0].
    loc: [B, latent_size], mean of its latent.
    scale: [B, latent_size], standard deviation of its latent.
  """

  controller: Any
  output: types.Array
  words: types.Array
  loc: types.Array
  scale: types.Array


class LevelInputs(NamedTuple):
  """What a step is given.

  Attributes:
    prepared: of this step, made by `Level.prepare`.
    seen: [B, num_seen].
    mask: bool [B], the rows which do the step; None for all.
  """

  prepared: Any
  seen: types.Array
  mask: types.Array | None


# `(inputs, (state, memory)) -> (state, memory)`, leaves [B, ...]; without a
# memory that is `()`.
LevelStep = Callable[
  [LevelInputs, tuple[LevelState, Any]], tuple[LevelState, Any]
]


class Level(hk.Module):
  """One level: a core, with a memory or without, and its latent."""

  def __init__(
    self,
    config: LevelConfig,
    memory_access: access.MemoryAccess | None,
    name: str,
  ):
    super().__init__(name)
    self._config = config
    self._access = memory_access
    self._controller = controllers.LSTMController(
      config.hidden_size, config.forget_bias
    )
    self._latent = deferred.Linear(2 * config.latent_size, name='latent')
    if memory_access is not None:
      self._output = deferred.Linear(config.hidden_size, name='output')

  def initial_state(self, batch_size: int) -> LevelState:
    """Returns the zero state."""
    latent = (batch_size, self._config.latent_size)
    return LevelState(
      controller=self._controller.initial_state(batch_size),
      output=jnp.zeros((batch_size, self._config.hidden_size)),
      words=jnp.zeros((batch_size, self._config.num_words)),
      loc=jnp.zeros(latent),
      scale=jnp.zeros(latent),
    )

  def prepare(self, inputs: types.Array) -> tuple[LevelStep, Any]:
    """Returns one step and what it needs of inputs [..., num_inputs]."""
    config, leading_shape = self._config, inputs.shape[:-1]
    control, gates = self._controller.prepare(inputs, config.num_seen)
    read_out, read_out_taps = self._prepare_read_out(leading_shape)
    latent, latent_taps = self._latent(config.hidden_size, leading_shape)

    def step(inputs, state):
      (gates, read_out_tap, latent_tap), seen, mask = inputs
      level, memory = state
      hidden, controller = control(gates, seen, level.controller, None)
      hidden = core.clip(hidden, config.clip_value)
      output, words, memory = read_out(
        hidden, read_out_tap, level.words, memory, mask
      )
      loc, scale = self._parse_latent(latent(output, latent_tap))
      new_level = LevelState(controller, output, words, loc, scale)
      return _choose(mask, new_level, level), memory

    return step, (gates, read_out_taps, latent_taps)

  def _prepare_read_out(self, leading_shape):
    """Returns what makes a controller's output that of the core."""
    if self._access is None:
      return lambda hidden, _, words, memory, mask: (hidden, words, memory), ()
    access_memory, access_taps = self._access.prepare(
      self._config.hidden_size, leading_shape
    )
    project, output_taps = self._output(
      self._config.hidden_size + self._config.num_words, leading_shape
    )

    def read_out(hidden, taps, words, memory, mask):
      access_tap, output_tap = taps
      memory = access_memory(hidden, access_tap, memory, mask)
      words = memory.words.reshape(words.shape)
      output = project(jnp.concatenate([hidden, words], -1), output_tap)
      return core.clip(output, self._config.clip_value), words, memory

    return read_out, (access_taps, output_taps)

  def _parse_latent(
    self, numbers: types.Array
  ) -> tuple[types.Array, types.Array]:
    """Returns mean and standard deviation [B, latent_size]."""
    loc, scale = jnp.split(numbers, 2, axis=-1)
    # The scale is `init_scale` where the layer says zero.
    scale = jax.nn.softplus(scale) * (self._config.init_scale / math.log(2.0))
    loc = jnp.tanh(loc) if self._config.tanh_loc else loc
    return loc, scale + self._config.min_scale


def skip_if_idle(step: LevelStep) -> LevelStep:
  """Makes a step compute nothing where no row does it (but under `vmap`).

  An exact link matrix is only read by such a step: it stays outside.

  Args:
    step: of any level but the fastest.
  """

  def step_or_hold(inputs, state):
    level, memory = state
    memory, matrix = memory_state.detach_link(memory)

    def do_step(inputs, state):
      level, memory = state
      level, memory = step(
        inputs, (level, memory_state.attach_link(memory, matrix))
      )
      return level, memory_state.detach_link(memory)[0]

    def hold(inputs, state):
      del inputs
      level, memory = state
      return level, memory_state.write_nothing(memory)

    level, memory = hk.cond(
      jnp.any(inputs.mask), do_step, hold, inputs, (level, memory)
    )
    return level, memory_state.attach_link(memory, matrix)

  return step_or_hold


def _choose(mask: types.Array | None, new: Any, old: Any) -> Any:
  """Returns `new` [B, n] in the rows of `mask`, else `old`."""
  if mask is None:
    return new
  return jax.tree.map(
    lambda new, old: jnp.where(mask[:, None], new, old), new, old
  )
