"""What can be chosen of the For-The-Win agent, and what evolves."""

import dataclasses
import math
from typing import Any, NamedTuple

from ftwax import hyperparameters
from ftwax.agents.actor_critic import config as config_lib
from ftwax.networks.dnc import interfaces

Constant = hyperparameters.Constant
LogUniform = hyperparameters.LogUniform
Uniform = hyperparameters.Uniform
UniformInteger = hyperparameters.UniformInteger

CORES = ('lstm', 'rpth', 'rpth_dnc')


class Hyperparameters(NamedTuple):
  """Scalars of the agent, or their priors.

  Attributes:
    learning_rate: see `actor_critic.config`, as for all up to `entropy_cost`.
    learning_rate_decay_steps: see there.
    rms_prop_epsilon: see there.
    max_gradient_norm: see there.
    discount: see there.
    max_abs_reward: see there.
    baseline_cost: see there.
    entropy_cost: see there.
    pixel_control_cost: weight of pixel control.
    pixel_control_discount: of its pseudo-rewards.
    reward_prediction_cost: weight of reward prediction.
    value_replay_cost: weight of value replay.
    kl_posterior_prior_cost: weight of KL(posterior || prior).
    kl_prior_fixed_cost: weight of KL(prior || N(0, 0.1^2)).
    slow_period: steps from tick to tick of the slow core, an integer.
    fast_to_slow_gradient_scale: of the gradient into what the fast core sees
      of the slow one.
  """

  learning_rate: Any
  learning_rate_decay_steps: Any
  rms_prop_epsilon: Any
  max_gradient_norm: Any
  discount: Any
  max_abs_reward: Any
  baseline_cost: Any
  entropy_cost: Any
  pixel_control_cost: Any
  pixel_control_discount: Any
  reward_prediction_cost: Any
  value_replay_cost: Any
  kl_posterior_prior_cost: Any
  kl_prior_fixed_cost: Any
  slow_period: Any
  fast_to_slow_gradient_scale: Any


# What each may be, both ends included.
_BOUNDS = Hyperparameters(
  learning_rate=(0.0, math.inf),
  learning_rate_decay_steps=(1.0, math.inf),
  rms_prop_epsilon=(0.0, math.inf),
  max_gradient_norm=(0.0, math.inf),
  discount=(0.0, 1.0),
  max_abs_reward=(0.0, math.inf),
  baseline_cost=(0.0, math.inf),
  entropy_cost=(0.0, math.inf),
  pixel_control_cost=(0.0, math.inf),
  pixel_control_discount=(0.0, 1.0),
  reward_prediction_cost=(0.0, math.inf),
  value_replay_cost=(0.0, math.inf),
  kl_posterior_prior_cost=(0.0, math.inf),
  kl_prior_fixed_cost=(0.0, math.inf),
  slow_period=(1, math.inf),
  fast_to_slow_gradient_scale=(0.0, 1.0),
)


@dataclasses.dataclass(frozen=True)
class FTWConfig(config_lib.ActorCriticConfig):
  """Options of the agent; see `ActorCriticConfig` for the rest.

  The priors are those of the paper's population (supplement, table of
  hyperparameters). A value that is not to evolve is a `Constant`, or a
  `UniformInteger(n, n)` for the period.

  Attributes:
    internal_rewards_prior: of what each event is worth, one for all or a tuple
      with one for each. None: uniform in [-1, 1] for a vector of events, as in
      the paper, and 1 for a scalar reward, which nobody but a population could
      find the sign of.
    num_events: entries that the environment's reward must have; None for any.
    core: `lstm`, `rpth` or `rpth_dnc`.
    hidden_size: units of each core.
    latent_size: numbers in the latent variable of the hierarchy.
    num_levels: cores of the hierarchy.
    memory: of `rpth_dnc`; its `linkage` is the choice between exactness and
      speed.
    latent_init_scale: standard deviation of the latents at first.
    latent_min_scale: added to standard deviations.
    latent_tanh_loc: bounds the means of the latents to (-1, 1).
    clip_value: bound on what the cores of a hierarchy hand on; None for none.
    embedding_size: features of an observation.
    vector_hidden_sizes: layers of the MLP for what is no image.
    head_hidden_size: units of the hidden layer of each policy branch and of
      the value head.
    use_pixel_control: learns to change what is seen.
    use_reward_prediction: learns to tell the next reward's sign.
    use_value_replay: regresses the value on replayed trajectories too, as
      UNREAL does and the paper does not.
    frame_entry: the image that pixel control is of, in an observation that is
      a dict; None where the observation is the image.
    cell_size: pixels on each side of a cell of pixel control.
    crop_size: (height, width) in the middle of the frame that cells cover; None
      for as much as they can.
  """

  priors: Any = Hyperparameters(
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
  )
  internal_rewards_prior: Any = None
  num_events: int | None = None

  # Network.
  core: str = 'rpth'
  hidden_size: int = 256
  latent_size: int = 256
  num_levels: int = 2
  memory: interfaces.MemoryConfig = interfaces.MemoryConfig()  # noqa: RUF009
  latent_init_scale: float = 0.1
  latent_min_scale: float = 1e-6
  latent_tanh_loc: bool = False
  clip_value: float | None = None
  embedding_size: int = 256
  vector_hidden_sizes: tuple[int, ...] = (256,)
  head_hidden_size: int = 256

  # Auxiliary tasks.
  use_pixel_control: bool = True
  use_reward_prediction: bool = True
  use_value_replay: bool = False
  frame_entry: str | None = None
  cell_size: int = 4
  crop_size: tuple[int, int] | None = None

  def __post_init__(self):
    """Checks names, sizes and bounds."""
    super().__post_init__()
    if self.core not in CORES:
      raise ValueError(
        f'core ({self.core!r}) must be one of {CORES}; choose one, or pass'
        ' make_core=... to make_network.'
      )
    for name in (
      'hidden_size',
      'latent_size',
      'embedding_size',
      'head_hidden_size',
    ):
      if getattr(self, name) < 1:
        raise ValueError(
          f'{name} ({getattr(self, name)}) must be at least 1; choose 256.'
        )
    for name, prior in self.priors._asdict().items():
      _check_bounds(name, prior, getattr(_BOUNDS, name))
    if not isinstance(self.priors.slow_period, UniformInteger):
      raise ValueError(
        f'priors.slow_period ({self.priors.slow_period!r}) must be of integers;'
        ' choose hyperparameters.UniformInteger(5, 20), or (10, 10) for a'
        ' period that does not change.'
      )

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


def _check_bounds(name: str, prior: Any, bounds: tuple[float, float]) -> None:
  """Raises a ValueError if the prior gives values out of bounds."""
  if isinstance(prior, Constant):
    low = high = prior.value
  elif hasattr(prior, 'low') and hasattr(prior, 'high'):
    low, high = prior.low, prior.high
  else:
    return  # Of a prior of the user's own, only he knows the range.
  if low < bounds[0] or high > bounds[1]:
    raise ValueError(
      f'priors.{name} ({prior!r}) must lie in [{bounds[0]:g}, {bounds[1]:g}];'
      ' choose a value or bounds inside.'
    )
