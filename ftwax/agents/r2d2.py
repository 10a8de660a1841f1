"""Recurrent replay distributed DQN (Kapturowski et al., 2019, "Recurrent
experience replay in distributed reinforcement learning").

R2D2 learns action values by n-step double Q-learning, from sequences that a
replay samples by priority. A sequence starts from the recurrent state that its
actor had there, refreshed by a burn-in. Actors take random actions with
probabilities between which a ladder of epsilons spreads them.

Within the family it is a head of action values, a loss, target parameters, a
replay and a rule of exploration; everything else is shared.
"""

import dataclasses
import fractions
from typing import ClassVar

from ftwax import parts, registry
from ftwax.agents.actor_critic import action_value_config, target_parameters
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.losses import policy_loss as policy_loss_lib
from ftwax.losses import q_learning
from ftwax.replay import replay_options

# Largest denominator of the number of trajectories for each update.
_MAX_DENOMINATOR = 1024


@registry.register('agent.r2d2')
@dataclasses.dataclass(frozen=True)
class R2D2Config(action_value_config.ActionValueConfig):
  """Defaults of R2D2; see `ActionValueConfig` for the options that it shares.

  Attributes:
    n_step: steps of the returns before they bootstrap.
    rescaling: epsilon of the rescaling of values, or None for none.
    huber_delta: error beyond which the loss is linear; infinity for the square.
    target: how target parameters follow: `PeriodicTarget` or `AverageTarget`.
    replay: the sequences that it learns from.
  """

  name: ClassVar[str] = 'r2d2'
  learns_from_replay: ClassVar[bool] = True

  # What the replay and the rescaling of values take the place of.
  num_epochs: ClassVar[int] = 1  # type: ignore[misc]
  num_minibatches: ClassVar[int] = 1  # type: ignore[misc]
  shuffle: ClassVar[str | None] = None  # type: ignore[misc]
  normalize_returns: ClassVar[bool] = False  # type: ignore[misc]

  learning_rate: config_lib.Scalar = 1e-3
  max_gradient_norm: config_lib.Scalar = parts.scalar(40.0, unlimited=True)
  n_step: config_lib.Integer = parts.scalar(5, low=1)
  rescaling: parts.Scalar | None = parts.scalar(1e-3, low=1e-6, high=1.0)
  huber_delta: config_lib.Scalar = parts.scalar(1.0, unlimited=True)

  target: (  # type: ignore[misc]
    target_parameters.PeriodicTarget | target_parameters.AverageTarget
  ) = target_parameters.AverageTarget(0.02)  # noqa: RUF009
  replay: replay_options.Prioritized = replay_options.Prioritized()  # noqa: RUF009

  sequence_length: int = 16
  batch_size: int = 32

  _methods: ClassVar[dict[str, str]] = {
    **action_value_config.ActionValueConfig._methods,
    'replay': 'samples_per_insert',
    'target': 'update',
  }

  def __post_init__(self) -> None:
    """Checks that the replay holds a batch, and its ratio."""
    super().__post_init__()
    if self.replay.capacity < self.batch_size:
      raise ValueError(
        f'batch_size ({self.batch_size}) must not be above capacity'
        f' ({self.replay.capacity}) of the replay, which would repeat all of'
        f' it; choose replay=Prioritized(capacity={64 * self.batch_size}).'
      )
    ratio = fractions.Fraction(self.replay.samples_per_insert)
    exact = ratio.limit_denominator(_MAX_DENOMINATOR)
    if not exact or abs(float(exact / ratio) - 1.0) > 1e-3:
      raise ValueError(
        f'samples_per_insert ({self.replay.samples_per_insert}) of Prioritized'
        f' must be at least {1 / _MAX_DENOMINATOR:.3g}; choose 1.0.'
      )

  @property
  def trajectories_per_update(self) -> fractions.Fraction:
    """Number of fresh trajectories for each update."""
    ratio = fractions.Fraction(self.replay.samples_per_insert)
    return self.batch_size / ratio.limit_denominator(_MAX_DENOMINATOR)

  @property
  def _default_loss(self) -> policy_loss_lib.PolicyLoss:
    return q_learning.q_learning_loss
