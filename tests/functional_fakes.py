"""Tiny environments in JAX, for tests of what is compiled with them."""

from collections.abc import Callable
from typing import NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional


class MatchingState(NamedTuple):
  """State of the matching game.

  Attributes:
    num_steps: int32 [], actions taken.
    sign: int32 [], the sign that is shown.
    key: for the signs to come.
  """

  num_steps: types.Array
  sign: types.Array
  key: types.Key


def make_matching(
  episode_length: int = 10, num_signs: int = 2, truncate: bool = True
) -> functional.FunctionalEnvironment:
  """Makes an environment that shows a sign each step and pays for naming it.

  Args:
    episode_length: transitions of an episode; its best return.
    num_signs: choices; chance is `episode_length / num_signs`.
    truncate: whether episodes are cut off (discount 1) rather than over.
  """

  def draw(num_steps, key):
    key, sign_key = jax.random.split(key)
    sign = jax.random.randint(sign_key, (), 0, num_signs, jnp.int32)
    state = MatchingState(num_steps, sign, key)
    return state, jax.nn.one_hot(sign, num_signs, dtype=jnp.float32)

  def reset(key):
    state, observation = draw(jnp.zeros((), jnp.int32), key)
    return state, functional.restart(observation)

  def step(state, action):
    reward = jnp.where(action == state.sign, 1.0, 0.0)
    state, observation = draw(state.num_steps + 1, state.key)
    last = state.num_steps == episode_length
    return state, functional.transition(
      reward,
      observation,
      is_terminal=jnp.logical_and(last, not truncate),
      is_truncated=last,
    )

  spec = types.EnvironmentSpec(
    observations=specs.BoundedArray(
      (num_signs,), np.float32, 0, 1, 'observation'
    ),
    actions=specs.DiscreteArray(num_signs, np.int32, 'action'),
    rewards=specs.BoundedArray((), np.float32, 0, 1, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
  )
  return functional.FunctionalEnvironment(spec, reset, step)


class TeamMatchingState(NamedTuple):
  """State of the matching game of teams.

  Attributes:
    players: the game of each player, leaves [P, ...].
    scores: float32 [num_teams], signs named.
  """

  players: MatchingState
  scores: types.Array


def make_team_matching(
  team_size: int = 2, episode_length: int = 5
) -> functional.FunctionalGame:
  """Makes a game of two teams, each player of which plays its own matching.

  Each player is paid for the signs that it names, and the team that has named
  more of them wins.

  Args:
    team_size: players of a team; those of the first come first.
    episode_length: transitions of a game.
  """
  single = make_matching(episode_length, truncate=False)
  num_players = 2 * team_size

  def reset(key):
    players, timestep = jax.vmap(single.reset)(
      jax.random.split(key, num_players)
    )
    return TeamMatchingState(players, jnp.zeros((2,))), timestep

  def step(state, action):
    players, timestep = jax.vmap(single.step)(state.players, action)
    gained = timestep.reward.reshape(2, team_size).sum(axis=1)
    return TeamMatchingState(players, state.scores + gained), timestep

  def outcome(state):
    lead = jnp.sign(state.scores[0] - state.scores[1])
    return jnp.stack([lead, -lead])

  return functional.FunctionalGame(
    spec=single.spec,
    reset=reset,
    step=step,
    teams=(0,) * team_size + (1,) * team_size,
    event_names=('reward',),
    outcome=outcome,
  )


class RolesState(NamedTuple):
  """State of the matching game of roles.

  Attributes:
    sign: int32 [], the sign that all players are shown.
    scores: float32 [num_teams], mean signs that a team has named.
  """

  sign: types.Array
  scores: types.Array


def make_role_matching(
  teams: tuple[int, ...], roles: tuple[int, ...]
) -> functional.FunctionalGame:
  """Makes a game of one step whose players answer a sign by their roles.

  Players of role 0 are paid for naming the sign, and others for naming the
  other one.

  Args:
    teams: the team of each player.
    roles: the role of each player, which it is shown.
  """
  num_roles, sizes = max(roles) + 1, np.bincount(teams)

  def observe(sign):
    signs = jnp.tile(jax.nn.one_hot(sign, 2), (len(teams), 1))
    own = jax.nn.one_hot(jnp.array(roles), num_roles)
    return jnp.concatenate([signs, own], axis=1)

  def reset(key):
    sign = jax.random.randint(key, (), 0, 2, jnp.int32)
    step_type = jnp.zeros(len(teams), jnp.int32)
    ones = jnp.ones(len(teams))
    state = RolesState(sign, jnp.zeros(len(sizes)))
    return state, dm_env.TimeStep(step_type, 0 * ones, ones, observe(sign))

  def step(state, action):
    right = jnp.where(jnp.array(roles) == 0, state.sign, 1 - state.sign)
    paid = (action == right).astype(jnp.float32)
    own = jax.nn.one_hot(jnp.array(teams), len(sizes))
    timestep = dm_env.TimeStep(
      jnp.full(len(teams), 2, jnp.int32), paid, 0 * paid, observe(state.sign)
    )
    return state._replace(scores=paid @ own / jnp.float32(sizes)), timestep

  single = make_matching()
  observations = specs.BoundedArray((2 + num_roles,), np.float32, 0, 1)
  return functional.FunctionalGame(
    spec=single.spec._replace(observations=observations),
    reset=reset,
    step=step,
    teams=teams,
    event_names=('reward',),
    outcome=lambda state: state.scores,
    roles=roles,
  )


def map_timesteps(
  environment: functional.FunctionalEnvironment,
  function: Callable[[dm_env.TimeStep], dm_env.TimeStep],
  spec: types.EnvironmentSpec | None = None,
) -> functional.FunctionalEnvironment:
  """Returns `environment` with every timestep changed by `function`.

  Args:
    environment: whose timesteps to change.
    function: changes one.
    spec: of the new environment; that of the old one by default.
  """

  def reset(key):
    state, timestep = environment.reset(key)
    return state, function(timestep)

  def step(state, action):
    state, timestep = environment.step(state, action)
    return state, function(timestep)

  return functional.FunctionalEnvironment(spec or environment.spec, reset, step)


def name_sign(key, state, player):
  """A script of team matching: names the sign that the player is shown."""
  del key
  return state.players.sign[player]


def name_other_sign(key, state, player):
  """A script of team matching: names the sign that it is not shown."""
  del key
  return 1 - state.players.sign[player]
