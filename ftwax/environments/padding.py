"""One observation and one action for players whose spaces differ by role.

As supersuit's `pad_observations_v0`, `pad_action_space_v0` and
`agent_indicator_v0`: observations are padded with zeros at the end of each
axis, actions that a player does not have are masked, and a one-hot vector tells
the role.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from dm_env import specs

from ftwax import distributions, trees, types
from ftwax.environments import action_masks, specified


class Padding(NamedTuple):
  """How players with different spaces share one.

  Attributes:
    observations: specs of an observation, a dict.
    actions: specs of an action.
    observation: specs of the padded part of the observation.
    constant: the role and, if actions differ, the mask of each player, as
      entries of its observation.
  """

  observations: dict[str, Any]
  actions: types.SpecTree
  observation: types.SpecTree
  constant: tuple[dict[str, Any], ...]

  def pad(self, player: int, observation: types.ArrayTree) -> dict[str, Any]:
    """Returns a player's observation, an array of NumPy or JAX, padded."""
    padded = jax.tree.map(_pad_leaf, observation, self.observation)
    return specified.entries(padded) | self.constant[player]

  def nothing(self, player: int) -> dict[str, Any]:
    """Returns the observation of a player who is out of the game: zeros."""
    return self.pad(player, trees.zeros_like_spec(self.observation, ()))


def make_padding(
  observations: Sequence[types.SpecTree],
  actions: Sequence[types.SpecTree],
  roles: Sequence[int],
) -> Padding:
  """Finds the spaces that hold those of all players.

  Args:
    observations: specs of the observation of each player.
    actions: specs of the action of each player.
    roles: the role of each player.

  Raises:
    ValueError: if spaces cannot be padded to the same one.
  """
  observation = _join('observation', observations, _widest_array)
  action = _join('action', actions, _widest_choice)
  codes = np.eye(max(roles) + 1, dtype=np.float32)
  constant = [{'role': codes[role]} for role in roles]
  extra = {'role': specs.BoundedArray(codes[0].shape, np.float32, 0, 1, 'role')}
  entries = specified.entries(observation)
  has_mask = types.ACTION_MASK in entries
  if any(taken != actions[0] for taken in actions) and not has_mask:
    for own, taken in zip(constant, actions, strict=True):
      own[types.ACTION_MASK] = jax.tree.map(
        lambda one, widest: np.int8(
          np.arange(widest.num_values) < one.num_values
        ),
        taken,
        action,
      )
    extra[types.ACTION_MASK] = jax.tree.map(
      lambda leaf: specs.BoundedArray(
        leaf.shape, np.int8, 0, 1, action_masks.OF_SPACES
      ),
      constant[0][types.ACTION_MASK],
    )
  return Padding(entries | extra, action, observation, tuple(constant))


def find_roles(
  names: Sequence[str],
  observations: Sequence[types.SpecTree],
  actions: Sequence[types.SpecTree],
) -> tuple[int, ...]:
  """Returns the roles of agents, empty if all have the same spaces.

  If not, agents whose names differ by a number alone have the same role.

  Args:
    names: names of the agents, such as `dog_0`, `dog_1` and `fox_0`.
    observations: specs of the observation of each agent.
    actions: specs of the action of each agent.
  """
  spaces = list(zip(observations, actions, strict=True))
  if all(space == spaces[0] for space in spaces):
    return ()
  kinds = [re.sub(r'_?\d+$', '', name) for name in names]
  order = list(dict.fromkeys(kinds))
  return tuple(order.index(kind) for kind in kinds)


def _pad_leaf(leaf: Any, spec: specs.Array) -> Any:
  """Pads an array [..., n] with zeros at the end to its spec's shape."""
  if leaf.shape == spec.shape:
    return leaf
  xp: Any = jax.numpy if isinstance(leaf, jax.Array) else np
  sizes = zip(leaf.shape, spec.shape, strict=True)
  return xp.pad(leaf, [(0, most - size) for size, most in sizes])


def _join(kind: str, players: Sequence[Any], widen: Any) -> Any:
  """Returns specs that hold those of all players."""
  for index, own in enumerate(players):
    structure: Any = jax.tree.structure(own)
    if structure == jax.tree.structure(players[0]):
      widest = jax.tree.map(
        lambda *leaves: widen(leaves), *players[: index + 1]
      )
      if None not in jax.tree.leaves(widest, is_leaf=lambda leaf: leaf is None):
        continue
    text = ' '.join(f'{own} {players[0]}'.split())
    raise ValueError(
      f'{kind} of player {index} must differ from that of player 0 in its size'
      f' alone to be padded, and be discrete if it is an action ({text}); wrap'
      ' the environment to convert it.'
    )
  return widest


def _widest_array(leaves: Sequence[specs.Array]) -> specs.Array | None:
  first = leaves[0]
  if all(leaf == first for leaf in leaves):
    return first
  if len({(leaf.dtype, len(leaf.shape)) for leaf in leaves}) > 1:
    return None
  shape = tuple(np.max([leaf.shape for leaf in leaves], axis=0).tolist())
  if all(isinstance(leaf, specs.DiscreteArray) for leaf in leaves):
    return _widest_choice(leaves)
  if not all(isinstance(leaf, specs.BoundedArray) for leaf in leaves):
    return specs.Array(shape, first.dtype, first.name)
  # Padding adds zeros.
  return specs.BoundedArray(
    shape,
    first.dtype,
    min(0, *(np.min(leaf.minimum) for leaf in leaves)),
    max(0, *(np.max(leaf.maximum) for leaf in leaves)),
    first.name,
  )


def _widest_choice(leaves: Sequence[Any]) -> specs.Array | None:
  first = leaves[0]
  if all(leaf == first for leaf in leaves):
    return first
  found = [distributions.num_choices(leaf) for leaf in leaves]
  choices = [number for number in found if number is not None]
  if len(choices) < len(leaves):
    return None
  return specs.DiscreteArray(max(choices), first.dtype, first.name)
