"""Players that do not learn: scripts and frozen agents.

A player takes seats in games with members of a population, as an opponent or a
team mate, in training and in evaluation. It acts on `M` seats at a time, each
in a different game.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import distributions, registry, types

# `(games, seats, timestep, state) -> (action, state)` selects actions on `M`
# seats. `games` are the states of the JAX games of these seats, leaves
# [M, ...]; None for Python games. `seats`, int32 [M], are the indices of the
# seats in their games. `timestep`, leaves [M, ...], holds their observations.
Act = Callable[
  [Any, types.Array, dm_env.TimeStep, Any], tuple[types.ArrayTree, Any]
]


class Player(NamedTuple):
  """A player that does not learn.

  Attributes:
    init: `(key, batch_size) -> state`, on that many seats.
    act: returns actions, leaves [M], and the new state.
    reads_games: whether it uses the states of games, so that it can only play
      JAX games.
    environment_spec: the specs that it was made for; None for any.
    roles: the roles that it plays; None for all.
  """

  init: Callable[[types.Key, int], Any]
  act: Act
  reads_games: bool = False
  environment_spec: types.EnvironmentSpec | None = None
  roles: tuple[int, ...] | None = None


def scripted(
  script: Callable[[types.Key, Any, types.Array], types.ArrayTree],
) -> Player:
  """Makes a player from a script, which may see the whole state of a game.

  Games in Python have no such state; see `observing`.

  Args:
    script: `(key, state, seat) -> action`, for a single seat.
  """
  return _with_key_for_each(
    script, lambda games, seats, _: (games, seats), reads_games=True
  )


def observing(
  rule: Callable[[types.Key, types.ArrayTree], types.ArrayTree],
) -> Player:
  """Makes a player from a rule that sees what its seat observes.

  It plays games in Python and in JAX.

  Args:
    rule: `(key, observation) -> action`, for a single seat, in functions of
      `jax.numpy`. Observations are those of the game's specs.
  """
  return _with_key_for_each(rule, lambda _, __, observation: (observation,))


def _with_key_for_each(
  rule: Callable[..., types.ArrayTree],
  find_inputs: Callable[
    [Any, types.Array, types.ArrayTree], tuple[types.ArrayTree, ...]
  ],
  reads_games: bool = False,
) -> Player:
  """Makes a player of `(key, *inputs) -> action`, for a single seat.

  `find_inputs` picks them from games, seats and observations. `identify` tells
  players apart by `rule`.
  """

  def act(
    games: Any,
    seats: types.Array,
    timestep: dm_env.TimeStep,
    state: Any,
  ) -> tuple[types.ArrayTree, Any]:
    keys = jax.random.split(state, 1 + seats.shape[0])
    inputs = find_inputs(games, seats, timestep.observation)
    return jax.vmap(rule)(keys[1:], *inputs), keys[0]

  return Player(_start_with_key, act, reads_games)


@registry.register('rule.uniform_player')
def uniform(action_spec: types.SpecTree) -> Player:
  """Makes a player that samples actions uniformly, among those allowed.

  Args:
    action_spec: action spec of one player of the game.
  """
  num_actions = distributions.num_actions(action_spec)

  def act(
    games: Any,
    seats: types.Array,
    timestep: dm_env.TimeStep,
    state: Any,
  ) -> tuple[types.ArrayTree, Any]:
    del games
    key, next_key = jax.random.split(state)
    logits = jax.tree.map(lambda n: jnp.zeros((seats.shape[0], n)), num_actions)
    seen = timestep.observation
    if isinstance(seen, Mapping) and types.ACTION_MASK in seen:
      logits = distributions.mask_logits(logits, seen[types.ACTION_MASK])
    action = distributions.sample(key, logits)
    return distributions.to_environment(action_spec, action), next_key

  return Player(_start_with_key, act)


def frozen(
  actor: types.ActorCore,
  variables: types.ActorVariables,
  environment_spec: types.EnvironmentSpec | None = None,
) -> Player:
  """Makes a player from an agent that does not learn any more.

  Args:
    actor: functions of the agent's actor.
    variables: variables of the agent, without a member axis.
    environment_spec: see `Player`.
  """

  def act(
    games: Any,
    seats: types.Array,
    timestep: dm_env.TimeStep,
    state: Any,
  ) -> tuple[types.ArrayTree, Any]:
    del games, seats
    return actor.select_action(variables, timestep, state)

  return Player(actor.init, act, environment_spec=environment_spec)


def check_specs(
  players: Mapping[str, Player], environment_spec: types.EnvironmentSpec
) -> None:
  """Checks that players were made for an environment with these specs.

  Raises:
    ValueError: if one was not.
  """
  for name, player in players.items():
    made_for = player.environment_spec
    if made_for is None or made_for.is_played_like(environment_spec):
      continue
    field = next(
      field
      for field in types.EnvironmentSpec._fields
      if getattr(made_for, field) != getattr(environment_spec, field)
    )
    raise ValueError(
      f'player {name!r} must be trained in a game with the {field}'
      f' {getattr(environment_spec, field)}, but was trained with'
      f' {getattr(made_for, field)}; choose one that was trained in this game.'
    )


def identify(player: Player) -> tuple[Any, ...]:
  """Returns what tells players apart, wherever and however often one is made.

  Agents are the same if their arrays are. Others are if they act by the same
  code, made with the same numbers and texts.
  """
  made_with = _closure(player.act)
  if 'variables' in made_with:
    leaves = jax.tree.leaves(made_with['variables'])
    return tuple(np.asarray(leaf).tobytes() for leaf in leaves)
  rule: Any = made_with.get('rule', player.act)
  values = list(_closure(rule).values())
  if isinstance(rule, functools.partial):
    values = [*rule.args, *rule.keywords.values()]
    rule = rule.func
  plain = [value for value in values if isinstance(value, int | float | str)]
  return getattr(rule, '__code__', rule), *plain


def _closure(function: Any) -> Mapping[str, Any]:
  if not inspect.isfunction(function):
    return {}
  return inspect.getclosurevars(function).nonlocals


def find_teams(
  players: Mapping[str, Player], teams: Sequence[int], roles: Sequence[int]
) -> list[tuple[int, ...]]:
  """Returns the teams of which each player plays all roles.

  Args:
    players: players that do not learn, by name.
    teams: the team of each seat.
    roles: the role of each seat; empty if there is one.

  Raises:
    ValueError: if a player plays all roles of no team.
  """
  roles = tuple(roles) or (0,) * len(teams)
  found = []
  for name, player in players.items():
    plays = np.isin(roles, roles if player.roles is None else player.roles)
    own = set(teams) - set(np.asarray(teams)[~plays].tolist())
    if not own:
      raise ValueError(
        f'opponent {name!r} (of roles {player.roles}) must play all roles of a'
        f' team of the game (teams {tuple(teams)}, roles {roles}); choose'
        ' one that does.'
      )
    found.append(tuple(sorted(own)))
  return found


def _start_with_key(key: types.Key, batch_size: int) -> types.Key:
  """Makes the state of a player without memory: its random key."""
  del batch_size
  return key
