"""Capture the flag as a functional game: specs, actions and timesteps."""

import functools
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import dm_env
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional, specified
from ftwax.environments.capture_the_flag import (
  actions,
  browser,
  columns,
  events,
  features,
  opponents,
  painting,
  rays,
  rendering,
  rules,
  team_state,
)
from ftwax.environments.capture_the_flag import game_config as config_lib

_Config: TypeAlias = config_lib.CaptureTheFlagConfig

# What makes each observation.
_VECTORS: Mapping[str, Any] = {'features': features, 'rays': rays}
_IMAGES: Mapping[str, Any] = {'rgb': rendering, 'columns': columns}

# Height and width of a cell in films, in pixels.
_FILM_TILE_SIZE = 32


def make(
  config: config_lib.CaptureTheFlagConfig | None = None,
) -> functional.FunctionalGame:
  """Makes capture the flag.

  The reward of a player is a vector of its thirteen events in the step. A game
  terminates (discount 0) after `config.num_steps` steps, and the team with more
  captures wins. Observations come from `features` or `rays`, vectors, or from
  `rendering` or `columns`, images. Composite actions are dicts of 'move',
  'turn' and 'tag', int32 [P]; see `rules.Action`.

  Args:
    config: sizes and options; by default, two against two.

  Returns:
    The game. The first half of its players is team 0. Equal configs return the
    same object, so JAX compiles its functions only once.
  """
  return _make(config or config_lib.CaptureTheFlagConfig())


@functools.lru_cache
def _make(config: _Config) -> functional.FunctionalGame:

  def reset(key: types.Key) -> tuple[rules.State, dm_env.TimeStep]:
    state = rules.start(key, config)
    nothing = jnp.zeros((config.num_players, len(events.EVENT_NAMES)))
    return state, _timestep(state, nothing, config)

  def step(
    state: rules.State, action: types.ArrayTree
  ) -> tuple[rules.State, dm_env.TimeStep]:
    state, deeds = rules.step(
      state, actions.decode_action(action, config), config
    )
    reward = events.count(deeds, config.teams)
    return state, _timestep(state, reward, config)

  return functional.FunctionalGame(
    spec=_make_spec(config),
    reset=reset,
    step=step,
    teams=config.teams,
    event_names=events.EVENT_NAMES,
    headline='i_captured_the_flag',
    outcome=rules.outcome,
    scripts={
      name: opponents.make_script(name, config) for name in opponents.STRENGTHS
    },
    display=functional.Display(
      render=functools.partial(
        painting.render, config=config, tile_size=_FILM_TILE_SIZE
      ),
      score=lambda state: state.score,
      team_names=('blue', 'red'),
      legend=painting.LEGEND,
      look=functools.partial(
        columns.look, config=config, height=config.height * _FILM_TILE_SIZE
      ),
    ),
    page=browser.make_page(config),
  )


def _make_spec(config: _Config) -> types.EnvironmentSpec:
  observations: types.SpecTree
  name = config.observation
  if name in _VECTORS:
    observations = specs.Array(
      (_VECTORS[name].num_features(config),), np.float32, name
    )
  else:
    shape = _IMAGES[name].shape(config)
    observations = specs.BoundedArray(shape, np.uint8, 0, 255, name)
  if config.team_state:
    observations = {
      config.observation: observations,
      types.PRIVILEGED: specs.Array(
        (team_state.size(config),), np.float32, types.PRIVILEGED
      ),
    }
  if config.action == 'composite':
    action: types.SpecTree = {
      name: specs.DiscreteArray(num_values, np.int32, name)
      for name, num_values in actions.NUM_CHOICES.items()
    }
  else:
    action = math.prod(actions.NUM_CHOICES.values())
  return specified.make_spec(
    observations, action, num_events=len(events.EVENT_NAMES)
  )


def _timestep(
  state: rules.State, reward: types.Array, config: _Config
) -> dm_env.TimeStep:
  """Returns the observations of `state` and the reward [P, num_events]."""
  num_players = config.num_players
  is_over = rules.is_over(state, config)
  step_type = jnp.where(
    is_over,
    types.LAST,
    jnp.where(state.num_steps == 0, types.FIRST, types.MID),
  ).astype(jnp.int32)
  observe = {**_VECTORS, **_IMAGES}[config.observation].observe
  observation: types.ArrayTree = observe(state, config)
  if config.team_state:
    observation = {
      config.observation: observation,
      types.PRIVILEGED: team_state.observe(state, config),
    }
  return dm_env.TimeStep(
    step_type=jnp.full(num_players, step_type),
    reward=reward,
    discount=jnp.full(num_players, 1.0 - is_over.astype(jnp.float32)),
    observation=observation,
  )
