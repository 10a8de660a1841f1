"""Parts of an agent: frozen dataclasses with options and hyperparameters.

A part, such as a core or an auxiliary task, owns both. Options are static.
Hyperparameters are data: a field annotated `Scalar` or `Integer` holds a
number, which is fixed, or a prior, which a population may evolve. None turns
off what is annotated `Scalar | None`, and `Integers` are one or a tuple of
several.

The training state holds the values of an agent as a tree of the shape of its
parts. Paths in it, such as "tasks.pixel_control.cost", are the names of
hyperparameters in configurations, commands and logs. `bind` puts values into a
copy of the agent, and whatever computes takes that copy: each part reads its
own, `self.cost`. The state holds arrays alone, since states travel between
processes, in which a function of an option would be another one.

Ranges are metadata of fields, and checked here for all parts.
"""

import copy
import dataclasses
import functools
import math
import operator
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from ftwax import hyperparameters, suggestions, types

Scalar = hyperparameters.Scalar
Integer = hyperparameters.Integer

# Several hyperparameters of one field, if it holds a tuple.
Integers = Integer | tuple[Integer, ...]

# Of a hyperparameter that a part does without: None turns it off.
_OPTIONAL = Scalar | None

_NON_NEGATIVE = (0.0, math.inf)

# Largest number of repetitions that are written out one by one, such as layers,
# and most entries of a tuple.
MAX_UNROLLED = 64

# Largest integer of other options, which become sizes and counts of 32 bits.
_MAX_INTEGER = 2**31 - 1
_MAX_FLOAT = float(np.finfo(np.float32).max)


def option(
  default: Any,
  low: float | None = None,
  high: float | None = None,
  above: float | None = None,
  below: float | None = None,
  choices: Sequence[Any] = (),
  entries: int = MAX_UNROLLED,
) -> Any:
  """Returns a field that is an option with a range.

  Args:
    default: value of the field; an integer admits only integers, and None also
      None. The range applies to each entry of a tuple.
    low: smallest value.
    high: largest value; by default that of 32 bits.
    above: a number that the value must exceed.
    below: a number that must exceed the value.
    choices: the values that it may have, if not any.
    entries: the most entries of a tuple; by default those that may be unrolled.
  """
  metadata = {
    'low': low, 'high': high, 'above': above, 'below': below,
    'choices': choices, 'entries': entries,
  }  # fmt: skip
  return dataclasses.field(default=default, metadata=metadata)


def scalar(
  default: Scalar | None,
  low: float = 0.0,
  high: float = math.inf,
  unlimited: bool = False,
) -> Any:
  """Returns a field that is a hyperparameter with bounds, both inclusive.

  Without this, a hyperparameter must not be negative, and be finite.

  Args:
    default: a number or a prior; None where `Scalar | None` is annotated, for
      a part that does without, and then has no such hyperparameter.
    low: smallest value.
    high: largest value.
    unlimited: whether it may be infinite, for no limit.
  """
  metadata = {'bounds': (low, high), 'unlimited': unlimited}
  return dataclasses.field(default=default, metadata=metadata)


class Hyperparameter(NamedTuple):
  """A hyperparameter of an agent.

  Attributes:
    prior: its prior.
    bounds: smallest and largest value, both inclusive.
  """

  prior: hyperparameters.Prior
  bounds: tuple[float, float]


class Part(types.Config):
  """Base of parts; a subclass is a frozen dataclass.

  Attributes:
    is_nested: whether messages about its fields name its class.
  """

  is_nested: ClassVar[bool] = True

  def __post_init__(self) -> None:
    """Checks the range of each field."""
    part: Any = self
    kind: Any = type(self)
    own = hyperparameters_of(kind)
    self.take_scalars()
    for field in dataclasses.fields(part):
      if field.name in own:
        _check_prior(self, field.name, own[field.name])
      else:
        _check_option(self, field)


def find_hyperparameters(part: Part) -> Any:
  """Returns the hyperparameters of a part and of the parts in it, as a tree.

  Args:
    part: an agent, or a part of it.

  Returns:
    NamedTuples with a `Hyperparameter` or another NamedTuple for each field
    that has any, and for each name of parts that stand in a tuple.

  Raises:
    ValueError: if parts in a tuple share a name.
  """
  kind: Any = type(part)
  tree: dict[str, Any] = {}
  for name, is_integer in hyperparameters_of(kind).items():
    value = getattr(part, name)
    bounds = about(kind, name).get('bounds', _NON_NEGATIVE)
    found = tuple(
      Hyperparameter(hyperparameters.as_prior(one, is_integer), bounds)
      for one in (value if isinstance(value, tuple) else (value,))
      if one is not None  # What it is for is off.
    )
    if found:
      tree[name] = found if isinstance(value, tuple) else found[0]
  for field in dataclasses.fields(kind):
    value = getattr(part, field.name)
    if isinstance(value, Part):
      inner = find_hyperparameters(value)
    elif isinstance(value, tuple):
      named = {
        name: find_hyperparameters(one)
        for name, one in _named_parts(field.name, value).items()
      }
      inner = hyperparameters.make_tree(
        {name: found for name, found in named.items() if found}
      )
    else:
      continue
    if inner:
      tree[field.name] = inner
  return hyperparameters.make_tree(tree)


def priors(part: Part) -> Any:
  """Returns the priors of a part and of the parts in it, as a tree."""
  return jax.tree.map(
    lambda one: one.prior, find_hyperparameters(part), is_leaf=_is_found
  )


def collect(part: Part) -> dict[str, Hyperparameter]:
  """Returns the hyperparameters of a part by path, `tasks.latent_kl.cost`."""
  found = jax.tree.leaves_with_path(
    find_hyperparameters(part), is_leaf=_is_found
  )
  return {hyperparameters.name(path): one for path, one in found}


def bind(part: Any, values: Any) -> Any:
  """Returns a copy of a part whose hyperparameters have values.

  Args:
    part: an agent, or a part of it; what is no part is returned as it is.
    values: a tree as that of `priors`, or a branch of one that has some of the
      fields; None for the numbers that the part has itself.
  """
  if values is None or not isinstance(part, Part):
    return part
  bound = copy.copy(part)  # Values of a trace are not to be checked.
  for name, value in values._asdict().items():
    own = getattr(part, name)
    if isinstance(own, Part):
      value = bind(own, value)
    elif isinstance(own, tuple) and hasattr(value, '_asdict'):
      value = tuple(
        bind(one, getattr(value, getattr(one, 'name', ''), None)) for one in own
      )
    object.__setattr__(bound, name, value)
  return bound


def example_values(part: Part) -> Any:
  """Returns a tree of values for `bind`: fixed numbers, and one for priors.

  Samples would be compiled.
  """

  def make(prior: hyperparameters.Prior) -> types.NumpyArray:
    shape = jax.eval_shape(prior.sample, jax.ShapeDtypeStruct((2,), np.uint32))
    low, high = getattr(prior, 'limits', (1.0, 1.0))
    return np.full(shape.shape, low if low == high else 1.0, shape.dtype)

  return jax.tree.map(make, priors(part))


def check_bound(part: Part) -> None:
  """Raises a ValueError if a hyperparameter is a prior, without a value."""
  kind: Any = type(part)
  for name in hyperparameters_of(kind):
    value = getattr(part, name)
    for one in value if isinstance(value, tuple) else (value,):
      if hasattr(one, 'sample'):
        raise ValueError(
          f'{name} ({one!r}) of {kind.__name__} must have a value where it is'
          ' used; pass the hyperparameters of the state, or choose a number.'
        )
  for field in dataclasses.fields(kind):
    inner = getattr(part, field.name)
    if isinstance(inner, Part):
      check_bound(inner)


def _is_found(node: Any) -> bool:
  return isinstance(node, Hyperparameter)


def _named_parts(field: str, entries: tuple[Any, ...]) -> dict[str, Part]:
  """Returns the parts of a tuple that have names, by name."""
  named: dict[str, Part] = {}
  for part in entries:
    if not isinstance(part, Part):
      continue
    kind, name = type(part).__name__, getattr(part, 'name', '')
    if not name and not find_hyperparameters(part):
      continue  # Nothing of it needs a name.
    if not str(name).isidentifier():
      raise ValueError(
        f'name ({name!r}) of {kind} must be a word, which begins the names of'
        f' its hyperparameters; choose {kind}(..., name="left").'
      )
    if name in named:
      raise ValueError(
        f'{field} ({entries!r}) must have one name each, which also tells their'
        f' numbers apart; choose {kind}(..., name="{name}_2") for one.'
      )
    named[name] = part
  return named


def read(config: Any, path: str) -> Any:
  """Returns a field of a config by its dotted path, through named parts."""
  for name in path.split('.'):
    if isinstance(config, tuple):
      config = dict(_named(config))[name]
    else:
      config = getattr(config, name)
  return config


def change(config: Any, path: str, value: Any) -> Any:
  """Returns a copy of a config with one field changed, by its dotted path."""
  name, _, rest = path.partition('.')
  if isinstance(config, tuple):
    return tuple(
      (change(part, rest, value) if rest else value) if own == name else part
      for own, part in _named(config)
    )
  if rest and hasattr(config, name):
    value = change(getattr(config, name), rest, value)
  return config.replace(**{name: value})


def _named(entries: tuple[Any, ...]) -> list[tuple[str, Any]]:
  """Returns parts with their names, or numbers with their indices."""
  return [
    (getattr(entry, 'name', str(index)), entry)
    for index, entry in enumerate(entries)
  ]


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
  return typing.get_type_hints(kind)


@functools.cache
def hyperparameters_of(kind: Any) -> Mapping[str, bool]:
  """Returns whether each hyperparameter of a class is an integer, by name."""
  hints = _hints(kind)
  return {
    field.name: hints[field.name] in (Integer, Integers)
    for field in dataclasses.fields(kind)
    if hints[field.name] in (Scalar, Integer, Integers, _OPTIONAL)
  }


def about(kind: type, name: str) -> Mapping[str, Any]:
  """Returns the metadata of a field; a class may change its default alone."""
  for base in kind.__mro__:
    field = vars(base).get('__dataclass_fields__', {}).get(name)
    if field is not None and field.metadata:
      return field.metadata
  return {}


def find(kind: str, name: Any, known: Mapping[str, Any]) -> Any:
  """Returns the part of a name.

  Args:
    kind: what is named, for the message.
    name: its name; anything else is returned as it is.
    known: parts by name.

  Raises:
    ValueError: if there is no such name.
  """
  if not isinstance(name, str):
    return name
  if name not in known:
    raise ValueError(
      f'{kind} ({name!r}) must be one of {list(known)}, or a part'
      f' itself{suggestions.suggest(name, known)}'
    )
  return known[name]


def check_values(
  values: Any, bounds: Mapping[str, tuple[float, float]]
) -> None:
  """Raises a ValueError if a value is out of bounds or not a number.

  Args:
    values: a tree of numbers or arrays; for a population, [N, ...] each.
    bounds: by path; zero and infinity for those not listed.
  """
  for path, value in jax.tree.leaves_with_path(values):
    name = hyperparameters.name(path)
    low, high = bounds.get(name, _NON_NEGATIVE)
    array = np.asarray(value)
    if not np.all((array >= low) & (array <= high)):  # Also true for NaN.
      raise ValueError(
        f'hyperparameters.{name} ({value}) must lie in [{low:g}, {high:g}];'
        ' choose a value inside.'
      )


def check_sizes(**sizes: Any) -> None:
  """Raises a ValueError unless sizes of layers are those of some layers.

  Args:
    **sizes: an integer, or one for each layer, maybe several in a tuple.
  """
  for name, value in sizes.items():
    entries = np.ravel(value).tolist() if np.size(value) else []
    is_off: Any = np.size(value) and np.shape(value)[:1] > (MAX_UNROLLED,)
    for entry in entries:
      is_off |= not isinstance(entry, int) or not 1 <= entry <= _MAX_INTEGER
    if is_off:
      raise ValueError(
        f'{name} ({value!r:.80}) must be integers from 1 to {_MAX_INTEGER}, for'
        f' at most {MAX_UNROLLED} layers; choose e.g. 64.'
      )


def _check_option(part: Part, field: Any) -> None:
  """Raises a ValueError if an option is out of its range."""
  name, value, default = field.name, getattr(part, field.name), field.default
  ranges = about(type(part), name)
  if default is dataclasses.MISSING:  # A size, or made by a factory.
    default = 1 if ranges else None
  if value is None and (default is None or 'None' in str(field.type)):
    return
  choices = tuple(ranges.get('choices') or ())
  demand = f'one of {choices}'
  is_off = bool(choices) and value not in choices
  is_count = isinstance(default, int) and not isinstance(default, bool)
  is_count |= str(field.type) == 'int | None'
  is_tuple = isinstance(value, tuple | list) and not is_count
  most_entries = ranges.get('entries', MAX_UNROLLED)
  if is_tuple and len(value) > most_entries:
    raise ValueError(
      f'{name} ({len(value):,} entries) of {type(part).__name__} must have at'
      f' most {most_entries} entries; choose fewer.'
    )
  limits = ranges
  if is_count or _ends(ranges):
    is_integral = is_count or _is_integral(part, name)
    most = _MAX_INTEGER if is_integral else _MAX_FLOAT
    given = ranges.get('high')
    limits = {**ranges, 'high': most if given is None else given}
  for entry in value if is_tuple else (value,):
    if is_count and not isinstance(entry, int | np.integer):
      demand, is_off = 'an integer', True
    elif not _is_inside(entry, ranges):
      demand, is_off = _demand(ranges), True
    elif not _is_inside(entry, limits):
      demand, is_off = _demand(limits), True
  if is_off:
    of = '' if not part.is_nested else f' of {type(part).__name__}'
    remedy = 'another value' if default is None else repr(default)
    raise ValueError(
      f'{name} ({value!r}){of} must be {demand}; choose {remedy}.'
    )


def _is_integral(part: Part, name: str) -> bool:
  """Returns whether a field has integers, or tuples of these."""
  hint = str(typing.get_type_hints(type(part))[name])
  return 'int' in hint and 'float' not in hint


_ENDS: Mapping[str, tuple[str, Callable[[Any, Any], Any]]] = {
  'low': ('at least', operator.ge),
  'high': ('at most', operator.le),
  'above': ('above', operator.gt),
  'below': ('below', operator.lt),
}


def _ends(ranges: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
  return [
    (word, compare, ranges[end])
    for end, (word, compare) in _ENDS.items()
    if ranges.get(end) is not None
  ]


def _demand(ranges: Mapping[str, Any]) -> str:
  return ' and '.join(f'{word} {end:.10g}' for word, _, end in _ends(ranges))


def _is_inside(value: Any, ranges: Mapping[str, Any]) -> bool:
  ends = _ends(ranges)
  is_number = isinstance(value, int | float | np.number)
  return not ends or (
    is_number
    and not isinstance(value, bool)
    and math.isfinite(value)
    and all(compare(value, end) for _, compare, end in ends)
  )


def _check_prior(part: Part, name: str, is_integer: bool) -> None:
  """Raises a ValueError unless a hyperparameter is a number or a prior."""
  kind: Any = type(part)
  value = getattr(part, name)
  hint = _hints(kind)[name]
  is_off = value is None and hint == _OPTIONAL
  if is_off or isinstance(value, jax.Array):  # The latter is bound.
    return
  if isinstance(value, tuple) and hint == Integers:
    for one in value:
      if not isinstance(one, jax.Array):
        _check_prior_value(kind, name, one, is_integer)
    return
  # Equal agents compare as equal, however a fixed value is written.
  if isinstance(value, hyperparameters.Constant) and not is_integer:
    object.__setattr__(part, name, value := value.value)
  _check_prior_value(kind, name, value, is_integer)


def _check_prior_value(
  kind: type, name: str, value: Any, is_integer: bool
) -> None:
  if isinstance(value, bool) or not (
    isinstance(value, int | float | np.number) or hasattr(value, 'sample')
  ):
    schedule = ''
    if callable(value):  # Such as one of optax.
      schedule = ' For a linear schedule, add .decayed_over(num_steps).'
    raise ValueError(
      f'{name} ({value!r}) must be a number or a prior; choose'
      f' {getattr(kind, name)!r}.{schedule}'
    )
  if is_integer and not isinstance(
    value, int | np.integer | hyperparameters.UniformInteger
  ):
    raise ValueError(
      f'{name} ({value!r}) must be an integer or a prior of integers;'
      ' choose 10, or hyperparameters.UniformInteger(5, 20).'
    )
  prior = hyperparameters.as_prior(value, is_integer)
  if not hasattr(prior, 'limits'):
    return  # The range of a custom prior is unknown.
  ranges = about(kind, name)
  low, high = ranges.get('bounds', _NON_NEGATIVE)
  high = min(high, _MAX_INTEGER) if is_integer else high
  lowest, highest = prior.limits
  if not low <= lowest <= highest <= high:  # Also true for NaN.
    raise ValueError(
      f'{name} ({value!r}) must lie in [{low:g}, {high:g}]; choose a value or'
      ' bounds inside.'
    )
  if math.isinf(highest) and not ranges.get('unlimited'):
    raise ValueError(f'{name} ({value!r}) must be finite; choose a number.')
