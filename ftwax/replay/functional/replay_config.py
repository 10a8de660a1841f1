"""Config and hyperparameters of a functional replay."""

import dataclasses
from typing import Any, NamedTuple

from ftwax import types
from ftwax.replay.functional import draws

# Slots are int32, and a sum of two of them must not overflow.
_MAX_NUM_SLOTS = 2**30
# `draws.draw_uniform` multiplies two numbers below the batch size in int32.
_MAX_BATCH_SIZE = 2**15


@dataclasses.dataclass(frozen=True)
class ReplayConfig:
  """Static sizes and features of a replay.

  Attributes:
    num_environments: E, number of environments that add steps.
    max_length: L, number of steps kept of each environment.
    sequence_length: T, number of steps in a sampled sequence.
    batch_size: B, number of sequences in a sample.
    draw: how to draw a batch: 'independent', 'stratified' or 'distinct'; see
      `draws`.
    prioritized: whether to sample in proportion to priorities instead of
      uniformly.
    recent_data: whether a share of each batch, `recent_data_ratio`, may come
      from recent steps.
    num_earliest_frames_ignored: number of oldest steps of each environment with
      which no sequence begins, so that at least that many frames before a
      sequence are stored, for frame stacking.
    episodes: whether to index the begin and end of episodes.
    record_returns: whether to record discounted episodic returns; needs
      `episodes`.
    return_at_truncation: whether a `LAST` step with a nonzero discount also
      completes the returns of its episode, as if nothing came after.
    step_type_field: path of the step type in a step, for `episodes`; see
      `get_field`.
    reward_field: path of the reward, for `record_returns`.
    discount_field: path of the discount, for `record_returns`.
    checkify: whether to emit checks of values under `jit`, for
      `jax.experimental.checkify`; they cost about 50 us per call.
  """

  num_environments: int
  max_length: int
  sequence_length: int = 1
  batch_size: int = 32
  # Sampling.
  draw: str = draws.STRATIFIED
  prioritized: bool = False
  recent_data: bool = False
  num_earliest_frames_ignored: int = 0
  # Episodes.
  episodes: bool = False
  record_returns: bool = False
  return_at_truncation: bool = False
  step_type_field: str = 'step_type'
  reward_field: str = 'reward'
  discount_field: str = 'discount'
  # Checking.
  checkify: bool = False

  def __post_init__(self) -> None:
    for name in (
      'num_environments',
      'max_length',
      'sequence_length',
      'batch_size',
    ):
      if getattr(self, name) < 1:
        raise ValueError(
          f'{name} ({getattr(self, name)}) must be at least 1; give a positive'
          ' number.'
        )
    if self.num_earliest_frames_ignored < 0:
      raise ValueError(
        f'num_earliest_frames_ignored ({self.num_earliest_frames_ignored})'
        ' must not be negative; 0 ignores none.'
      )
    shortest = self.sequence_length + self.num_earliest_frames_ignored
    if shortest > self.max_length:
      raise ValueError(
        f'max_length ({self.max_length}) must hold sequence_length'
        f' ({self.sequence_length}) and num_earliest_frames_ignored'
        f' ({self.num_earliest_frames_ignored}); choose {shortest} or more.'
      )
    self._check_sizes()
    if self.draw not in draws.METHODS:
      raise ValueError(
        f'draw ({self.draw!r}) must be one of {draws.METHODS}; choose one.'
      )
    if self.record_returns and not self.episodes:
      raise ValueError(
        f'record_returns ({self.record_returns}) needs episode tracking; set'
        ' episodes=True.'
      )

  def _check_sizes(self) -> None:
    num_slots = self.num_environments * self.max_length
    if num_slots > _MAX_NUM_SLOTS:
      raise ValueError(
        f'num_environments * max_length ({num_slots}) must be at most'
        f' {_MAX_NUM_SLOTS}; choose a shorter max_length.'
      )
    if self.batch_size > _MAX_BATCH_SIZE:
      raise ValueError(
        f'batch_size ({self.batch_size}) must be at most {_MAX_BATCH_SIZE};'
        ' sample several times.'
      )
    if self.draw == draws.DISTINCT and self.batch_size > num_slots:
      raise ValueError(
        f'batch_size ({self.batch_size}) must be at most num_environments *'
        f" max_length ({num_slots}) with draw='distinct'; choose 'stratified',"
        ' whose rows may repeat.'
      )

  def replace(self, **changes: Any) -> 'ReplayConfig':
    """Returns a copy with `changes`."""
    return dataclasses.replace(self, **changes)


class ReplayHyperparameters(NamedTuple):
  """Scalars that a population may change: data, never static.

  Attributes:
    initial_priority: minimum priority of new sequences, which otherwise get the
      largest learned priority of those stored.
    priority_exponent: alpha, exponent of priorities.
    importance_exponent: beta, exponent of importance weights; 1 corrects the
      sampling distribution fully.
    recent_data_ratio: minimum share, in [0, 1], of a batch that comes from
      recent steps.
    recent_data_steps: number of newest sequences of each environment that count
      as recent; at least 1.
    discount: the agent's discount, for episodic returns.
    default_return: the return of steps whose episode has not ended.
    min_reward: lower bound to which rewards are clipped in the returns.
    max_reward: upper bound to which rewards are clipped in the returns.
  """

  initial_priority: types.Array | float = 1.0
  priority_exponent: types.Array | float = 0.6
  importance_exponent: types.Array | float = 0.4
  recent_data_ratio: types.Array | float = 0.0
  recent_data_steps: types.Array | int = 1
  discount: types.Array | float = 0.99
  default_return: types.Array | float = -1000.0
  min_reward: types.Array | float = -float('inf')
  max_reward: types.Array | float = float('inf')


DEFAULTS = ReplayHyperparameters()
