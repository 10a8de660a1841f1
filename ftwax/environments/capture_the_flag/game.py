"""Capture the flag as a functional game: specs, actions and timesteps."""

import functools

import dm_env
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional
from ftwax.environments.capture_the_flag import (
  actions,
  events,
  features,
  opponents,
  rendering,
  rules,
)
from ftwax.environments.capture_the_flag import game_config as config_lib


def make(
  config: config_lib.CaptureTheFlagConfig | None = None,
) -> functional.FunctionalGame:
  """Makes the game of capture the flag that `config` describes.

  The reward of a player is its thirteen events of the step. The game is over
  (discount 0) after `config.num_steps` steps, and the team with more captures
  has won. Observations are those of `features` or, as images, of `rendering`.
  Composite actions are dicts of 'move', 'turn' and 'tag'; see `rules`.

  Args:
    config: sizes and rules; by default two against two.

  Returns:
    The game; its first half of players is team 0. Equal configs give the very
    same functions, so that JAX compiles them once.
  """
  return _make(config or config_lib.CaptureTheFlagConfig())


@functools.lru_cache
def _make(
  config: config_lib.CaptureTheFlagConfig,
) -> functional.FunctionalGame:

  def reset(key):
    state = rules.start(key, config)
    deeds = _nothing(config.num_players)
    return state, _timestep(state, deeds, config)

  def step(state, action):
    state, deeds = rules.step(
      state, actions.decode_action(action, config), config
    )
    return state, _timestep(state, deeds, config)

  return functional.FunctionalGame(
    spec=_make_spec(config),
    reset=reset,
    step=step,
    teams=config.teams,
    event_names=events.EVENT_NAMES,
    outcome=rules.outcome,
    scripts={
      name: opponents.make_script(name, config) for name in opponents.STRENGTHS
    },
  )


def _make_spec(config):
  if config.observation == 'features':
    observations = specs.Array(
      (features.num_features(config),), np.float32, 'features'
    )
  else:
    side = config.view_size * config.tile_size
    observations = specs.BoundedArray((side, side, 3), np.uint8, 0, 255, 'rgb')
  if config.action == 'composite':
    action = {
      name: specs.DiscreteArray(num_values, np.int32, name)
      for name, num_values in actions.NUM_CHOICES.items()
    }
  else:
    num_values = int(np.prod(list(actions.NUM_CHOICES.values())))
    action = specs.DiscreteArray(num_values, np.int32, 'action')
  return types.EnvironmentSpec(
    observations=observations,
    actions=action,
    rewards=specs.Array((len(events.EVENT_NAMES),), np.float32, 'events'),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, 'discount'),
  )


def _nothing(num_players):
  none = jnp.zeros(num_players, bool)
  return rules.Deeds(
    jnp.zeros((num_players, num_players), bool), none, none, none, none
  )


def _timestep(state, deeds, config):
  num_players = config.num_players
  is_over = rules.is_over(state, config)
  step_type = jnp.where(
    is_over,
    dm_env.StepType.LAST,
    jnp.where(state.num_steps == 0, dm_env.StepType.FIRST, dm_env.StepType.MID),
  ).astype(jnp.int32)
  observe = (
    features.observe if config.observation == 'features' else rendering.observe
  )
  return dm_env.TimeStep(
    step_type=jnp.full(num_players, step_type),
    reward=events.count(deeds, config.teams),
    discount=jnp.full(num_players, 1.0 - is_over.astype(jnp.float32)),
    observation=observe(state, config),
  )
