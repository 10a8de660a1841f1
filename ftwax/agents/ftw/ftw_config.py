"""The For-The-Win agent: its options, network, losses and priors.

    observation -> torso -> core -> z -> policy, value, pixel control
                     |
                     `-> reward prediction

The core is a temporal hierarchy, with or without a shared memory, or a plain
LSTM; see `networks.rpth`. The agent minimizes

  L = L_V-trace policy + baseline_cost L_V-trace value - entropy_cost entropy
    + pixel_control_cost L_pixel control + reward_prediction_cost L_prediction
    + kl_posterior_prior_cost KL(Q || P) + kl_prior_fixed_cost KL(P || N(0, s))

(supplement, section "Agent objective"), summed over time and batch, with one
RMSProp step per update. This is the setting of `FTWConfig.paper`; the default
policy loss is PPO's. Rewards are the agent's own: a sum of the environment's
events weighted by its internal rewards. All costs, the slow core's period and
the internal rewards are data that a population evolves.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax

from ftwax import hyperparameters, registry, types
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import auxiliary, standard, tasks
from ftwax.agents.actor_critic import bounds as bounds_lib
from ftwax.losses import clipped_surrogate, vtrace
from ftwax.losses import policy_loss as policy_loss_lib
from ftwax.networks import (
  cores,
  embeddings,
  heads,
  named_cores,
  recurrent,
  rpth,
  rpth_level,
  torsos,
)
from ftwax.networks.dnc import interfaces

Constant = hyperparameters.Constant
Initial = hyperparameters.Initial
LogUniform = hyperparameters.LogUniform
Uniform = hyperparameters.Uniform
UniformInteger = hyperparameters.UniformInteger

CORES = (*named_cores.NAMES, 'rpth', 'rpth_dnc')
POLICY_LOSSES = ('vtrace', 'ppo')

_SIZES = ('hidden_size', 'latent_size', 'embedding_size', 'head_hidden_size')


@registry.register('agent.ftw')
@dataclasses.dataclass(frozen=True)
class FTWConfig(config_lib.ActorCriticConfig):
  """Options of the agent; see `ActorCriticConfig` for the rest.

  One set of defaults learns small tasks of several kinds within minutes
  (`docs/results.md`); `paper` returns the paper's settings. Value replay, which
  the paper does not use, is off. A hyperparameter that is a number does not
  evolve.

  Attributes:
    kl_posterior_prior_cost: weight of KL(posterior || prior).
    kl_prior_fixed_cost: weight of KL(prior || N(0, 0.1^2)).
    slow_period: int32, steps between two ticks of the slow core.
    fast_to_slow_gradient_scale: scale of the gradient from the fast core into
      the slow core's output.
    gae_lambda: lambda of generalized advantage estimation with `ppo`.
    clip_epsilon: distance from 1 at which `ppo` clips probability ratios.
    value_clip: change of a value in an update of `ppo` beyond which its loss
      has no gradient; infinity for no limit.
    internal_rewards_prior: prior of the agent's reward for each event, or a
      tuple with one prior for each event. None: uniform in [-1, 1] for a vector
      of events, as in the paper, and 1 for a scalar reward, whose sign a single
      agent could not learn.
    num_events: required length of the environment's reward vector; None accepts
      any.
    policy_loss: `ppo`, whose clipped loss tolerates several epochs of
      minibatches per update and normalizes advantages over the batch, so that
      the scale of a member's internal rewards does not affect the policy; see
      `losses.clipped_surrogate`. Or `vtrace`, as in the paper.
    core: `rpth`, `rpth_dnc` or, without KL losses, one of `named_cores` or a
      function that makes a core of the user's own.
    torso: makes a torso that replaces the agent's own; it maps an observation,
      leaves [B, ...], to features [B, num_features]. The network appends the
      previous action and reward to these.
    hidden_size: units of each core.
    latent_size: size of the hierarchy's latent variable.
    num_levels: number of cores in the hierarchy.
    memory: options of the memory of `rpth_dnc`; its `linkage` trades exactness
      for speed.
    level_options: kind, latents and clipping of the hierarchy's cores; their
      `named_cores.CoreOptions` apply to other cores as well.
    embedding_size: number of features of an observation.
    vector_hidden_sizes: layer sizes of the MLP for entries other than images.
    head_hidden_size: units of the hidden layer of each policy branch and of the
      value head.
  """

  name: ClassVar[str] = 'ftw'

  # Values that work for a single agent, from which a population explores. The
  # paper's KL costs would hold latents near their prior from the start.
  learning_rate: config_lib.Scalar = Initial(1e-3, (1e-5, 5e-3))
  rms_prop_epsilon: config_lib.Scalar = 1e-5
  entropy_cost: config_lib.Scalar = Initial(1e-2, (5e-4, 5e-2))
  pixel_control_cost: config_lib.Scalar = Initial(1e-3, (1e-4, 0.1))
  reward_prediction_cost: config_lib.Scalar = Initial(0.1, (0.01, 1.0))
  kl_posterior_prior_cost: config_lib.Scalar = Initial(1e-8, (1e-10, 1.0))
  kl_prior_fixed_cost: config_lib.Scalar = Initial(1e-8, (1e-10, 0.1))
  slow_period: config_lib.Integer = 8
  fast_to_slow_gradient_scale: config_lib.Scalar = 1.0
  gae_lambda: config_lib.Scalar = 0.95
  clip_epsilon: config_lib.Scalar = 0.2
  value_clip: config_lib.Scalar = math.inf

  internal_rewards_prior: config_lib.InternalRewardsPrior | None = None
  num_events: int | None = None
  policy_loss: str = 'ppo'

  # Network.
  core: str | named_cores.MakeCore = 'rpth'
  torso: Callable[[], Callable[[Any], types.Array]] | None = None
  hidden_size: int = 64
  latent_size: int = 16
  num_levels: int = 2
  memory: interfaces.MemoryConfig = interfaces.MemoryConfig()  # noqa: RUF009
  level_options: rpth_level.LevelOptions = rpth_level.LevelOptions(
    noise_scale=0.0, forget_bias=3.0
  )
  embedding_size: int = 64
  vector_hidden_sizes: tuple[int, ...] = (64,)
  head_hidden_size: int = 64

  # Auxiliary tasks.
  use_pixel_control: bool = True
  use_reward_prediction: bool = True

  # Trajectories and optimizer.
  sequence_length: int = 16
  batch_size: int = 64
  num_epochs: int = 10
  num_minibatches: int = 8

  bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
    **bounds_lib.BOUNDS,
    'slow_period': (1, math.inf),
    'fast_to_slow_gradient_scale': (0.0, 1.0),
  }

  def __post_init__(self) -> None:
    """Checks names, sizes and bounds."""
    super().__post_init__()
    if self.core not in CORES and not callable(self.core):
      raise ValueError(
        f'core ({self.core!r}) must be one of {CORES}; choose one, or pass a'
        ' function that makes your own.'
      )
    if self.policy_loss not in POLICY_LOSSES:
      raise ValueError(
        f'policy_loss ({self.policy_loss!r}) must be one of {POLICY_LOSSES};'
        ' choose one.'
      )
    core = self.level_options.core if self._is_hierarchical else self.core
    if isinstance(core, str):
      named_cores.prepare(core, self.hidden_size, self.level_options)

  @classmethod
  def paper(cls, **options: Any) -> 'FTWConfig':
    """Returns the settings of the paper, meant for about 2e9 steps.

    Each update takes one RMSProp step on the sum of V-trace's losses, without
    gradient clipping. Priors are those of the paper's population (supplement,
    table of hyperparameters), and all layers have 256 units.

    Args:
      **options: override these settings or add to them.
    """
    settings: dict[str, Any] = {
      'learning_rate': LogUniform(1e-5, 5e-3),
      'max_gradient_norm': math.inf,
      'entropy_cost': LogUniform(5e-4, 1e-2),
      'pixel_control_cost': LogUniform(0.01, 0.1),
      'reward_prediction_cost': LogUniform(0.1, 1.0),
      'kl_posterior_prior_cost': LogUniform(1e-3, 1.0),
      'kl_prior_fixed_cost': LogUniform(1e-4, 0.1),
      'slow_period': UniformInteger(5, 20),
      'fast_to_slow_gradient_scale': LogUniform(0.1, 1.0),
      'internal_rewards_prior': None,
      'policy_loss': 'vtrace',
      'hidden_size': 256,
      'latent_size': 256,
      'embedding_size': 256,
      'vector_hidden_sizes': (256,),
      'head_hidden_size': 256,
      'level_options': rpth_level.LevelOptions(),
      'sequence_length': 20,
      'batch_size': 16,
      'optimizer': 'rms_prop',
      'rms_prop_decay': 0.99,
      'loss_reduction': 'sum',
      'num_epochs': 1,
      'num_minibatches': 1,
    }
    return cls(**{**settings, **options})

  def with_size(self, size: int) -> 'FTWConfig':
    """Returns a copy with `size` units in each core, layer and latent."""
    sizes = dict.fromkeys(_SIZES, size)
    return self.replace(**sizes, vector_hidden_sizes=(size,))

  def make_internal_rewards_prior(
    self, num_events: int
  ) -> config_lib.InternalRewardsPrior:
    """Returns the prior of the agent's rewards for `num_events` events.

    Raises:
      ValueError: if the config requires another number of events.
    """
    if self.num_events not in (None, num_events):
      raise ValueError(
        f'num_events ({self.num_events}) must be the number of entries of the'
        f" environment's reward, {num_events}; choose num_events={num_events}"
        ' or None, or an environment with this many events.'
      )
    if self.internal_rewards_prior is not None:
      return self.internal_rewards_prior
    return Constant(1.0) if num_events == 1 else Uniform(-1.0, 1.0)

  def make_tasks(self) -> tuple[auxiliary.AuxiliaryTask, ...]:
    """Makes the tasks of the options and, for a hierarchy, its KL losses."""
    rest = super().make_tasks()
    return (tasks.latent_kl_task(), *rest) if self._is_hierarchical else rest

  @property
  def _reads(self) -> dict[str, bool]:
    of_hierarchy = self._is_hierarchical or callable(self.core)
    of_ppo = self.policy_loss == 'ppo'
    return {
      **super()._reads,
      'kl_posterior_prior_cost': of_hierarchy,
      'kl_prior_fixed_cost': of_hierarchy,
      'slow_period': of_hierarchy,
      'fast_to_slow_gradient_scale': of_hierarchy,
      'gae_lambda': of_ppo,
      'clip_epsilon': of_ppo,
      'value_clip': of_ppo,
    }

  @property
  def targets_fn(self) -> policy_loss_lib.MakeTargets | None:
    """Computes the advantages of `ppo`, which are normalized by default."""
    if self.policy_loss != 'ppo':
      return None
    if self.normalize_advantages is False:
      return clipped_surrogate.make_plain_targets
    return clipped_surrogate.make_targets

  @property
  def _default_loss(self) -> policy_loss_lib.PolicyLoss:
    if self.policy_loss == 'ppo':
      return clipped_surrogate.ppo_loss
    return functools.partial(
      vtrace.vtrace_loss, normalize_advantages=bool(self.normalize_advantages)
    )

  @property
  def _is_hierarchical(self) -> bool:
    return self.core in ('rpth', 'rpth_dnc')

  def _default_network(
    self, environment_spec: types.EnvironmentSpec
  ) -> types.RecurrentNetwork:
    network = recurrent.make_recurrent_network(
      environment_spec,
      make_torso=self.torso
      or functools.partial(self._make_torso, environment_spec),
      make_core=self._make_core,
      head_options=heads.HeadOptions(
        policy_hidden_sizes=(self.head_hidden_size,),
        value_hidden_sizes=(self.head_hidden_size,),
      ),
      auxiliary_heads=standard.make_heads(environment_spec, self),
      example_hyperparameters=self.sample_hyperparameters(
        jax.random.PRNGKey(0)
      ),
    )
    if self.torso is not None or callable(self.core):
      # Trace custom parts now, so that a mismatch raises here.
      jax.eval_shape(network.init, jax.random.PRNGKey(0))
    return network

  def _make_torso(
    self, environment_spec: types.EnvironmentSpec
  ) -> embeddings.ObservationEmbedding:
    return embeddings.ObservationEmbedding(
      environment_spec.observations,
      make_image_torso=lambda: torsos.FTWTorso(self.embedding_size),
      make_vector_torso=lambda: torsos.MLPTorso(self.vector_hidden_sizes),
      entry_encodings=self.entry_encodings,
    )

  def _make_core(self) -> cores.RecurrentCore:
    if callable(self.core):
      return self.core()
    if self.core in named_cores.NAMES:
      return named_cores.prepare(
        self.core, self.hidden_size, self.level_options
      )()
    return rpth.RPTH(
      rpth.RPTHConfig(
        hidden_sizes=(self.hidden_size,) * self.num_levels,
        latent_size=self.latent_size,
        memory=self.memory if self.core == 'rpth_dnc' else None,
        level_options=self.level_options,
      )
    )
