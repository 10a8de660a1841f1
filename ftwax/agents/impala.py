"""IMPALA (Espeholt et al., 2018, arXiv:1802.01561).

Actors with lagging parameters, a queue of trajectories, and a learner that
corrects the lag by V-trace. As an agent of the family it is a set of defaults,
a recurrent network and the V-trace loss.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from ftwax import hyperparameters, types
from ftwax.agents.actor_critic import builder
from ftwax.agents.actor_critic import config as config_lib
from ftwax.losses import vtrace
from ftwax.networks import (
  cores,
  embeddings,
  recurrent,
  recurrent_cores,
  torsos,
)

# The loss of one stream; `agents.actor_critic` weighs and sums its terms.
policy_loss = vtrace.vtrace_loss


@dataclasses.dataclass(frozen=True)
class IMPALAConfig(config_lib.ActorCriticConfig):
  """Options of IMPALA; see `ActorCriticConfig` for the rest.

  The priors are constants: the paper's values for Atari (appendix G), but for
  rewards, which are not clipped, and RMSProp's epsilon and learning rate,
  which suit small batches and small tasks as well.

  Attributes:
    image_torso: `shallow` or `deep`, the paper's two, `ftw`, `nature`, or
      `a3c` for frames of 42x42.
    vector_hidden_sizes: layers of the MLP for what is no image.
    core: `lstm`, `gru` or `feed_forward`.
    hidden_size: units of the core.
    forget_bias: of the LSTM; see `recurrent_cores.LSTM`.
  """

  priors: Any = config_lib.Hyperparameters(
    learning_rate=hyperparameters.Constant(1e-3),
    learning_rate_decay_steps=hyperparameters.Constant(float('inf')),
    rms_prop_epsilon=hyperparameters.Constant(1e-3),
    max_gradient_norm=hyperparameters.Constant(40.0),
    discount=hyperparameters.Constant(0.99),
    max_abs_reward=hyperparameters.Constant(float('inf')),
    baseline_cost=hyperparameters.Constant(0.5),
    entropy_cost=hyperparameters.Constant(0.01),
  )

  # Network.
  image_torso: str = 'shallow'
  vector_hidden_sizes: tuple[int, ...] = (64,)
  core: str = 'lstm'
  hidden_size: int = 256
  forget_bias: float = 1.0

  def __post_init__(self):
    """Checks the names of parts."""
    super().__post_init__()
    for name, parts in (('image_torso', _IMAGE_TORSOS), ('core', _CORES)):
      value = getattr(self, name)
      if value not in parts:
        raise ValueError(
          f'{name} ({value!r}) must be one of {sorted(parts)}; choose one or'
          ' pass a network factory of your own to the experiment.'
        )
    if self.hidden_size < 1:
      raise ValueError(
        f'hidden_size ({self.hidden_size}) must be at least 1; choose 256.'
      )


_IMAGE_TORSOS: dict[str, torsos.MakeTorso] = {
  'shallow': torsos.ShallowTorso,
  'deep': torsos.DeepTorso,
  'ftw': torsos.FTWTorso,
  'nature': torsos.NatureTorso,
  'a3c': torsos.A3CTorso,
}

_CORES: dict[str, Callable[[IMPALAConfig], cores.RecurrentCore]] = {
  'lstm': lambda config: recurrent_cores.LSTM(
    config.hidden_size, config.forget_bias
  ),
  'gru': lambda config: recurrent_cores.GRU(config.hidden_size),
  'feed_forward': lambda config: recurrent_cores.FeedForward(
    (config.hidden_size,)
  ),
}


def make_network(
  environment_spec: types.EnvironmentSpec, config: IMPALAConfig
) -> types.RecurrentNetwork:
  """Makes the agent's network for an environment.

  Args:
    environment_spec: tells observations and actions.
    config: tells torso and core.

  Returns:
    A network with a torso for each part of the observation, the core, and
    linear heads.
  """
  return recurrent.make_recurrent_network(
    environment_spec,
    make_torso=lambda: embeddings.ObservationEmbedding(
      environment_spec.observations,
      make_image_torso=_IMAGE_TORSOS[config.image_torso],
      make_vector_torso=lambda: torsos.MLPTorso(config.vector_hidden_sizes),
    ),
    make_core=lambda: _CORES[config.core](config),
  )


def make_builder(config: IMPALAConfig) -> builder.ActorCriticBuilder:
  """Makes the agent's builder."""
  return builder.ActorCriticBuilder(config, policy_loss)
