"""The standard network of the family.

observation -> a torso for each entry -> core -> policy, value
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ftwax import distributions, encodings, types
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import tasks
from ftwax.losses import pixel_control
from ftwax.networks import (
  auxiliary_heads,
  cores,
  embeddings,
  heads,
  layer_norm_lstm,
  named_cores,
  noisy,
  recurrent,
  recurrent_cores,
  signal,
  stacked_lstm,
  torsos,
)


@dataclasses.dataclass(frozen=True)
class StandardConfig(config_lib.ActorCriticConfig):
  """Options of the network; see `ActorCriticConfig` for the rest.

  Attributes:
    image_torso: `shallow` or `deep`, both from IMPALA, `ftw`, `nature`, or
      `a3c` for 42x42 frames.
    vector_hidden_sizes: layer sizes of the MLP for entries other than images.
    entry_torsos: torsos of individual observation entries, by path: an image
      torso, `signal` for signals [length, channels], or `mlp`. The path of an
      observation that is a single array is ''.
    core: `lstm`, `stacked_lstm`, `gru`, `lru`, `min_gru`, `gtrxl` or
      `feed_forward`, or a function that makes a core of the user's own; see
      `cores.RecurrentCore`.
    hidden_size: units of the core.
    forget_bias: forget gate bias of LSTMs; see `recurrent_cores.LSTM`.
    memory_length: steps for which memories first last; see
      `named_cores.CoreOptions`, also on the next three.
    num_layers: blocks of the core.
    num_heads: heads of the core's attention.
    window: steps before the current one that the core attends to.
    layer_norm: whether to use the LSTMs of `networks.layer_norm_lstm`, whose
      forget bias is one.
    dropout: dropout rate of the candidates of these LSTMs; zero for none.
    skip_connection: whether heads read the core's inputs as well as its
      features; see `cores.SkipConnection`.
    stacked_sizes: units of each layer of `stacked_lstm`.
    wiring: for each layer of `stacked_lstm`, the parts of the input that it
      reads in addition to the layer below: paths of observation entries,
      `previous_action` or `previous_reward`. If empty, each layer reads all.
    separate_value: whether the value has its own torsos and core.
    noise: parameter noise of both heads, `factorised` or `independent`,
      sampled for each acting step and each update; see `networks.noisy`.
  """

  image_torso: str = 'shallow'
  vector_hidden_sizes: tuple[int, ...] = (64, 64)
  entry_torsos: Mapping[str, str] = dataclasses.field(default_factory=dict)
  core: str | named_cores.MakeCore = 'lstm'
  hidden_size: int = 64
  forget_bias: float = 3.0
  memory_length: int | None = None
  num_layers: int = 1
  num_heads: int = 4
  window: int = 128
  layer_norm: bool = False
  dropout: float = 0.0
  skip_connection: bool = True
  stacked_sizes: tuple[int, ...] = (64, 256)
  wiring: tuple[tuple[str, ...], ...] = ()
  separate_value: bool = False
  noise: str | None = None

  def __post_init__(self) -> None:
    """Checks the names of the parts and their compatibility."""
    super().__post_init__()
    chosen: list[tuple[str, str | None, Collection[str | None]]] = [
      ('image_torso', self.image_torso, _IMAGE_TORSOS),
      ('noise', self.noise, (None, *noisy.KINDS)),
    ]
    if not callable(self.core):
      chosen.append(('core', self.core, CORES))
    for entry, torso in self.entry_torsos.items():
      chosen.append((f'entry_torsos[{entry!r}]', torso, _ENTRY_TORSOS))
    for name, value, parts in chosen:
      if value not in parts:
        raise ValueError(
          f'{name} ({value!r}) must be one of {list(parts)}; choose one or pass'
          ' network=..., a function that makes your own.'
        )
    if self.core in named_cores.NAMES:
      named_cores.prepare(self.core, self.hidden_size, self.core_options)
    if self.dropout and not self.layer_norm:
      raise ValueError(
        f'dropout ({self.dropout}) must be 0 without layer_norm; choose'
        ' layer_norm=True.'
      )
    for name, cores_with in (
      ('layer_norm', ('lstm', 'stacked_lstm')),
      ('wiring', ('stacked_lstm',)),
    ):
      value = getattr(self, name)
      if value and self.core not in cores_with:
        raise ValueError(
          f'core ({self.core!r}) must be one of {cores_with} with {name}'
          f' ({value!r}); choose one.'
        )

  @property
  def controls_signal(self) -> bool:
    """Whether the entry of pixel control uses the signal torso."""
    return self.entry_torsos.get(self.frame_entry or '') == 'signal'

  def make_embedding(
    self, observation_spec: types.SpecTree
  ) -> embeddings.ObservationEmbedding:
    """Makes torsos for all entries; call within a Haiku transform."""

    def make_mlp() -> torsos.MLPTorso:
      return torsos.MLPTorso(self.vector_hidden_sizes)

    known: dict[str, torsos.MakeTorso] = {
      **_IMAGE_TORSOS,
      'signal': signal.SignalTorso,
      'mlp': make_mlp,
    }
    return embeddings.ObservationEmbedding(
      observation_spec,
      make_image_torso=_IMAGE_TORSOS[self.image_torso],
      make_vector_torso=make_mlp,
      make_torsos={
        entry: known[name] for entry, name in self.entry_torsos.items()
      },
      entry_encodings={
        # Torsos of images and signals get pixels and samples.
        **{
          entry: encodings.SCALED
          for entry, name in self.entry_torsos.items()
          if name != 'mlp'
        },
        **self.entry_encodings,
      },
    )

  def make_core(
    self, input_sizes: Mapping[str, int] | None = None
  ) -> cores.RecurrentCore:
    """Makes the core; call within a Haiku transform.

    Args:
      input_sizes: see `embeddings.part_sizes`; only needed for `wiring`.
    """
    if callable(self.core):
      core = self.core()
    else:
      core = CORES[self.core](self, input_sizes or {})
    return cores.SkipConnection(core) if self.skip_connection else core

  @property
  def core_options(self) -> named_cores.CoreOptions:
    """Options of a named core."""
    return named_cores.CoreOptions(
      forget_bias=self.forget_bias,
      memory_length=self.memory_length,
      num_layers=self.num_layers,
      num_heads=self.num_heads,
      window=self.window,
    )

  @property
  def head_options(self) -> heads.HeadOptions:
    """Options of the policy and value heads."""
    return heads.HeadOptions(noise=self.noise)

  def _default_network(
    self, environment_spec: types.EnvironmentSpec
  ) -> types.RecurrentNetwork:
    def make_torso() -> embeddings.ObservationEmbedding:
      return self.make_embedding(environment_spec.observations)

    input_sizes: dict[str, int] = {}
    if self.wiring:
      input_sizes = embeddings.part_sizes(environment_spec, make_torso)
      _check_wiring(self.wiring, list(input_sizes))
    return recurrent.make_recurrent_network(
      environment_spec,
      make_torso=make_torso,
      make_core=lambda: self.make_core(input_sizes),
      head_options=self.head_options,
      separate_value=self.separate_value,
      auxiliary_heads=make_heads(environment_spec, self),
    )


# The network in the papers on A3C, UNREAL and IMPALA, for their presets.
PAPER_NETWORK: Mapping[str, Any] = {
  'image_torso': 'shallow',
  'vector_hidden_sizes': (64,),
  'core': 'lstm',
  'hidden_size': 256,
  'forget_bias': 1.0,
  'skip_connection': False,
  'separate_value': False,
}

_IMAGE_TORSOS: dict[str, torsos.MakeTorso] = {
  'shallow': torsos.ShallowTorso,
  'deep': torsos.DeepTorso,
  'ftw': torsos.FTWTorso,
  'nature': torsos.NatureTorso,
  'a3c': torsos.A3CTorso,
}

_ENTRY_TORSOS = (*_IMAGE_TORSOS, 'signal', 'mlp')


def _make_lstm(
  config: StandardConfig, hidden_size: int, name: str | None = None
) -> cores.RecurrentCore:
  if config.layer_norm:
    return layer_norm_lstm.LayerNormLSTM(
      layer_norm_lstm.LayerNormLSTMConfig(hidden_size, config.dropout), name
    )
  return recurrent_cores.LSTM(
    hidden_size, config.forget_bias, config.memory_length, name
  )


def _make_stacked_lstm(
  config: StandardConfig, sizes: Mapping[str, int]
) -> cores.RecurrentCore:
  names = list(sizes)
  return stacked_lstm.StackedLSTM(
    stacked_lstm.StackedLSTMConfig(
      config.stacked_sizes,
      tuple(sizes.values()),
      tuple(tuple(map(names.index, parts)) for parts in config.wiring),
    ),
    functools.partial(_make_lstm, config),
  )


def _make_named(
  name: str, config: StandardConfig, sizes: Mapping[str, int]
) -> cores.RecurrentCore:
  del sizes
  make = named_cores.prepare(name, config.hidden_size, config.core_options)
  return make()


# Makes a core from a config and the sizes of the input's parts by name.
_MakeCore = Callable[[StandardConfig, Mapping[str, int]], cores.RecurrentCore]

CORES: dict[str, _MakeCore] = {
  **{name: functools.partial(_make_named, name) for name in named_cores.NAMES},
  'lstm': lambda config, _: _make_lstm(config, config.hidden_size),
  'stacked_lstm': _make_stacked_lstm,
}


def _check_wiring(
  wiring: tuple[tuple[str, ...], ...], known: list[str]
) -> None:
  """Raises a ValueError if the wiring names parts that the input lacks."""
  unknown = {part for parts in wiring for part in parts} - set(known)
  if unknown:
    raise ValueError(
      f'wiring ({wiring}) must name parts of the input, and {sorted(unknown)}'
      f' are not among them; choose from {known}.'
    )


def make_heads(
  environment_spec: types.EnvironmentSpec,
  config: config_lib.ActorCriticConfig,
) -> recurrent.AuxiliaryHeads:
  """Makes a head for each auxiliary task of the config that needs one.

  Raises:
    ValueError: if the frame does not suit pixel control.
  """
  of_features: dict[str, recurrent.MakeHead] = {}
  of_observations: dict[str, recurrent.ObservationHead] = {}
  if config.use_pixel_control:
    of_features[tasks.PIXEL_CONTROL] = _pixel_control_head(
      environment_spec, config
    )
  if config.use_reward_prediction:
    of_observations[tasks.REWARD_PREDICTION] = recurrent.ObservationHead(
      auxiliary_heads.RewardPredictionHead, config.reward_prediction_length
    )
  return recurrent.AuxiliaryHeads(of_features, of_observations)


def _pixel_control_head(
  environment_spec: types.EnvironmentSpec,
  config: config_lib.ActorCriticConfig,
) -> recurrent.MakeHead:
  """Returns a factory of a head with action values for each cell."""
  entry, observations = config.frame_entry, environment_spec.observations
  frame_spec = embeddings.named_leaves(observations).get(entry or '')
  shape = encodings.image_shape(getattr(frame_spec, 'shape', ()))
  if len(shape) not in (2, 3):
    raise ValueError(
      f'frame_entry ({entry!r}) must name an image or signal of the observation'
      f' ({observations!r}) for pixel control; choose an entry, or'
      ' use_pixel_control=False if there is none.'
    )
  num_actions = distributions.num_actions(environment_spec.actions)
  if config.controls_signal:
    grid = tasks.signal_grid_shape(shape, config.cell_size, config.crop_size)
    return lambda: auxiliary_heads.SignalControlHead(num_actions, grid)
  grid = pixel_control.grid_shape(shape, config.cell_size, config.crop_size)
  return lambda: auxiliary_heads.PixelControlHead(num_actions, grid)
