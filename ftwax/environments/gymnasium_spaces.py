"""Converts Gymnasium spaces to specs, and their values.

Observations keep their structure and dtypes, except that 64 bits become 32, the
widest type that JAX uses by default. Actions become parts: `Discrete` is one
discrete part, `MultiDiscrete` and `MultiBinary` are tuples of discrete parts, a
`Box` of floats is one vector, and `Dict` and `Tuple` nest.

Converters accept values of a single environment and values with leading axes,
as stacked by Gymnasium's vector environments.
"""

import functools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias, TypeGuard

import numpy as np
from dm_env import specs
from gymnasium import spaces

from ftwax import types
from ftwax.environments import specified, validation

_NARROWED = {
  np.dtype(np.float64): np.dtype(np.float32),
  np.dtype(np.int64): np.dtype(np.int32),
  np.dtype(np.uint64): np.dtype(np.uint32),
}

Space: TypeAlias = spaces.Space[Any]

# Converts a value of a space to a value of a spec, or back.
Convert = Callable[[Any], Any]


def make_spec(
  observation_space: Space, action_space: Space
) -> types.EnvironmentSpec:
  """Returns the spec of an environment with these spaces and scalar rewards.

  Raises:
    ValueError: if a space cannot be expressed as a spec.
  """
  return specified.make_spec(
    observation_spec(observation_space, 'observation_space'),
    action_spec(action_space, 'action_space'),
  )


def observation_spec(space: Space, name: str) -> types.SpecTree:
  """Returns the specs of the observations in `space`.

  Args:
    space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of
      these. A `Discrete` that starts at 0 becomes a `specs.DiscreteArray`;
      other spaces become a `specs.BoundedArray`.
    name: name of the space, for specs and messages.

  Raises:
    ValueError: if a space is of another kind, or its bounds do not fit the
      dtype of the spec.
  """
  return _map_space(_observation_leaf, space, name)


def make_encoder(space: Space) -> Convert:
  """Returns a function that converts Gymnasium observations to the spec.

  Its result shares no memory with its argument.
  """
  return _make_converter(
    lambda part: functools.partial(np.array, dtype=_dtype(part)), space
  )


def find_fault(space: Space, value: Any, name: str) -> tuple[str, str, str]:
  """Returns why a value cannot be converted: part, value, and demand.

  Args:
    space: space of the value.
    value: a value at which the function of `make_encoder` fails.
    name: name of the value.
  """
  text = f'a {type(value).__name__}'
  if isinstance(space, spaces.Dict):
    if not isinstance(value, Mapping):
      return name, text, f'be a dict with the entries {sorted(space.spaces)}'
    for key, part in space.spaces.items():
      own = f'{name}[{key!r}]'
      if key not in value:
        return own, 'absent', 'be there at every step'
      if _cannot_convert(part, value[key]):
        return find_fault(part, value[key], own)
  if isinstance(space, spaces.Tuple):
    num_parts = len(space.spaces)
    if not isinstance(value, tuple | list) or len(value) != num_parts:
      if isinstance(value, tuple | list):
        text = f'{len(value)} parts'
      return name, text, f'be a tuple of {num_parts} parts'
    for index, part in enumerate(space.spaces):
      if _cannot_convert(part, value[index]):
        return find_fault(part, value[index], f'{name}[{index}]')
  return name, f'{value!r:.60}', f'be of {space}'


def fail(name: str, fault: tuple[str, str, str], step: int) -> NoReturn:
  """Raises the error of a fault of `find_fault`, with the step."""
  part, value, demand = fault
  remedy = 'return all parts of the observation_space, as they are there'
  seen = f' Seen at step {step}.'
  validation.fail(name, part, value, demand, remedy, seen)


def _cannot_convert(space: Space, value: Any) -> bool:
  try:
    make_encoder(space)(value)
  except (KeyError, OverflowError, TypeError, ValueError):
    return True
  return False


def action_spec(space: Space, name: str) -> types.SpecTree:
  """Returns the specs of the actions in `space`.

  Args:
    space: Discrete, MultiDiscrete, MultiBinary, a Box of floats, whose values
      become float32 vectors, or a Dict or Tuple of these.
    name: name of the space, for specs and messages.

  Raises:
    ValueError: if a space is of another kind.
  """
  return _map_space(_action_leaf, space, name)


def make_decoder(space: Space) -> Convert:
  """Returns a function that converts actions of the spec to Gymnasium's."""
  return _make_converter(_make_leaf_decoder, space)


def make_action_encoder(space: Space) -> Convert:
  """Returns a function that converts Gymnasium's actions to those of the spec.

  It is the inverse of `make_decoder`, for actions with one leading axis.
  """
  return _make_converter(_make_leaf_encoder, space)


def to_text(observation_space: Space, action_space: Space) -> str:
  """Returns two spaces as JSON, for `make_converters`."""
  return json.dumps([_to_plain(observation_space), _to_plain(action_space)])


def make_converters(text: str) -> tuple[Convert, Convert]:
  """Returns the encoder and the decoder of what `to_text` wrote.

  Raises:
    ValueError: if the text is damaged.
  """
  try:
    observation_space, action_space = map(_from_plain, json.loads(text))
  except (AssertionError, KeyError, TypeError, ValueError) as error:
    raise ValueError(
      f'spaces ({text:.40}) must be those of a Gymnasium environment ({error});'
      ' restore the file from a copy.'
    ) from None
  return make_encoder(observation_space), make_decoder(action_space)


# Entries of a recorded Box, which may be a stranger's.
_MAX_SIZE = 2**26

# What makes each kind of space, apart from nested ones.
_FIELDS = {
  'Box': ('low', 'high', 'shape', 'dtype'),
  'Discrete': ('n', 'start', 'dtype'),
  'MultiDiscrete': ('nvec', 'start', 'dtype'),
  'MultiBinary': ('n',),
}


def _to_plain(space: Space) -> Any:
  if isinstance(space, spaces.Dict):
    return {'Dict': {k: _to_plain(part) for k, part in space.spaces.items()}}
  if isinstance(space, spaces.Tuple):
    return {'Tuple': [_to_plain(part) for part in space.spaces]}
  kind = next(
    name for name in _FIELDS if isinstance(space, getattr(spaces, name))
  )

  def plain(value: Any) -> Any:
    if isinstance(value, np.dtype):
      return value.name
    value = np.asarray(value)
    is_uniform = value.ndim > 0 and value.size > 0 and kind == 'Box'
    if is_uniform and (value == value.flat[0]).all():
      return value.flat[0].item()  # Images would fill the file.
    return value.tolist()

  shape = {'shape': list(space.shape or ())} if kind == 'Box' else {}
  names = [name for name in _FIELDS[kind] if name != 'shape']
  return {kind: {**{n: plain(getattr(space, n)) for n in names}, **shape}}


def _from_plain(plain: Any) -> Space:
  ((kind, value),) = plain.items()
  if kind == 'Dict':
    return spaces.Dict({k: _from_plain(part) for k, part in value.items()})
  if kind == 'Tuple':
    return spaces.Tuple([_from_plain(part) for part in value])
  fields = {name: value[name] for name in _FIELDS[kind]}
  if 'dtype' in fields:
    fields['dtype'] = np.dtype(fields['dtype']).type
  if kind == 'Box':
    shape = tuple(fields['shape'])
    if math.prod(shape) > _MAX_SIZE:
      raise ValueError(f'a Box of shape {shape} is too large')
    for name in ('low', 'high'):
      bound = np.asarray(fields[name], fields['dtype'])
      fields[name] = np.broadcast_to(bound, shape).copy()
  elif kind == 'MultiDiscrete':
    for name in ('nvec', 'start'):
      fields[name] = np.asarray(fields[name])
  made: Space = getattr(spaces, kind)(**fields)
  return made


def _map_space(
  make_spec: Callable[[Space, str], types.SpecTree],
  space: Space,
  name: str,
) -> types.SpecTree:
  if isinstance(space, spaces.Dict):
    return {
      key: _map_space(make_spec, part, f'{name}[{key!r}]')
      for key, part in space.spaces.items()
    }
  if isinstance(space, spaces.Tuple):
    return tuple(
      _map_space(make_spec, part, f'{name}[{index}]')
      for index, part in enumerate(space.spaces)
    )
  return make_spec(space, name)


def _make_converter(
  make_leaf: Callable[[Space], Convert], space: Space
) -> Convert:
  if isinstance(space, spaces.Dict):
    by_key = {
      key: _make_converter(make_leaf, part)
      for key, part in space.spaces.items()
    }
    return lambda value: {
      key: convert(value[key]) for key, convert in by_key.items()
    }
  if isinstance(space, spaces.Tuple):
    in_order = [_make_converter(make_leaf, part) for part in space.spaces]
    return lambda value: tuple(
      convert(part) for convert, part in zip(in_order, value, strict=True)
    )
  return make_leaf(space)


def _observation_leaf(space: Space, name: str) -> types.SpecTree:
  if isinstance(space, spaces.Discrete):
    if space.start == 0:
      return specs.DiscreteArray(int(space.n), np.int32, name)
    return _bounded(space, space.start, space.start + space.n - 1, name)
  if isinstance(space, spaces.MultiDiscrete):
    return _bounded(space, space.start, space.start + space.nvec - 1, name)
  if isinstance(space, spaces.MultiBinary):
    return _bounded(space, np.int8(0), np.int8(1), name)
  if isinstance(space, spaces.Box):
    return _bounded(space, space.low, space.high, name)
  raise ValueError(
    f'{name} ({space}) must be Box, Discrete, MultiDiscrete, MultiBinary, or a'
    ' Dict or Tuple of these; convert it with a gymnasium.ObservationWrapper.'
  )


def _action_leaf(space: Space, name: str) -> types.SpecTree:
  if isinstance(space, spaces.Discrete):
    return specs.DiscreteArray(int(space.n), np.int32, name)
  if _is_continuous(space):
    return specs.BoundedArray(
      space.low.ravel().shape,
      np.float32,
      space.low.ravel().astype(np.float32),
      space.high.ravel().astype(np.float32),
      name,
    )
  if isinstance(space, spaces.MultiDiscrete):
    num_choices = space.nvec.ravel()
  elif isinstance(space, spaces.MultiBinary):
    num_choices = np.full(np.prod(space.shape, dtype=int), 2)
  else:
    raise ValueError(
      f'{name} ({space}) must be Discrete, MultiDiscrete, MultiBinary, a Box of'
      ' floats, or a Dict or Tuple of these; convert it with a'
      ' gymnasium.ActionWrapper.'
    )
  return tuple(
    specs.DiscreteArray(int(num), np.int32, f'{name}[{index}]')
    for index, num in enumerate(num_choices)
  )


def _is_continuous(space: Space) -> TypeGuard[spaces.Box]:
  return isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == 'f'


def _bounded(
  space: Space, low: Any, high: Any, name: str
) -> specs.BoundedArray:
  dtype = _dtype(space)
  if dtype.kind in 'iu':
    info = np.iinfo(dtype)
    least, most = int(np.min(low, initial=0)), int(np.max(high, initial=0))
    if least < info.min or most > info.max:
      raise ValueError(
        f'{name} ({space}) must have bounds that fit {dtype}; narrow it with a'
        ' gymnasium.ObservationWrapper.'
      )
  # The largest float64 means unbounded and becomes infinite in float32.
  with np.errstate(over='ignore'):
    return specs.BoundedArray(
      space.shape, dtype, low.astype(dtype), high.astype(dtype), name
    )


def _dtype(space: Space) -> np.dtype[Any]:
  dtype = np.dtype(space.dtype)
  return _NARROWED.get(dtype, dtype)


def _make_leaf_decoder(space: Space) -> Convert:
  dtype, shape = np.dtype(space.dtype), space.shape or ()
  if isinstance(space, spaces.Discrete):
    first = space.start
    if first == 0:
      return dtype.type  # Without a call of Python.
    return lambda value: np.asarray(value, dtype) + first
  if _is_continuous(space):

    def decode_vector(value: Any) -> Any:
      value = np.asarray(value, dtype)
      value = value.reshape((*value.shape[:-1], *shape))
      # Rounding to float32 may have moved a value past a float64 bound.
      return np.clip(value, space.low, space.high)

    return decode_vector
  start = getattr(space, 'start', 0)

  def decode(parts: Any) -> Any:
    stacked = np.stack(parts, axis=-1).astype(dtype)
    return stacked.reshape((*stacked.shape[:-1], *shape)) + start

  return decode


def _make_leaf_encoder(space: Space) -> Convert:
  if isinstance(space, spaces.Discrete):
    first = int(space.start)
    return lambda value: (np.asarray(value) - first).astype(np.int32)
  if _is_continuous(space):

    def encode_vector(value: Any) -> Any:
      value = np.asarray(value, np.float32)
      return value.reshape((len(value), -1))

    return encode_vector
  start = np.asarray(getattr(space, 'start', 0))

  def encode(value: Any) -> Any:
    value = np.asarray(value) - start
    parts = value.reshape((len(value), -1)).astype(np.int32)
    return tuple(parts.T)

  return encode
