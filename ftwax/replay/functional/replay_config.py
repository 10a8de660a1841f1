"""Config, hyperparameters, state and samples of a functional replay."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from ftwax import types
from ftwax.replay.functional import draws, replay_checks
from ftwax.replay.functional import episodes as episodes_lib
from ftwax.replay.functional import prioritized as prioritized_lib
from ftwax.replay.functional import ring as ring_lib

# Slots are counted in int32, and sums of two such numbers must fit.
_MAX_NUM_SLOTS = 2**30
# So that rank * rest, both below the batch size, fits into an int32.
_MAX_BATCH_SIZE = 2**15


@dataclasses.dataclass(frozen=True)
class ReplayConfig:
  """Sizes and features of a replay: all of it static.

  Attributes:
    num_environments: E, the environments that write.
    max_length: L, the steps that are kept of each.
    sequence_length: T, the steps of a sampled sequence.
    batch_size: B, the sequences of a sample.
    draw: how a batch is drawn: 'independent', 'stratified' or 'distinct'; see
      `draws`.
    prioritized: whether sequences are drawn in proportion to priorities,
      rather than uniformly.
    recent_data: whether a share of each batch, `recent_data_ratio`, may be
      drawn from recent steps.
    num_earliest_frames_ignored: how many of the oldest steps of each
      environment no sequence begins with; so many frames before its first are
      certain to be stored, for stacks of frames.
    episodes: whether to index where episodes begin and end.
    record_returns: whether to record discounted episodic returns; needs
      `episodes`.
    return_at_truncation: whether a `LAST` step whose discount is not zero also
      completes the returns of its episode, as though nothing came after.
    step_type_field: path of the step type in a step, for `episodes`; a name as
      for `get_field`.
    reward_field: path of the reward, for `record_returns`.
    discount_field: path of the discount, for `record_returns`.
    checkify: whether to emit checks of values under `jit`, for
      `jax.experimental.checkify`; they cost some 50 us a call.
  """

  num_environments: int
  max_length: int
  sequence_length: int = 1
  batch_size: int = 32
  # Drawing.
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
        f'record_returns ({self.record_returns}) needs to know of episodes;'
        ' set episodes=True.'
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
        f" max_length ({num_slots}) where draw is 'distinct'; choose"
        " 'stratified', whose rows may repeat."
      )

  @property
  def candidates(self) -> prioritized_lib.Candidates:
    """Returns the rule for where sequences may begin."""
    return prioritized_lib.Candidates(
      self.sequence_length, self.num_earliest_frames_ignored
    )

  def replace(self, **changes: Any) -> 'ReplayConfig':
    """Returns a copy with `changes`."""
    return dataclasses.replace(self, **changes)


class ReplayHyperparameters(NamedTuple):
  """Scalars that a population may change: data, never static.

  Attributes:
    initial_priority: the least priority of new sequences, which begin with
      the largest that was learned of those stored.
    priority_exponent: alpha, to which priorities are raised.
    importance_exponent: beta, of the importance weights; with 1 they correct
      the sampling distribution fully.
    recent_data_ratio: the least share, in [0, 1], of a batch that comes from
      recent steps.
    recent_data_steps: the newest so many sequences of each environment are
      recent; taken for 1 where less.
    discount: of the agent, in the episodic returns.
    default_return: the return of steps whose episode has not ended.
    min_reward: to which rewards are clipped from below in the returns.
    max_reward: from above.
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


class ReplayState(NamedTuple):
  """State of a replay, a pytree of arrays.

  Attributes:
    ring: the steps.
    episodes: the index of episodes; None unless configured.
    returns: episodic returns; None unless configured.
    priorities: of sequences; None unless configured.
  """

  ring: ring_lib.Ring
  episodes: episodes_lib.Episodes | None
  returns: episodes_lib.Returns | None
  priorities: prioritized_lib.Priorities | None


def check_state(config: ReplayConfig, state: ReplayState) -> None:
  """Checks that a state has the sizes and parts that a replay needs.

  Args:
    config: of the replay.
    state: leaves may be NumPy arrays.

  Raises:
    ValueError: if the state has other sizes, or lacks a part.
  """
  wanted = config.num_environments, config.max_length
  found = ring_lib.dimensions(state.ring)
  if found != wanted or state.ring.size.shape != wanted[:1]:
    raise ValueError(
      f'state (of {found[0]} environments and {found[1]} steps) must be of'
      f' num_environments ({wanted[0]}) and max_length ({wanted[1]}); make it'
      ' with init() of this replay, or vmap over the members of a population.'
    )
  for feature, part in (
    ('prioritized', state.priorities),
    ('episodes', state.episodes),
    ('record_returns', state.returns),
  ):
    if getattr(config, feature) and part is None:
      raise ValueError(
        f'state must have what {feature}=True needs, and was made by a replay'
        ' without; make it with init() of this replay.'
      )


def lowest_priority(
  config: ReplayConfig, hyperparameters: ReplayHyperparameters
) -> types.Array:
  """Returns the least value in a tree of new sequences, float32.

  Raises:
    ValueError: outside `jit`, if the initial priority or its power is negative
      or not finite; under `jit` it is taken for 1.
  """
  priority = jnp.asarray(hyperparameters.initial_priority, jnp.float32)
  exponent = jnp.asarray(hyperparameters.priority_exponent, jnp.float32)
  is_good = replay_checks.check_scalar(
    config.checkify, 'initial_priority', priority
  )
  is_good &= replay_checks.check_scalar(
    config.checkify, 'priority_exponent', exponent
  )
  power = priority**exponent
  is_power = replay_checks.check_scalar(
    config.checkify, 'initial_priority ** priority_exponent', power
  )
  return jnp.where(is_good & is_power, power, 1.0)


class SampleInfo(NamedTuple):
  """Origin and weight of the sequences of a sample.

  Attributes:
    env_id: int32 [B].
    position: int32 [B], of the first step.
    probability: float32 [B], with which a row of the batch is this sequence;
      where rows are distinct, with which the first row drawn is.
    num_candidates: int32, the sequences there were to draw from.
    importance_weight: float32 [B], (num_candidates * probability) ** -beta,
      divided by the largest of the batch.
    is_valid: bool [B]; where it is false no whole sequence was drawn, the
      weight is zero and the data are arbitrary.
    discounted_return: float32 [B, ...], the episodic return of the first step;
      None if not recorded.
  """

  env_id: types.Array
  position: types.Array
  probability: types.Array
  num_candidates: types.Array
  importance_weight: types.Array
  is_valid: types.Array
  discounted_return: types.Array | None


class Sample(NamedTuple):
  """A batch of sequences.

  Attributes:
    data: leaves [T, B, ...].
    info: their origin and weight.
  """

  data: types.ArrayTree
  info: SampleInfo


class Steps(NamedTuple):
  """Stored steps, oldest first.

  Attributes:
    data: leaves [num_steps, K, ...], zero where not valid.
    position: int32 [num_steps, K].
    is_valid: bool [num_steps, K].
  """

  data: types.ArrayTree
  position: types.Array
  is_valid: types.Array
