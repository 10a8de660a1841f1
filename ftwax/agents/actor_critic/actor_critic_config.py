"""The config of an agent, from which all of its functions are made.

Options, such as sizes, are static. Hyperparameters are data in the training
state, so that a population may change them: the config holds a number or a
prior for each, from which the learner samples its initial value.
"""

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from ftwax import encodings, internal_rewards, types
from ftwax import hyperparameters as hyperparameters_lib
from ftwax.agents.actor_critic import acting, auxiliary, learning
from ftwax.agents.actor_critic import bounds as bounds_lib
from ftwax.agents.actor_critic import tasks as tasks_lib
from ftwax.losses import policy_loss

Scalar = hyperparameters_lib.Scalar
Integer = hyperparameters_lib.Integer

# One prior shared by all events, or a tuple with one for each.
InternalRewardsPrior = (
  hyperparameters_lib.Prior | tuple[hyperparameters_lib.Prior, ...]
)

# Makes a network from the specs of an environment and the agent's config.
NetworkFactory = Callable[
  [types.EnvironmentSpec, 'ActorCriticConfig'], types.RecurrentNetwork
]


_Config = TypeVar('_Config', bound='ActorCriticConfig')


@functools.cache
def _find_hyperparameters(kind: Any) -> Mapping[str, bool]:
  """Returns whether each hyperparameter is an integer, by name, in order."""
  hints = typing.get_type_hints(kind)
  return {
    field.name: hints[field.name] == Integer
    for field in dataclasses.fields(kind)
    if hints[field.name] in (Scalar, Integer)
  }


@dataclasses.dataclass(frozen=True)
class ActorCriticConfig(types.Config):
  """An agent; a named agent sets its own defaults, network and loss.

  The first fields are hyperparameters: a number is fixed, a prior may evolve.
  Those of a subclass follow, each annotated as `Scalar` or `Integer`.

  Attributes:
    learning_rate: step size of the optimizer at the first update.
    learning_rate_decay_steps: number of updates over which the hyperparameters
      in `decayed_hyperparameters`, by default the learning
      rate, are annealed linearly to the share `decayed_to` of their values, by
      default zero; infinity keeps them constant.
    rms_prop_epsilon: added to RMSProp's mean square, inside the square root.
      Adam ignores it.
    max_gradient_norm: maximum global norm of the gradients; larger ones are
      scaled down to it. It applies to the gradient of all losses together,
      after `loss_reduction`. The logged `gradient_norm` is
      the norm before clipping.
    discount: factor that multiplies the environment's discount.
    max_abs_reward: rewards are clipped to this magnitude in the loss.
    baseline_cost: weight of the value loss.
    entropy_cost: weight of the entropy bonus.
    pixel_control_cost: weight of pixel control, if used.
    pixel_control_discount: discount of the pseudo-rewards of pixel control.
    reward_prediction_cost: weight of reward prediction, if used.
    value_replay_cost: weight of value replay, if used.
    off_policy_cost: weight of the loss on replayed trajectories, if used.
    replay_priority_exponent: exponent of the priorities of replayed
      trajectories, if replay is prioritized; 0 samples uniformly.
    replay_importance_exponent: exponent of their importance weights; 1 corrects
      fully for prioritized sampling.
    network: makes a network that replaces the agent's own; see
      `NetworkFactory`.
    loss: replaces the agent's policy loss.
    tasks: auxiliary tasks in addition to those that the options name.
    internal_rewards_prior: prior of the agent's reward for each event, or a
      tuple with one prior for each event; a scalar reward is one event. None
      leaves the choice to `make_internal_rewards_prior`.
    entry_encodings: encodings of individual observation entries, by path:
      `scaled` for pixels and numbers, `one_hot` or `embedding` for codes, in
      place of those that `ftwax.encodings` chooses by dtype, shape and bounds.
    use_pixel_control: whether to learn to change the pixels of the frame; see
      `losses.pixel_control`.
    use_reward_prediction: whether to learn to predict the sign of the next
      reward; see `losses.reward_prediction`.
    use_value_replay: whether to train the value on replayed trajectories too;
      see `losses.value_replay`.
    use_off_policy: whether to train policy and value on replayed trajectories
      too, with V-trace.
    frame_entry: path of the observation entry that pixel control acts on, such
      as 'camera/left'; None if the observation is a single array.
    cell_size: height and width of a pixel control cell, in pixels; for a
      signal, the number of consecutive samples of one channel.
    crop_size: (height, width) of the central crop that the cells cover; None
      covers as much of the frame as whole cells can. A signal is not cropped.
    sequence_length: T, transitions in a trajectory.
    batch_size: B, trajectories in an update.
    normalize_observations: whether to normalize each element of float entries
      to mean 0 and variance 1 by running statistics. Images and the entry that
      pixel control acts on are exempt; see `actor_critic.normalization`.
    normalize_returns: whether to divide rewards in the losses by the running
      root mean square of returns, so that the reward scale affects neither the
      policy nor the value loss.
    normalize_advantages: whether to normalize the advantages of fresh
      trajectories to mean 0 and variance 1 over the batch. None follows the
      policy loss: PPO normalizes, the others do not.
    optimizer: `rms_prop` or `adam`.
    rms_prop_decay: decay of RMSProp's moving mean square of gradients.
    decayed_hyperparameters: names of the hyperparameters that are annealed
      linearly over `learning_rate_decay_steps` updates.
    decayed_to: the share of their values at which these end.
    loss_reduction: `sum` or `mean` over the transitions of an optimizer step;
      `max_gradient_norm` must suit it.
    num_epochs: passes over the batch in each update.
    num_minibatches: optimizer steps in an epoch, each on an equal share of the
      batch's sequences.
    max_skipped_updates: number of consecutive updates with a non-finite
      gradient after which the learner raises an error.
    max_queue_size: maximum number of trajectories in the queue; None for a
      batch, at least 32.
    replay_capacity: number of past trajectories kept for auxiliary tasks.
    prioritize_replay: whether to sample these in proportion to their errors
      when last replayed, with importance weights as in R2D2 (Kapturowski et
      al., 2019), instead of uniformly. Not available with Reverb.
    reward_prediction_capacity: minimum number of sequences kept for reward
      prediction, separately for zero and for nonzero rewards.
    reward_prediction_length: number of observations in such a sequence.
    reward_prediction_period: timesteps between the ends of two sequences.
    reward_prediction_threshold: absolute value up to which a reward counts as
      zero.
    delta_encode: whether to store frames as differences, which compress better.
    prefetch_size: number of batches prefetched to the device.
    replay_timeout_s: time in seconds that the queue may take to accept or yield
      an item.
    image_period: updates between two logs of images, see `images`; 0 disables
      them. The device runtime logs none.
  """

  # Name of the agent.
  name: ClassVar[str] = 'actor_critic'

  learning_rate: Scalar = 2e-3
  learning_rate_decay_steps: Scalar = math.inf
  rms_prop_epsilon: Scalar = 1e-3
  max_gradient_norm: Scalar = 0.5
  discount: Scalar = 0.99
  max_abs_reward: Scalar = math.inf
  baseline_cost: Scalar = 0.5
  entropy_cost: Scalar = 0.01
  pixel_control_cost: Scalar = 0.05
  pixel_control_discount: Scalar = 0.9
  reward_prediction_cost: Scalar = 1.0
  value_replay_cost: Scalar = 1.0
  off_policy_cost: Scalar = 1.0
  replay_priority_exponent: Scalar = 0.9
  replay_importance_exponent: Scalar = 0.6

  # Parts of the user's own.
  network: NetworkFactory | None = None
  loss: policy_loss.PolicyLoss | None = None
  tasks: tuple[auxiliary.AuxiliaryTask, ...] = ()

  internal_rewards_prior: InternalRewardsPrior | None = (
    hyperparameters_lib.Constant(1.0)
  )

  entry_encodings: Mapping[str, str] = dataclasses.field(default_factory=dict)

  # Smallest and largest value of each hyperparameter; those not listed must be
  # non-negative.
  bounds: ClassVar[Mapping[str, tuple[float, float]]] = bounds_lib.BOUNDS

  # Auxiliary tasks.
  use_pixel_control: bool = False
  use_reward_prediction: bool = False
  use_value_replay: bool = False
  use_off_policy: bool = False
  frame_entry: str | None = None
  cell_size: int = 4
  crop_size: tuple[int, int] | None = None

  # Trajectories.
  sequence_length: int = 32
  batch_size: int = 4

  # Normalization.
  normalize_observations: bool = False
  normalize_returns: bool = False
  normalize_advantages: bool | None = None

  # Optimizer.
  optimizer: str = 'adam'
  rms_prop_decay: float = 0.99
  decayed_hyperparameters: tuple[str, ...] = ('learning_rate',)
  decayed_to: float = 0.0
  loss_reduction: str = 'mean'
  num_epochs: int = 1
  num_minibatches: int = 1
  max_skipped_updates: int = 25

  # Replay.
  max_queue_size: int | None = None
  replay_capacity: int = 100
  prioritize_replay: bool = False
  reward_prediction_capacity: int = 800
  reward_prediction_length: int = 3
  reward_prediction_period: int = 1
  reward_prediction_threshold: float = 0.0
  delta_encode: bool = False
  prefetch_size: int = 1
  replay_timeout_s: float = 60.0

  image_period: int = 0

  def __post_init__(self) -> None:
    """Checks each option and the combinations of options."""
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      is_count = (
        isinstance(field.default, int)
        and field.name not in self._hyperparameters
      )
      if is_count and not isinstance(value, int | np.integer):
        raise ValueError(
          f'{field.name} ({value!r}) must be an integer; choose'
          f' {field.default}.'
        )
    for entry, encoding in self.entry_encodings.items():
      if encoding not in encodings.ENCODINGS:
        raise ValueError(
          f'entry_encodings[{entry!r}] ({encoding!r}) must be one of'
          f' {encodings.ENCODINGS}; choose one.'
        )
    for name in ('network', 'loss'):
      value = getattr(self, name)
      if value is not None and not callable(value):
        raise ValueError(
          f'{name} ({value!r}) must be a function, which a record only names;'
          ' pass the function in Python.'
        )
    self._check_sizes()
    for name in (
      'sequence_length',
      'num_epochs',
      'num_minibatches',
      'max_skipped_updates',
      'replay_capacity',
      'reward_prediction_capacity',
      'reward_prediction_length',
      'reward_prediction_period',
    ):
      value = getattr(self, name)
      if value < 1:
        raise ValueError(f'{name} ({value}) must be at least 1; choose 1.')
    if not 0.0 <= self.reward_prediction_threshold < math.inf:
      raise ValueError(
        f'reward_prediction_threshold ({self.reward_prediction_threshold}) must'
        ' be finite and not negative, like the absolute rewards that it is'
        ' compared with; choose 0.'
      )
    if self.image_period < 0:
      raise ValueError(
        f'image_period ({self.image_period}) must not be negative; choose 0 for'
        ' no images.'
      )
    self._check_optimization()
    self._check_replay()
    self._check_priors()
    if self.use_off_policy and self.use_value_replay:
      raise ValueError(
        f'use_value_replay ({self.use_value_replay}) must be False with'
        ' use_off_policy=True, which learns the value from the same'
        ' trajectories; turn one of the two off.'
      )

  def _check_sizes(self) -> None:
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if value is not None and field.name.endswith(('_size', '_sizes')):
        for size in value if isinstance(value, tuple | list) else (value,):
          if not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(
              f'{field.name} ({value!r}) must be at least 1; choose'
              f' {field.default!r}.'
            )

  def _check_replay(self) -> None:
    if self.queue_size < self.batch_size:
      raise ValueError(
        f'batch_size ({self.batch_size}) must not be above max_queue_size'
        f' ({self.max_queue_size}), or the queue could never fill a batch;'
        f' choose max_queue_size={2 * self.batch_size}.'
      )
    if self.reward_prediction_length > self.sequence_length:
      raise ValueError(
        f'reward_prediction_length ({self.reward_prediction_length}) must not'
        f' be above sequence_length ({self.sequence_length}), from which its'
        ' frames are taken; choose a smaller one.'
      )
    if not self.replay_timeout_s > 0.0 or math.isinf(self.replay_timeout_s):
      raise ValueError(
        f'replay_timeout_s ({self.replay_timeout_s}) must be positive and'
        ' finite, since a full queue would otherwise block forever; choose 60.'
      )

  def _check_priors(self) -> None:
    for name, is_integer in self._hyperparameters.items():
      value = getattr(self, name)
      # Equal agents compare as equal, however a fixed value is written.
      if isinstance(value, hyperparameters_lib.Constant) and not is_integer:
        object.__setattr__(self, name, value.value)
      elif isinstance(value, bool) or not (
        isinstance(value, int | float | np.number) or hasattr(value, 'sample')
      ):
        schedule = ''
        if callable(value):  # Such as one of optax.
          schedule = ' For a linear schedule, add .decayed_over(num_steps).'
        raise ValueError(
          f'{name} ({value!r}) must be a number or a prior; choose'
          f' {getattr(type(self), name)!r}.{schedule}'
        )
      elif is_integer and not _is_integer(value):
        raise ValueError(
          f'{name} ({value!r}) must be an integer or a prior of integers;'
          ' choose 10, or hyperparameters.UniformInteger(5, 20).'
        )
    rewards = self.internal_rewards_prior
    for prior in rewards if isinstance(rewards, tuple) else (rewards,):
      if prior is not None and not hasattr(prior, 'sample'):
        raise ValueError(
          f'internal_rewards_prior ({prior!r}) must be a prior; choose'
          f' hyperparameters.Constant({prior!r}).'
        )
    bounds_lib.check_priors(self._all_priors(), self.bounds)

  @property
  def _hyperparameters(self) -> Mapping[str, bool]:
    kind: Any = type(self)
    return _find_hyperparameters(kind)

  @property
  def priors(self) -> Any:
    """A NamedTuple of the prior of each hyperparameter, in field order.

    Unused hyperparameters have a single value, so that a population neither
    draws nor perturbs them.
    """
    priors = self._all_priors()
    unused = {
      name: hyperparameters_lib.fix(priors[name], self._hyperparameters[name])
      for name in self.unused_hyperparameters
    }
    make = hyperparameters_lib.make_type(tuple(priors))
    return make(**{**priors, **unused})

  @property
  def unused_hyperparameters(self) -> frozenset[str]:
    """Names of the hyperparameters that no part of the agent reads.

    A network, loss or task of the user's own may read any of them.
    """
    if self.network or self.loss or self.tasks:
      return frozenset()
    return frozenset(name for name, reads in self._reads.items() if not reads)

  @property
  def _reads(self) -> dict[str, bool]:
    """Whether the agent reads the hyperparameters that only some parts do."""
    prioritizes = self.prioritize_replay and (
      self.use_value_replay or self.use_off_policy
    )
    return {
      'rms_prop_epsilon': self.optimizer == 'rms_prop',
      'pixel_control_cost': self.use_pixel_control,
      'pixel_control_discount': self.use_pixel_control,
      'reward_prediction_cost': self.use_reward_prediction,
      'value_replay_cost': self.use_value_replay,
      'off_policy_cost': self.use_off_policy,
      'replay_priority_exponent': prioritizes,
      'replay_importance_exponent': prioritizes,
    }

  def _all_priors(self) -> dict[str, hyperparameters_lib.Prior]:
    return {
      name: hyperparameters_lib.as_prior(getattr(self, name), is_integer)
      for name, is_integer in self._hyperparameters.items()
    }

  @property
  def controls_signal(self) -> bool:
    """Whether pixel control acts on a signal [length, channels]."""
    return False

  @property
  def queue_size(self) -> int:
    """Maximum number of trajectories in the queue."""
    return self.max_queue_size or max(32, self.batch_size)

  @property
  def steps_per_update(self) -> int:
    """Number of optimizer steps in an update."""
    return self.num_epochs * self.num_minibatches

  def decayed_over(
    self: _Config, num_steps: float, members: int = 1
  ) -> _Config:
    """Returns a copy that decays over so many steps of all members together."""
    steps_per_update = members * self.batch_size * self.sequence_length
    return self.replace(
      learning_rate_decay_steps=max(1.0, num_steps / steps_per_update)
    )

  def _check_optimization(self) -> None:
    for name, choices in (
      ('optimizer', ('rms_prop', 'adam')),
      ('loss_reduction', ('sum', 'mean')),
    ):
      value = getattr(self, name)
      if value not in choices:
        raise ValueError(
          f'{name} ({value!r}) must be one of {choices}; choose one.'
        )
    if self.batch_size % self.num_minibatches:
      raise ValueError(
        f'num_minibatches ({self.num_minibatches}) must divide batch_size'
        f' ({self.batch_size}), since minibatches are whole sequences; choose'
        f' num_minibatches={math.gcd(self.num_minibatches, self.batch_size)}.'
      )
    if not 0.0 <= self.decayed_to <= 1.0:
      raise ValueError(
        f'decayed_to ({self.decayed_to}) must be a share in [0, 1]; choose 0.1'
        ' for a tenth of the first value.'
      )
    for name in self.decayed_hyperparameters:
      if name not in self._hyperparameters:
        raise ValueError(
          f'decayed_hyperparameters ({name!r}) must be among the'
          f' hyperparameters; choose from {list(self._hyperparameters)}.'
        )

  def make_network(
    self, environment_spec: types.EnvironmentSpec
  ) -> types.RecurrentNetwork:
    """Makes the agent's network for an environment.

    Raises:
      ValueError: if the config names entries that the observation does not
        have, or the frame does not suit pixel control.
    """
    if self.network is not None:
      return self.network(environment_spec, self)
    return self._default_network(environment_spec)

  def make_policy(
    self,
    network: types.RecurrentNetwork,
    environment_spec: types.EnvironmentSpec,
    evaluation: bool = False,
  ) -> types.ActorCore:
    """Makes the functions of an actor, greedy in evaluation."""
    return acting.make_actor_core(network, environment_spec, greedy=evaluation)

  def make_tasks(self) -> tuple[auxiliary.AuxiliaryTask, ...]:
    """Makes the tasks that are learned in addition to policy and value."""
    return (*tasks_lib.make_tasks(self), *self.tasks)

  def make_learner_core(
    self,
    network: types.RecurrentNetwork,
    environment_spec: types.EnvironmentSpec,
  ) -> types.LearnerCore:
    """Makes the functions of a learner."""
    return learning.make_learner_core(
      network,
      self.loss_fn,
      self,
      self.make_tasks(),
      internal_rewards.num_events(environment_spec.rewards),
      self.targets_fn,
      environment_spec.observations,
    )

  @property
  def loss_fn(self) -> policy_loss.PolicyLoss:
    """Loss of one stream of transitions; see `losses.policy_loss`."""
    return self.loss or self._default_loss

  @property
  def targets_fn(self) -> policy_loss.MakeTargets | None:
    """Computes targets of the loss on the whole batch, if it needs any."""
    return None

  @property
  def _default_loss(self) -> policy_loss.PolicyLoss:
    raise NotImplementedError

  def _default_network(
    self, environment_spec: types.EnvironmentSpec
  ) -> types.RecurrentNetwork:
    raise NotImplementedError

  def sample_hyperparameters(self, key: types.Key) -> types.Hyperparameters:
    """Samples hyperparameters from their priors."""
    return hyperparameters_lib.sample(key, self.priors)

  def make_internal_rewards_prior(
    self, num_events: int
  ) -> InternalRewardsPrior:
    """Returns the prior of the agent's rewards for `num_events` events."""
    del num_events
    if self.internal_rewards_prior is None:
      return hyperparameters_lib.Constant(1.0)
    return self.internal_rewards_prior


def _is_integer(value: Any) -> bool:
  if isinstance(value, hyperparameters_lib.UniformInteger):
    return True
  return isinstance(value, int | np.integer)
