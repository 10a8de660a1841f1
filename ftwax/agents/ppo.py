"""Proximal policy optimization (Schulman et al., 2017, arXiv:1707.06347).

Within the family it is a set of defaults and the clipped loss, with several
epochs of minibatches per update. Minibatches are whole sequences, each with the
actor's recurrent state at its start, so that PPO trains any recurrent core. The
old policy is the behaviour policy.
"""

import dataclasses
import math
from typing import Any, ClassVar

from ftwax import parts, registry
from ftwax.agents import a2c
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import optimization
from ftwax.losses import clipped_surrogate
from ftwax.losses import policy_loss as policy_loss_lib
from ftwax.networks import cores, heads, torsos


@registry.register('agent.ppo')
@dataclasses.dataclass(frozen=True)
class PPOConfig(config_lib.ActorCriticConfig):
  """Defaults of PPO; see `ActorCriticConfig` for the options.

  One set of defaults learns small tasks of several kinds (`docs/results.md`);
  `atari_paper` returns the settings of the paper on Atari, `continuous`
  settings for robots, and `long_memory` settings for recall
  over many steps.

  Attributes:
    gae_lambda: lambda of generalized advantage estimation.
    clip_epsilon: distance from 1 at which the ratio of the new to the old
      probability is clipped.
    value_clip: change of a value in an update beyond which its loss has no
      gradient; infinity for no limit.
    advantages_over: over what `normalize_advantages` normalizes, `batch` or
      `minibatch`, as CleanRL and Stable-Baselines3 do.
  """

  name: ClassVar[str] = 'ppo'

  learning_rate: config_lib.Scalar = 1e-3
  gae_lambda: config_lib.Scalar = parts.scalar(0.95, high=1.0)
  clip_epsilon: config_lib.Scalar = 0.2
  value_clip: config_lib.Scalar = parts.scalar(math.inf, unlimited=True)
  advantages_over: str = parts.option('batch', choices=('batch', 'minibatch'))

  sequence_length: int = 16
  batch_size: int = 32
  num_epochs: int = 10
  num_minibatches: int = 8
  normalize_advantages: bool = True

  @classmethod
  def atari_paper(cls, **options: Any) -> 'PPOConfig':
    """Returns the settings of the paper on Atari (table 5).

    The paper anneals the learning rate and the clipping range to zero: to do
    so, add `.decayed_over(num_steps)`. Gradient
    clipping and normalized advantages follow the paper's implementation.

    Args:
      **options: override these settings or add to them.
    """
    settings: dict[str, Any] = {
      'learning_rate': 2.5e-4,
      'max_abs_reward': 1.0,
      'baseline_cost': 1.0,
      'clip_epsilon': 0.1,
      'decay': optimization.LinearDecay(
        names=('learning_rate', 'clip_epsilon')
      ),
      'sequence_length': 128,
      'batch_size': 8,
      'num_epochs': 3,
      'num_minibatches': 4,
      **a2c.PAPER_NETWORK,
      'core': cores.FeedForward(256),
    }
    return cls(**{**settings, **options})

  @classmethod
  def continuous(cls, **options: Any) -> 'PPOConfig':
    """Returns settings for actions that are vectors of numbers.

    Common implementations use them on MuJoCo (Huang et al., 2022, "The
    37 implementation details of PPO"): separate networks of tanh layers with
    orthogonal weights, a standard deviation of one for all states, normalized
    observations, returns and advantages, 10 epochs of minibatches of 64
    transitions of 2,048. A core with memory gets minibatches of two sequences.

    Args:
      **options: override these settings or add to them.
    """
    is_recurrent = not isinstance(
      cores.find(options.get('core', 'feed_forward')), cores.FeedForward
    )
    layers: dict[str, Any] = {'activation': 'tanh', 'initializer': 'orthogonal'}
    settings: dict[str, Any] = {
      'learning_rate': 3e-4,
      'entropy_cost': 0.0,
      'core': cores.FeedForward(64, **layers),
      'torso': torsos.Torso(hidden_sizes=(64,), **layers),
      'heads': heads.Heads(initial_log_scale=0.0, **layers),
      'skip_connection': is_recurrent,
      'separate_value': True,
      'normalize_observations': True,
      'normalize_returns': True,
      'advantages_over': 'minibatch',
      'sequence_length': 32 if is_recurrent else 128,
      'batch_size': 64 if is_recurrent else 16,
      'num_minibatches': 32,
    }
    return cls(**{**settings, **options})

  @classmethod
  def team_critic(cls, **options: Any) -> 'PPOConfig':
    """Returns settings for teams, whose critic sees the whole game.

    As in MAPPO (Yu et al., 2022, "The Surprising Effectiveness of PPO in
    Cooperative Multi-Agent Games"), the value has a network of its own, which
    reads the state that the game tells the learner, `types.PRIVILEGED`, and
    returns are normalized. The policy reads what its player sees, so an agent
    in use needs nothing else. The critic has no memory, since nothing is hidden
    from it.

    Args:
      **options: override these settings or add to them.
    """
    settings: dict[str, Any] = {
      'separate_value': True,
      'value_core': cores.FeedForward(64),
      'normalize_returns': True,
    }
    return cls(**{**settings, **options})

  @classmethod
  def long_memory(cls, episode_length: int, **options: Any) -> 'PPOConfig':
    """Returns settings for episodes whose end depends on their start.

    An unroll holds two episodes, so that most gradients reach the start, and
    observations are normalized, so that a rare cue is larger than what is seen
    all the time; `docs/which_core.md` has results.

    Args:
      episode_length: steps of an episode, about.
      **options: override these settings or add to them.
    """
    settings: dict[str, Any] = {
      'learning_rate': 3e-3,
      'core': cores.LRU(32, memory_length=10 * episode_length),
      'normalize_observations': True,
      'sequence_length': 2 * episode_length,
      'batch_size': 16,
      'num_epochs': 4,
      'num_minibatches': 4,
    }
    return cls(**{**settings, **options})

  @property
  def targets_fn(self) -> policy_loss_lib.MakeTargets | None:
    """Computes the advantages, which the whole batch may normalize."""
    if self.normalize_advantages and self.advantages_over == 'batch':
      return clipped_surrogate.make_targets
    return clipped_surrogate.make_plain_targets

  @property
  def _default_loss(self) -> policy_loss_lib.PolicyLoss:
    if self.normalize_advantages and self.advantages_over == 'minibatch':
      return clipped_surrogate.normalized_ppo_loss
    return clipped_surrogate.ppo_loss
