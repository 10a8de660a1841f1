"""Players that do not learn: scripts and frozen agents.

A player takes seats of games beside the members of a population, as an opponent
or a team mate, in training and in evaluation. It acts for `M` seats at a time,
each in a game of its own.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import dm_env
import jax
import jax.numpy as jnp

from ftwax import distributions, types


class InitPlayer(Protocol):
  """Makes the first state of a player on `batch_size` seats."""

  def __call__(self, key: types.Key, batch_size: int) -> Any: ...  # noqa: D102


class Act(Protocol):
  """Chooses actions on `M` seats.

  `games` holds the states of the games in JAX in which the seats are, leaves
  [M, ...], and is None for games in Python. `seats` int32 [M] are the numbers
  of the seats in their games, `timestep` leaves [M, ...] what is seen there.
  """

  def __call__(  # noqa: D102
    self,
    games: Any,
    seats: types.Array,
    timestep: dm_env.TimeStep,
    state: Any,
  ) -> tuple[types.ArrayTree, Any]: ...


class Player(NamedTuple):
  """Plays without learning.

  Attributes:
    init: makes the first state.
    act: returns actions, leaves [M], and the new state.
    reads_games: whether it reads the states of games, so that it can only play
      games in JAX.
    environment_spec: the specs that it was made for; None for any.
  """

  init: InitPlayer
  act: Act
  reads_games: bool = False
  environment_spec: types.EnvironmentSpec | None = None


def scripted(
  script: Callable[[types.Key, Any, types.Array], types.ArrayTree],
) -> Player:
  """Makes a player of a script, which may see all of the state of a game.

  Args:
    script: `(key, state, seat) -> action`, of one seat.
  """

  def act(
    games: Any,
    seats: types.Array,
    timestep: dm_env.TimeStep,
    state: Any,
  ) -> tuple[types.ArrayTree, Any]:
    del timestep
    key, next_key = jax.random.split(state)
    keys = jax.random.split(key, seats.shape[0])
    return jax.vmap(script)(keys, games, seats), next_key

  return Player(_start_with_key, act, reads_games=True)


def uniform(action_spec: types.SpecTree) -> Player:
  """Makes a player that draws its actions uniformly.

  Args:
    action_spec: of one player of the game.
  """
  num_actions = distributions.num_actions(action_spec)

  def act(
    games: Any,
    seats: types.Array,
    timestep: dm_env.TimeStep,
    state: Any,
  ) -> tuple[types.ArrayTree, Any]:
    del games, timestep
    key, next_key = jax.random.split(state)
    logits = jax.tree.map(lambda n: jnp.zeros((seats.shape[0], n)), num_actions)
    action = distributions.sample(key, logits)
    return distributions.to_environment(action_spec, action), next_key

  return Player(_start_with_key, act)


def frozen(
  actor: types.ActorCore,
  variables: types.ActorVariables,
  environment_spec: types.EnvironmentSpec | None = None,
) -> Player:
  """Makes a player of an agent that has stopped learning.

  Args:
    actor: functions of the agent's actor.
    variables: of the agent, without a member axis.
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
  """Checks that players were made for an environment of these specs.

  Raises:
    ValueError: if one was not.
  """
  for name, player in players.items():
    made_for = player.environment_spec
    if made_for is None or made_for == environment_spec:
      continue
    field = next(
      field
      for field in types.EnvironmentSpec._fields
      if getattr(made_for, field) != getattr(environment_spec, field)
    )
    raise ValueError(
      f'player {name!r} must be of a game with the {field}'
      f' {getattr(environment_spec, field)}, and was trained with'
      f' {getattr(made_for, field)}; choose one that was trained in this game.'
    )


def _start_with_key(key: types.Key, batch_size: int) -> types.Key:
  """Makes the state of a player that remembers nothing but its key."""
  del batch_size
  return key
