"""What can be chosen of the For-The-Win agent, and what evolves."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ftwax import hyperparameters
from ftwax.agents.actor_critic import scalars, tasks
from ftwax.networks.dnc import interfaces

Constant = hyperparameters.Constant
LogUniform = hyperparameters.LogUniform
Uniform = hyperparameters.Uniform
UniformInteger = hyperparameters.UniformInteger

CORES = ('lstm', 'rpth', 'rpth_dnc')
POLICY_LOSSES = ('vtrace', 'ppo')

_SIZES = ('hidden_size', 'latent_size', 'embedding_size', 'head_hidden_size')


Hyperparameters = scalars.extend(
  __name__,
  scalars.Hyperparameters,
  **tasks.HYPERPARAMETERS,
  kl_posterior_prior_cost='weight of KL(posterior || prior).',
  kl_prior_fixed_cost='weight of KL(prior || N(0, 0.1^2)).',
  slow_period='steps from tick to tick of the slow core, an integer.',
  fast_to_slow_gradient_scale='of the gradient into what the fast core sees of'
  ' the slow one.',
  gae_lambda='of the advantages of `ppo`.',
  clip_epsilon='how far the ratio of probabilities counts in `ppo`.',
  value_clip='how far the value moves in an update of `ppo` before it stops to'
  ' count; infinity for no bound.',
)


# Of the paper's population (supplement, table of hyperparameters); the last
# three, which V-trace does not read, are those that are usual for PPO.
_PAPER_PRIORS = Hyperparameters(
  learning_rate=LogUniform(1e-5, 5e-3),
  learning_rate_decay_steps=Constant(math.inf),
  rms_prop_epsilon=Constant(1e-5),
  max_gradient_norm=Constant(math.inf),
  discount=Constant(0.99),
  max_abs_reward=Constant(math.inf),
  baseline_cost=Constant(0.5),
  entropy_cost=LogUniform(5e-4, 1e-2),
  pixel_control_cost=LogUniform(0.01, 0.1),
  pixel_control_discount=Constant(0.9),
  reward_prediction_cost=LogUniform(0.1, 1.0),
  value_replay_cost=Constant(1.0),
  kl_posterior_prior_cost=LogUniform(1e-3, 1.0),
  kl_prior_fixed_cost=LogUniform(1e-4, 0.1),
  slow_period=UniformInteger(5, 20),
  fast_to_slow_gradient_scale=LogUniform(0.1, 1.0),
  gae_lambda=Constant(0.95),
  clip_epsilon=Constant(0.2),
  value_clip=Constant(math.inf),
)


@dataclasses.dataclass(frozen=True)
class FTWConfig(tasks.TaskOptions):
  """Options of the agent; see `TaskOptions` for the rest.

  The priors are those of the paper's population (supplement, table of
  hyperparameters), and value replay, which the paper does not have, is off. A
  value that is not to evolve is a `Constant`, or a
  `UniformInteger(n, n)` for the period.

  Attributes:
    internal_rewards_prior: of what each event is worth, one for all or a tuple
      with one for each. None: uniform in [-1, 1] for a vector of events, as in
      the paper, and 1 for a scalar reward, which nobody but a population could
      find the sign of.
    num_events: entries that the environment's reward must have; None for any.
    policy_loss: `vtrace`, as in the paper, or `ppo`, whose clipped loss bears
      several epochs of minibatches an update and whose advantages are
      normalized over the batch, so that the scale of a member's internal
      rewards does not matter; see `losses.clipped_surrogate`.
    core: `lstm`, `rpth` or `rpth_dnc`.
    hidden_size: units of each core.
    latent_size: numbers in the latent variable of the hierarchy.
    num_levels: cores of the hierarchy.
    memory: of `rpth_dnc`; its `linkage` is the choice between exactness and
      speed.
    latent_init_scale: standard deviation of the latents at first.
    latent_min_scale: added to standard deviations.
    latent_noise_scale: of the noise in the latents, which are all that policy
      and value see: 1 draws them from the posterior, as in the paper; 0 takes
      its mean, with which learning starts sooner where runs are short.
    latent_tanh_loc: bounds the means of the latents to (-1, 1).
    clip_value: bound on what the cores of a hierarchy hand on; None for none.
    forget_bias: of LSTMs, in a hierarchy too; see `recurrent_cores.LSTM`.
    embedding_size: features of an observation.
    vector_hidden_sizes: layers of the MLP for what is no image.
    head_hidden_size: units of the hidden layer of each policy branch and of
      the value head.
  """

  priors: Any = _PAPER_PRIORS
  internal_rewards_prior: Any = None
  num_events: int | None = None
  policy_loss: str = 'vtrace'

  # Network.
  core: str = 'rpth'
  hidden_size: int = 256
  latent_size: int = 256
  num_levels: int = 2
  memory: interfaces.MemoryConfig = interfaces.MemoryConfig()  # noqa: RUF009
  latent_init_scale: float = 0.1
  latent_min_scale: float = 1e-6
  latent_noise_scale: float = 1.0
  latent_tanh_loc: bool = False
  clip_value: float | None = None
  forget_bias: float = 1.0
  embedding_size: int = 256
  vector_hidden_sizes: tuple[int, ...] = (256,)
  head_hidden_size: int = 256

  # Auxiliary tasks.
  use_value_replay: bool = False

  bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
    **scalars.BOUNDS,
    'slow_period': (1, math.inf),
    'fast_to_slow_gradient_scale': (0.0, 1.0),
  }

  def __post_init__(self):
    """Checks names, sizes and bounds."""
    super().__post_init__()
    if self.core not in CORES:
      raise ValueError(
        f'core ({self.core!r}) must be one of {CORES}; choose one, or pass'
        ' make_core=... to make_network.'
      )
    if self.policy_loss not in POLICY_LOSSES:
      raise ValueError(
        f'policy_loss ({self.policy_loss!r}) must be one of {POLICY_LOSSES};'
        ' choose one.'
      )
    for name in _SIZES:
      if getattr(self, name) < 1:
        raise ValueError(
          f'{name} ({getattr(self, name)}) must be at least 1; choose 256.'
        )
    if not isinstance(self.priors.slow_period, UniformInteger):
      raise ValueError(
        f'priors.slow_period ({self.priors.slow_period!r}) must be of integers;'
        ' choose hyperparameters.UniformInteger(5, 20), or (10, 10) for a'
        ' period that does not change.'
      )

  @classmethod
  def paper(cls, **options: Any) -> 'FTWConfig':
    """Returns the agent of the paper, meant for some 2e9 steps.

    One step of RMSProp an update on the sum of V-trace's losses, without a
    bound on the gradient, and the priors of the paper's population.

    Args:
      **options: in place of these, or beside them.
    """
    return cls(
      **{
        'priors': _PAPER_PRIORS,
        'internal_rewards_prior': None,
        'policy_loss': 'vtrace',
        'optimizer': 'rms_prop',
        'rms_prop_decay': 0.99,
        'loss_reduction': 'sum',
        'num_epochs': 1,
        'num_minibatches': 1,
        'latent_init_scale': 0.1,
        'latent_noise_scale': 1.0,
      }
      | options
    )

  def with_size(self, size: int) -> 'FTWConfig':
    """Returns a copy with `size` units in each core, layer and latent."""
    sizes = dict.fromkeys(_SIZES, size)
    return self.replace(**sizes, vector_hidden_sizes=(size,))

  def make_internal_rewards_prior(self, num_events: int) -> Any:
    """Returns the prior of each event's worth.

    Raises:
      ValueError: if the config demands another number of events.
    """
    if self.num_events not in (None, num_events):
      raise ValueError(
        f'num_events ({self.num_events}) must be the number of entries of the'
        f" environment's reward, {num_events}; choose num_events={num_events}"
        ' or None, or make the environment tell of the others.'
      )
    if self.internal_rewards_prior is not None:
      return self.internal_rewards_prior
    return Constant(1.0) if num_events == 1 else Uniform(-1.0, 1.0)
