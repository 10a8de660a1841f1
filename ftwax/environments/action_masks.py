"""Legal actions that environments state beside the observation.

There are four conventions: an entry `action_mask` of the observation, an entry
of `info`, a method `action_masks()` of the environment (as for sb3-contrib's
MaskablePPO), and in each of these one flat array for all parts of an action.
Adapters make one of them: the entry `types.ACTION_MASK` of the observation. It
thus travels with the trajectory, to losses and recurrent cores as well.

`info` is known after a reset alone, so adapters reset an environment when they
are made, and hand that out as its first episode.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import specs

from ftwax import distributions, types
from ftwax.environments import specified, validation

# Entries of `info`, and the method of an environment.
_KEYS = types.ACTION_MASK, 'action_masks'
METHOD = 'action_masks'

# Name of masks of choices that a role in a game does not have.
OF_SPACES = 'the sizes of action spaces'


class Masks:
  """How an environment states legal actions, as an entry of observations.

  Attributes:
    source: where they come from, such as "info['action_mask']".
    key: the entry of `info`; None if they come from the method.
  """

  def __init__(self, actions: types.SpecTree, key: str | None):
    self._sizes = distributions.part_sizes(actions)
    sizes = distributions.count_choices(actions)
    self._is_single = len(sizes) == 1
    self._total = sum(sizes)
    self.key = key
    self.source = f'{METHOD}()' if key is None else f'info[{key!r}]'

  def add_to(self, spec: types.EnvironmentSpec) -> types.EnvironmentSpec:
    """Returns the spec with the entry of the mask; its name is the source."""
    mask = specs.BoundedArray((self._total,), np.int8, 0, 1, self.source)
    entries = specified.entries(spec.observations)
    return spec._replace(observations=entries | {types.ACTION_MASK: mask})

  def see(self, observation: Any, mask: types.NumpyArray) -> dict[str, Any]:
    """Returns an observation with the entry of the mask."""
    return specified.entries(observation) | {types.ACTION_MASK: mask}

  def read(self, value: Any) -> types.NumpyArray:
    """Returns a mask as a flat array, int8 [..., number of all choices].

    Raises:
      ValueError: if it does not fit the action.
    """
    if (
      self._is_single
      and isinstance(value, np.ndarray)
      and value.dtype.kind in 'biu'
      and value.shape[-1:] == (self._total,)
    ):
      return (value != 0).astype(np.int8)
    return distributions.join_mask(self._sizes, value)

  def allow_all(self, *shape: int) -> types.NumpyArray:
    """Returns the mask of a step at which no action is taken."""
    return np.ones((*shape, self._total), np.int8)

  def widen(
    self, mask: types.NumpyArray, sizes: Sequence[int]
  ) -> types.NumpyArray:
    """Returns a flat mask with the parts of a larger action.

    Args:
      mask: int8 [number of all choices].
      sizes: number of choices of each discrete part of the larger action.
    """
    if len(mask) == sum(sizes):
      return mask
    own = distributions.split_mask(self._sizes, mask)
    parts = [part for part in own if part is not None]
    return np.concatenate(
      [
        np.pad(part, (0, size - len(part)))
        for part, size in zip(parts, sizes, strict=True)
      ]
    )

  def read_at(self, value: Any, name: str, step: int) -> types.NumpyArray:
    """Returns the flat mask of a step at which an action is taken.

    Args:
      value: the mask, None if it is absent.
      name: name of the environment in messages.
      step: number of the step in its episode.

    Raises:
      InvalidTimestepError: if it is absent, or does not fit the action.
    """
    if value is None:
      validation.fail(
        name,
        self.source,
        'absent',
        'be there wherever an action is taken, as it was at the first reset',
        'return it at every step but the last',
        f' Seen at step {step}.',
      )
    try:
      return self.read(value)
    except ValueError as error:
      raise validation.InvalidTimestepError(
        f'{self.source} of environment {name!r}: {error} Seen at step {step}.'
      ) from None


def find(
  spec: types.EnvironmentSpec, info: Mapping[str, Any], has_method: bool
) -> Masks | None:
  """Returns how an environment states legal actions beside the observation.

  Args:
    spec: spec of the environment.
    info: what its reset returned.
    has_method: whether it has a method `action_masks`.

  Returns:
    None if they are part of the observation, or there are none.
  """
  if not may_have(spec):
    return None
  for key in _KEYS:
    if info.get(key) is not None:
      return Masks(spec.actions, key)
  return Masks(spec.actions, None) if has_method else None


def may_have(spec: types.EnvironmentSpec) -> bool:
  """Returns whether masks may come from elsewhere than the observation."""
  is_seen = types.ACTION_MASK in specified.entries(spec.observations)
  return not is_seen and bool(distributions.count_choices(spec.actions))


def check_announced(info: Mapping[str, Any], name: str, step: int) -> None:
  """Raises an error if a mask comes that the reset did not have."""
  for key in _KEYS:
    if info.get(key) is not None:
      validation.fail(
        name,
        f'info[{key!r}]',
        'absent at the first reset',
        'be there at each reset if it is at a step',
        'return it from reset, too',
        f' Seen at step {step}.',
      )


def describe(spec: types.EnvironmentSpec) -> str | None:
  """Returns where masks come from; None if there are none."""
  mask = specified.entries(spec.observations).get(types.ACTION_MASK)
  if mask is None:
    return None
  name = getattr(mask, 'name', None) or ''
  is_other = name in (f'{METHOD}()', OF_SPACES) or name.startswith('info[')
  return name if is_other else f'observation[{types.ACTION_MASK!r}]'
