"""Embeddings of a network's inputs at a step as a vector for its core.

An observation may be one array or any nesting of dicts and tuples. Every entry
has its own torso. The features are concatenated in the order of the sorted
names, followed by the previous action and reward, as in the core input of
UNREAL (Jaderberg et al., 2016, arXiv:1611.05397) and FTW.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import dm_env
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import (
  continuous,
  distributions,
  encodings,
  shapes,
  trees,
  types,
)
from ftwax.networks import entry_torsos

# Names of the parts that follow the entries of an observation.
PREVIOUS_ACTION = 'previous_action'
PREVIOUS_REWARD = 'previous_reward'


class ObservationEmbedding(hk.Module):
  """Embeds each observation entry by its own torso, and concatenates them.

  Entries are named by their path, such as 'camera/left'; the name of an
  observation that is a single array is ''. Entries with both sides 16 or longer
  are images, stacked or not; everything else is a vector. Codes become one-hot
  or learned vectors, as `ftwax.encodings` chooses; those of images are joined
  to more channels. The entry `types.ACTION_MASK` is left out.
  """

  def __init__(
    self,
    observation_spec: types.SpecTree,
    *,
    make_image_torso: entry_torsos.MakeTorso = entry_torsos.FTWTorso,
    make_vector_torso: entry_torsos.MakeTorso = entry_torsos.MLPTorso,
    make_torsos: Mapping[str, entry_torsos.MakeTorso] | None = None,
    entry_encodings: Mapping[str, str] | None = None,
    name: str | None = None,
  ):
    """Makes the torsos.

    Args:
      observation_spec: specs of the observation.
      make_image_torso: makes the torso of an image.
      make_vector_torso: makes the torso of a vector.
      make_torsos: makes the torsos of individual entries of any shape, by name.
      entry_encodings: encodings of individual entries, by name, in place of
        those that `ftwax.encodings` chooses.
      name: name of the module.

    Raises:
      ValueError: if there is an unknown name or encoding, nothing to embed, or
        an entry with too many codes; see `encodings.check_size`.
    """
    super().__init__(name)
    self._specs = named_leaves(observation_spec)
    make_torsos = dict(make_torsos or {})
    entry_encodings = dict(entry_encodings or {})
    if not self._specs:
      raise ValueError(
        f'observation_spec ({observation_spec!r}) must have an entry besides'
        f' {types.ACTION_MASK!r}; add an observation for the agent.'
      )
    for argument, entries in (
      ('make_torsos', make_torsos),
      ('entry_encodings', entry_encodings),
    ):
      if unknown := sorted(entries.keys() - self._specs.keys()):
        raise ValueError(
          f'{argument} {unknown} must name entries of the observation; choose'
          f' from {list(self._specs)}.'
        )
    self._torsos, self._encoders = {}, {}
    for entry, spec in self._specs.items():
      if entry not in entry_encodings:
        encodings.check_size(entry, spec)
      encoding = entry_encodings.get(entry, encodings.choose(spec))
      self._encoders[entry] = _make_encoder(spec, encoding)
      is_image = encodings.is_image(spec)
      default = make_image_torso if is_image else make_vector_torso
      self._torsos[entry] = make_torsos.get(entry, default)()

  def __call__(self, observation: types.ArrayTree) -> types.Array:
    """Embeds an observation, leaves [B, ...], as float32 [B, num_features]."""
    return jnp.concatenate(list(self.embed(observation).values()), axis=-1)

  def embed(self, observation: types.ArrayTree) -> dict[str, types.Array]:
    """Embeds each entry, by name, in the order of concatenation."""
    leaves = named_leaves(observation)
    if leaves.keys() != self._specs.keys():
      raise ValueError(
        f'The observation ({list(leaves)}) must have the entries of its spec,'
        f' {list(self._specs)}; make the environment and its spec agree.'
      )
    shapes.check(
      'embed',
      **{
        f'observation[{entry!r}]': (
          leaf,
          ' '.join(['B', *map(str, self._specs[entry].shape)]),
        )
        for entry, leaf in leaves.items()
      },
    )
    embeddings = {}
    for entry, torso in self._torsos.items():
      embeddings[entry] = torso(self._encoders[entry](leaves[entry]))
    return embeddings


class Previous(NamedTuple):
  """What the core reads of the previous step.

  Attributes:
    action: whether it reads the previous action; None: if it has memory.
    reward: the same for the previous reward.
    reward_transform: keeps the reward in bounds; None for no transform.
  """

  action: bool | None = True
  reward: bool | None = True
  reward_transform: Callable[[types.Array], types.Array] | None = jnp.tanh

  def resolve(self, has_memory: bool) -> 'Previous':
    """Returns a copy without None in place of a choice."""
    action, reward = (
      has_memory if choice is None else choice
      for choice in (self.action, self.reward)
    )
    return Previous(action, reward, self.reward_transform)


class InputEmbedding(hk.Module):
  """Embeds observation, previous action and previous reward as one vector."""

  def __init__(
    self,
    embed_observation: Callable[[types.ArrayTree], types.Array],
    parts: Any,
    previous: Previous = Previous(),  # noqa: B008
    name: str | None = None,
  ):
    """Makes an embedding.

    Args:
      embed_observation: maps leaves [B, ...] to [B, num_features].
      parts: spec of each part of the action, or its number of choices, in the
        action's structure.
      previous: which of action and reward it appends; None counts as true.
      name: name of the module.

    Raises:
      ValueError: if `embed_observation` is an `InputEmbedding`.
    """
    super().__init__(name)
    check_torso(embed_observation)
    self._embed_observation = embed_observation
    self._parts = parts
    self._previous = previous.resolve(has_memory=True)

  def __call__(self, inputs: types.NetworkInput) -> types.Array:
    """Embeds inputs, leaves [B, ...], as float32 [B, num_features].

    A discrete part of the previous action is one-hot encoded, `types.NO_ACTION`
    as zeros. A continuous part is what the environment was told, in [-1, 1]
    where it has bounds: nothing else keeps it from growing with each step.

    Raises:
      ValueError: if the inputs do not have one batch axis.
    """
    reward = jnp.asarray(inputs.previous_reward, jnp.float32)
    shapes.check('embed', previous_reward=(reward, 'B'))
    shapes.check_leaves('embed', 'inputs', inputs, reward.shape)

    def encode(part: Any, action: types.Array) -> types.Array:
      num_choices = distributions.num_choices(part)
      if num_choices is None:
        told = continuous.to_environment(part, action)
        return continuous.from_environment(part, told)
      return jax.nn.one_hot(action, num_choices)

    embedded = [self._embed_observation(inputs.observation)]
    if self._previous.action:
      actions = jax.tree.map(encode, self._parts, inputs.previous_action)
      embedded += jax.tree.leaves(actions)
    if self._previous.reward:
      transform = self._previous.reward_transform
      reward = reward if transform is None else transform(reward)
      embedded.append(reward[:, None])  # [B, 1]
    return jnp.concatenate(embedded, axis=-1)


def check_torso(torso: Callable[[types.ArrayTree], types.Array]) -> None:
  """Raises a ValueError if a torso embeds more than the observation."""
  if isinstance(torso, InputEmbedding):
    raise ValueError(
      f'torso ({torso.name!r}) must embed only the observation, but also adds'
      ' the previous action and reward, which the network adds itself; pass the'
      ' torso inside it.'
    )


def part_sizes(
  environment_spec: types.EnvironmentSpec,
  make_embedding: Callable[[], Any],
) -> dict[str, int]:
  """Returns the sizes of the parts of an `InputEmbedding`'s vector, in order.

  Args:
    environment_spec: specs of observations and actions.
    make_embedding: makes an `ObservationEmbedding`, called inside a Haiku
      transform.

  Returns:
    Sizes by name: the entries of the observation, `PREVIOUS_ACTION` for all
    parts of the action together, and `PREVIOUS_REWARD`.
  """

  def embed() -> dict[str, types.Array]:
    observation = trees.zeros_like_spec(environment_spec.observations, (1,))
    return make_embedding().embed(observation)

  transformed = hk.transform(embed)
  key = jax.random.PRNGKey(0)
  entries = jax.eval_shape(
    lambda: transformed.apply(transformed.init(key), key)
  )
  actions = jax.tree.leaves(environment_spec.actions)
  return {
    **{name: entry.shape[-1] for name, entry in entries.items()},
    PREVIOUS_ACTION: sum(
      distributions.num_choices(part) or part.shape[0] for part in actions
    ),
    PREVIOUS_REWARD: 1,
  }


def named_leaves(tree: types.ArrayTree | types.SpecTree) -> dict[str, Any]:
  """Returns the entries of an observation by path, sorted.

  Args:
    tree: the observation or its specs; the action mask is left out.

  Returns:
    Arrays or specs by names such as 'camera/left'; '' for a single array.
  """
  if isinstance(tree, Mapping):
    tree = {key: tree[key] for key in tree if key != types.ACTION_MASK}
  return dict(_walk(tree, ()))


def scale_image(image: types.Array, spec: dm_env.specs.Array) -> types.Array:
  """Scales an image to [0, 1] by its bounds, float32 [..., *spec.shape].

  uint8 images of pixels up to 255 stay unchanged, since torsos and losses
  divide them by 255, and so do images without bounds (`continuous.is_bound`).
  """
  if not isinstance(spec, dm_env.specs.BoundedArray):
    return image
  low, high = float(np.min(spec.minimum)), float(np.max(spec.maximum))
  is_bytes = spec.dtype == np.uint8
  if (low, high) == (0.0, 255.0 if is_bytes else 1.0):
    return image
  if not (low < high and continuous.is_bound((low, high)).all()):
    return image
  return (image.astype(jnp.float32) / (high - low)) - low / (high - low)


def _make_encoder(
  spec: dm_env.specs.Array, encoding: str
) -> Callable[[types.Array], types.Array]:
  """Returns a function from an entry [B, ...] to what its torso gets."""
  is_image, shape = encodings.is_image(spec), spec.shape
  if encoding == encodings.SCALED:
    if encodings.is_picture(spec):
      return lambda leaf: encodings.to_image(shape, scale_image(leaf, spec))
    if spec.dtype == np.uint8:
      return lambda leaf: scale_image(leaf, spec)
    return lambda leaf: leaf
  num_values = encodings.count_values(spec)
  if encoding not in encodings.ENCODINGS or num_values is None:
    raise ValueError(
      f'entry_encodings ({encoding!r}) of {spec!r} must be one of'
      f' {encodings.ENCODINGS}, and {encodings.SCALED!r} without bounds of'
      ' integers; choose it.'
    )
  low = int(np.min(getattr(spec, 'minimum', 0)))
  encode = functools.partial(jax.nn.one_hot, num_classes=num_values)
  if encoding == encodings.EMBEDDING:
    encode = hk.Embed(num_values, encodings.code_size(spec))

  def to_features(codes: types.Array) -> types.Array:
    codes = encodings.to_image(shape, codes) if is_image else codes
    features = encode(jnp.asarray(codes, jnp.int32) - low)  # [B, ..., F]
    if len(shape) < 3:
      return features
    return features.reshape((*features.shape[:-2], -1))  # [B, H, W, C * F]

  return to_features


def _walk(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
  if isinstance(tree, Mapping):
    for key in sorted(tree, key=str):
      yield from _walk(tree[key], (*path, str(key)))
  elif isinstance(tree, (tuple, list)):
    for index, value in enumerate(tree):
      yield from _walk(value, (*path, str(index)))
  else:
    yield '/'.join(path), tree
