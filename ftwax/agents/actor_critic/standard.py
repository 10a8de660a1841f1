"""The network that agents of the family have unless they need another.

observation -> a torso for each entry -> core -> policy, value
"""

import dataclasses
from collections.abc import Callable, Mapping

from ftwax import distributions, types
from ftwax.agents.actor_critic import config as config_lib
from ftwax.losses import pixel_control
from ftwax.networks import (
  auxiliary_heads,
  cores,
  embeddings,
  recurrent,
  recurrent_cores,
  torsos,
)


@dataclasses.dataclass(frozen=True)
class StandardConfig(config_lib.ActorCriticConfig):
  """Options of the network; see `ActorCriticConfig` for the rest.

  Attributes:
    image_torso: `shallow` or `deep`, the two of IMPALA, `ftw`, `nature`, or
      `a3c` for frames of 42x42.
    vector_hidden_sizes: layers of the MLP for what is no image.
    core: `lstm`, `gru` or `feed_forward`.
    hidden_size: units of the core.
    forget_bias: of the LSTM; see `recurrent_cores.LSTM`.
  """

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

_CORES: dict[str, Callable[[StandardConfig], cores.RecurrentCore]] = {
  'lstm': lambda config: recurrent_cores.LSTM(
    config.hidden_size, config.forget_bias
  ),
  'gru': lambda config: recurrent_cores.GRU(config.hidden_size),
  'feed_forward': lambda config: recurrent_cores.FeedForward(
    (config.hidden_size,)
  ),
}


def make_embedding(
  observation_spec: types.SpecTree, config: StandardConfig
) -> embeddings.ObservationEmbedding:
  """Makes a torso for each part of the observation, in a Haiku transform."""
  return embeddings.ObservationEmbedding(
    observation_spec,
    make_image_torso=_IMAGE_TORSOS[config.image_torso],
    make_vector_torso=lambda: torsos.MLPTorso(config.vector_hidden_sizes),
  )


def make_core(config: StandardConfig) -> cores.RecurrentCore:
  """Makes the core that the config names, in a Haiku transform."""
  return _CORES[config.core](config)


def make_network(
  environment_spec: types.EnvironmentSpec,
  config: StandardConfig,
  make_feature_heads: Mapping[str, recurrent.MakeHead] | None = None,
  observation_heads: Mapping[str, recurrent.ObservationHead] | None = None,
) -> types.RecurrentNetwork:
  """Makes a network for an environment.

  Args:
    environment_spec: tells observations and actions.
    config: tells torso and core.
    make_feature_heads: see `recurrent.make_recurrent_network`.
    observation_heads: see there.

  Returns:
    A network with a torso for each part of the observation, the core, and
    linear heads.
  """
  return recurrent.make_recurrent_network(
    environment_spec,
    make_torso=lambda: make_embedding(environment_spec.observations, config),
    make_core=lambda: make_core(config),
    make_feature_heads=make_feature_heads,
    observation_heads=observation_heads,
  )


def pixel_control_head(
  environment_spec: types.EnvironmentSpec,
  frame_entry: str | None,
  cell_size: int,
  crop_size: tuple[int, int] | None,
) -> recurrent.MakeHead:
  """Returns what makes a head with values for each cell of the frame.

  Args:
    environment_spec: tells the frame and the actions.
    frame_entry: the image in an observation that is a dict; None where the
      observation is the image.
    cell_size: see `pixel_control.grid_shape`.
    crop_size: see there.

  Raises:
    ValueError: if there is no such image, or it does not suit the cells.
  """
  frame_spec = environment_spec.observations
  if frame_entry is not None and isinstance(frame_spec, Mapping):
    frame_spec = frame_spec.get(frame_entry)
  shape = getattr(frame_spec, 'shape', ())
  if len(shape) not in (2, 3):
    raise ValueError(
      f'frame_entry ({frame_entry!r}) must name the image in the observation'
      f' ({environment_spec.observations!r}) that pixel control is of; choose'
      ' an entry, or use_pixel_control=False where there is none.'
    )
  grid_shape = pixel_control.grid_shape(shape, cell_size, crop_size)
  num_actions = distributions.num_actions(environment_spec.actions)
  return lambda: auxiliary_heads.PixelControlHead(num_actions, grid_shape)
