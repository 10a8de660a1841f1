"""JaxMARL environments (Rutherford et al., 2024) as functional games.

This module does not import jaxmarl; install it separately, on Python 3.11 or
newer, and pass an environment:

    environment=jaxmarl_adapter.from_jaxmarl(
      jaxmarl.make('MPE_simple_tag_v3'), teams=(0, 0, 0, 1)
    )

Agents whose spaces differ play roles; see `ftwax.environments.padding`. Every
seat lasts until the game ends, as in JaxMARL's own agents: one who is done, as
the dead of SMAX, still gets the rewards of its team. JaxMARL does not tell time
limits from ends; `has_time_limit` does. Observations are
float32, since grids such as those of Overcooked hold small numbers, not pixels;
where some actions are unavailable, as in SMAX, their mask is an entry beside
`observation`.
"""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional, jax_adapters, padding, specified

# What some environments return beside the observations of agents.
_WORLD_STATE = 'world_state'


class JaxMARLState(NamedTuple):
  """State of a JaxMARL environment.

  Attributes:
    state: state of the environment, a pytree.
    returns: float32 [P], summed rewards of each player.
    key: uint32 [2], random key of the remaining steps.
  """

  state: Any
  returns: types.Array
  key: types.Key


def from_jaxmarl(
  environment: Any,
  teams: Sequence[int] | None = None,
  shaping: float = 0.0,
  has_time_limit: bool = False,
  team_state: bool = False,
) -> functional.FunctionalGame:
  """Converts a JaxMARL environment to a functional game.

  The score of a team is its mean return.

  Args:
    environment: an environment returned by `jaxmarl.make`, with discrete
      actions.
    teams: the team of each agent, in the order of `environment.agents`; by
      default they are one team.
    shaping: weight of `shaped_reward`, which Overcooked adds to a step's
      information; leave it at 0 in evaluations.
    has_time_limit: whether games end by time alone, as those of MPE and
      Overcooked do, and their last timestep has discount 1. If not, it has 0.
    team_state: whether each observation has an entry `types.PRIVILEGED` for a
      critic: the environment's own `world_state` or, without one, what all
      agents observe.

  Raises:
    ValueError: if an action is not discrete, or spaces cannot be padded.
  """
  agents = list(environment.agents)
  teams = (0,) * len(agents) if teams is None else tuple(teams)
  like = jax.eval_shape(environment.reset, jax.random.PRNGKey(0))
  look = functools.partial(_see, environment, team_state)
  seen_like = jax.eval_shape(look, *like)
  views = [functional.array_specs(seen_like[agent]) for agent in agents]
  spaces = [environment.action_space(agent) for agent in agents]
  sizes = [jax_adapters.discrete('action_space', one, 'n') for one in spaces]
  actions = [specs.DiscreteArray(int(n), np.int32, 'action') for n in sizes]
  roles = padding.find_roles(agents, views, actions)
  padded = padding.make_padding(views, actions, roles or (0,) * len(agents))

  def see(observations: Any, state: Any) -> Any:
    own = look(observations, state)
    seen = [own[agent] for agent in agents]
    if roles:
      seen = [padded.pad(player, own) for player, own in enumerate(seen)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *seen)

  def reset(key: types.Key) -> tuple[JaxMARLState, dm_env.TimeStep]:
    reset_key, key = jax.random.split(key)
    observations, state = functional.cast_like(
      environment.reset(reset_key), like
    )
    timestep = jax.vmap(functional.restart)(see(observations, state))
    return JaxMARLState(state, jnp.zeros(len(agents)), key), timestep

  def step(
    state: JaxMARLState, action: types.Array
  ) -> tuple[JaxMARLState, dm_env.TimeStep]:
    step_key, key = jax.random.split(state.key)
    *after, rewards, dones, info = environment.step_env(
      step_key, state.state, dict(zip(agents, action, strict=True))
    )
    observations, new = functional.cast_like(tuple(after), like)
    reward = _stack(agents, rewards)
    if shaping:
      reward = reward + shaping * _stack(agents, info['shaped_reward'])
    is_last = jnp.full(len(agents), dones['__all__'])
    step_type = jnp.where(is_last, types.LAST, types.MID).astype(jnp.int32)
    discount = 1.0 - jnp.float32(is_last & (not has_time_limit))
    seen = see(observations, new)
    timestep = dm_env.TimeStep(step_type, reward, discount, seen)
    return JaxMARLState(new, state.returns + reward, key), timestep

  return functional.FunctionalGame(
    spec=specified.make_spec(
      padded.observations if roles else views[0], padded.actions
    ),
    reset=reset,
    step=step,
    teams=teams,
    event_names=('reward',),
    outcome=functools.partial(_mean_returns, teams),
    roles=roles,
  )


def measure_smax(environment: Any) -> functional.Measure:
  """Returns `metrics` of a game: `won` is 1 if the team won in SMAX, else 0.

  Args:
    environment: `HeuristicEnemySMAX`. As in its rewards, a team wins if it
      alone has units left.
  """
  num_allies = len(environment.agents)

  def measure(state: JaxMARLState) -> dict[str, types.Array]:
    is_alive = state.state.state.unit_alive
    allies, enemies = is_alive[:num_allies], is_alive[num_allies:]
    return {'won': jnp.float32(allies.any() & ~enemies.any())}

  return measure


def _stack(agents: Sequence[str], values: Any) -> types.Array:
  """Returns the numbers of agents, float32 [P]."""
  return jnp.stack([jnp.float32(values[agent]) for agent in agents])


def _mean_returns(teams: Sequence[int], state: JaxMARLState) -> types.Array:
  """Returns the mean return of each team."""
  members = jax.nn.one_hot(jnp.array(teams), max(teams) + 1)
  return state.returns @ members / jnp.float32(np.bincount(teams))


def _see(
  environment: Any, team_state: bool, observations: Any, state: Any
) -> dict[str, types.ArrayTree]:
  """Returns what each agent observes, with the mask of its actions, if any."""
  seen = {
    agent: jnp.float32(observations[agent]) for agent in environment.agents
  }
  beside: dict[str, dict[str, types.Array]] = {agent: {} for agent in seen}
  if team_state:
    whole = observations.get(_WORLD_STATE)
    if whole is None:
      whole = jnp.concatenate([own.ravel() for own in seen.values()])
    for agent in seen:
      beside[agent][types.PRIVILEGED] = jnp.float32(whole)
  with contextlib.suppress(AttributeError, NotImplementedError):
    masks = environment.get_avail_actions(state)
    for agent in seen:
      beside[agent][types.ACTION_MASK] = masks[agent].astype(jnp.int8)
  return {
    agent: {'observation': own, **beside[agent]} if beside[agent] else own
    for agent, own in seen.items()
  }
