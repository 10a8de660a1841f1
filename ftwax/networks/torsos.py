"""The torso of an agent: what each entry of an observation passes through."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from ftwax import encodings, parts, registry, types
from ftwax.networks import embeddings, entry_torsos, layers, signal

# Torsos of images by name.
IMAGE: Mapping[str, entry_torsos.MakeTorso] = {
  'shallow': entry_torsos.ShallowTorso,
  'deep': entry_torsos.DeepTorso,
  'ftw': entry_torsos.FTWTorso,
  'nature': entry_torsos.NatureTorso,
  'a3c': entry_torsos.A3CTorso,
}

_ENTRY = (*IMAGE, 'signal', 'mlp')


@registry.register('torso')
@dataclasses.dataclass(frozen=True)
class Torso(parts.Part):
  """A torso for each entry, found from the specs; see `embeddings`.

  Attributes:
    image: torso of images: `shallow` or `deep`, both from IMPALA, `ftw`,
      `nature`, or `a3c` for 42x42 frames; or a function that makes one.
    num_features: number of features of an image; None for that of the torso.
      `a3c` has no such layer.
    hidden_sizes: layer sizes of the MLP for entries other than images.
    entries: torsos of individual observation entries, by path: an image torso,
      `signal` for signals [length, channels], or `mlp`. The path of an
      observation that is a single array is ''.
    encodings: encodings of individual entries, by path: `scaled` for pixels
      and numbers, `one_hot` or `embedding` for codes, in place of those that
      `ftwax.encodings` chooses by dtype, shape and bounds.
    activation: nonlinearity of the MLP, one of `layers.ACTIVATIONS`.
    initializer: of the MLP's matrices, `truncated_normal` or `orthogonal`.
  """

  image: str | entry_torsos.MakeTorso = 'shallow'
  num_features: int | None = parts.option(None, low=1)
  hidden_sizes: tuple[int, ...] = parts.option((64, 64), low=1)
  entries: Mapping[str, str] = dataclasses.field(default_factory=dict)
  encodings: Mapping[str, str] = dataclasses.field(default_factory=dict)
  activation: str = parts.option('relu', choices=tuple(layers.ACTIVATIONS))
  initializer: str = parts.option(
    'truncated_normal', choices=layers.INITIALIZERS
  )

  def __post_init__(self) -> None:
    """Checks the names."""
    super().__post_init__()
    parts.find('image', self.image, IMAGE)
    for name, entries, known in (
      ('entries', self.entries, _ENTRY),
      ('encodings', self.encodings, encodings.ENCODINGS),
    ):
      for entry, value in entries.items():
        if value not in known:
          raise ValueError(
            f'{name}[{entry!r}] ({value!r}) of Torso must be one of'
            f' {list(known)}; choose one.'
          )

  def make(
    self, observation_spec: types.SpecTree
  ) -> embeddings.ObservationEmbedding:
    """Makes torsos for all entries; call within a Haiku transform.

    Raises:
      ValueError: if an entry is named that the observation does not have.
    """
    make_mlp = functools.partial(
      entry_torsos.MLPTorso,
      self.hidden_sizes,
      self.activation,
      self.initializer,
    )
    return embeddings.ObservationEmbedding(
      observation_spec,
      make_image_torso=self._maker(self.image),
      make_vector_torso=make_mlp,
      make_torsos={
        entry: make_mlp if name == 'mlp' else self._maker(name)
        for entry, name in self.entries.items()
      },
      entry_encodings={
        # Torsos of images and signals get pixels and samples.
        **{
          entry: encodings.SCALED
          for entry, name in self.entries.items()
          if name != 'mlp'
        },
        **self.encodings,
      },
    )

  def with_size(self, size: int) -> 'Torso':
    """Returns a copy with `size` features in each layer."""
    return self.replace(
      num_features=None if self.image == 'a3c' else size,
      hidden_sizes=(size,) * len(self.hidden_sizes),
    )

  def _maker(
    self, image: str | entry_torsos.MakeTorso
  ) -> entry_torsos.MakeTorso:
    if image == 'signal':
      return signal.SignalTorso
    make: Any = parts.find('image', image, IMAGE)
    if self.num_features is not None:
      make = functools.partial(make, num_features=self.num_features)
    return make


# The torsos by name: each of them for all images.
NAMED: Mapping[str, Torso] = {name: Torso(name) for name in IMAGE}

find = functools.partial(parts.find, 'torso', known=NAMED)
