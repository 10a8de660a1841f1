"""Converts between actions of agents and actions of the rules."""

import jax.numpy as jnp

from ftwax import types
from ftwax.environments.capture_the_flag import game_config as config_lib
from ftwax.environments.capture_the_flag import rules

# Number of choices of each part, in the order used by 'flat' actions.
NUM_CHOICES = {'move': len(rules.MOVES), 'turn': len(rules.TURNS), 'tag': 2}


def decode_action(
  action: types.ArrayTree, config: config_lib.CaptureTheFlagConfig
) -> rules.Action:
  """Converts an action of the game to an action of the rules.

  Args:
    action: int32 [...]: a dict of 'move', 'turn' and 'tag', or a flat action,
      `(move * num_turns + turn) * 2 + tag`.
    config: config of the game, which selects one of the two.
  """
  if config.action == 'composite':
    return rules.Action(action['move'], action['turn'], action['tag'])
  rest, tag = jnp.divmod(action, NUM_CHOICES['tag'])
  move, turn = jnp.divmod(rest, NUM_CHOICES['turn'])
  return rules.Action(move, turn, tag)


def encode_action(
  action: rules.Action, config: config_lib.CaptureTheFlagConfig
) -> types.ArrayTree:
  """Converts an action of the rules to an action of the game, int32 [...]."""
  if config.action == 'composite':
    return action._asdict()
  rest = action.move * NUM_CHOICES['turn'] + action.turn
  return rest * NUM_CHOICES['tag'] + action.tag
