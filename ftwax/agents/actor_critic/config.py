"""What all agents of the actor-critic family can be told.

Sizes are static. What a population may change is a hyperparameter: data in
the training state, drawn from the prior that the config holds for it.
"""

import dataclasses
import math
from typing import Any, NamedTuple

from ftwax import hyperparameters as hyperparameters_lib
from ftwax import types


class Hyperparameters(NamedTuple):
  """Scalars that every agent of the family has, or their priors.

  Attributes:
    learning_rate: of RMSProp.
    rms_prop_epsilon: added to the mean square under the root.
    max_gradient_norm: gradients with a larger global norm are scaled to it.
    discount: multiplies the environment's.
    max_abs_reward: rewards are clipped to it in the loss.
    baseline_cost: weight of the value loss.
    entropy_cost: weight of the policy's entropy, which is maximized.
  """

  learning_rate: Any
  rms_prop_epsilon: Any
  max_gradient_norm: Any
  discount: Any
  max_abs_reward: Any
  baseline_cost: Any
  entropy_cost: Any


@dataclasses.dataclass(frozen=True)
class ActorCriticConfig:
  """Options of the family; an agent's config sets its own defaults.

  Attributes:
    priors: a prior for each hyperparameter.
    sequence_length: T, transitions in a trajectory.
    batch_size: B, trajectories in a learner step.
    rms_prop_decay: of the mean square of gradients.
    max_skipped_updates: updates in a row whose gradient is not finite, after
      which the learner gives up.
    max_queue_size: trajectories that wait in the queue.
    prefetch_size: batches that wait on the device.
    replay_timeout_s: seconds within which the queue must take or give an item.
  """

  priors: Any

  # Trajectories.
  sequence_length: int = 20
  batch_size: int = 16

  # Optimizer.
  rms_prop_decay: float = 0.99
  max_skipped_updates: int = 25

  # Replay.
  max_queue_size: int = 32
  prefetch_size: int = 1
  replay_timeout_s: float = 60.0

  def __post_init__(self):
    """Checks values, alone and against each other."""
    for name in (
      'sequence_length',
      'batch_size',
      'max_skipped_updates',
      'prefetch_size',
    ):
      value = getattr(self, name)
      if value < 1:
        raise ValueError(f'{name} ({value}) must be at least 1; choose 1.')
    if self.max_queue_size < self.batch_size:
      raise ValueError(
        f'batch_size ({self.batch_size}) must not be above max_queue_size'
        f' ({self.max_queue_size}), or the queue could never fill a batch;'
        f' choose max_queue_size={2 * self.batch_size}.'
      )
    if not self.replay_timeout_s > 0.0 or math.isinf(self.replay_timeout_s):
      raise ValueError(
        f'replay_timeout_s ({self.replay_timeout_s}) must be positive and'
        ' finite, since a full queue blocks for ever; choose 60.'
      )
    for name, prior in self.priors._asdict().items():
      if not hasattr(prior, 'sample'):
        raise ValueError(
          f'priors.{name} ({prior!r}) must be a prior; choose'
          f' hyperparameters.Constant({prior!r}).'
        )

  def replace(self, **changes: Any) -> 'ActorCriticConfig':
    """Returns a copy with some options changed."""
    return dataclasses.replace(self, **changes)

  def sample_hyperparameters(self, key: types.Key) -> types.Hyperparameters:
    """Draws hyperparameters from the priors."""
    return hyperparameters_lib.sample(key, self.priors)
