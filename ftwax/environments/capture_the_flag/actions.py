"""Actions of capture the flag, as agents choose them and as rules take them."""

import jax.numpy as jnp

from ftwax import types
from ftwax.environments.capture_the_flag import game_config as config_lib
from ftwax.environments.capture_the_flag import rules

# Choices of each part of an action, in the order in which 'flat' counts them.
NUM_CHOICES = {'move': len(rules.MOVES), 'turn': len(rules.TURNS), 'tag': 2}


def decode_action(
  action: types.ArrayTree, config: config_lib.CaptureTheFlagConfig
) -> rules.Action:
  """Returns the action of the rules; a flat one counts tags fastest."""
  if config.action == 'composite':
    return rules.Action(action['move'], action['turn'], action['tag'])
  rest, tag = jnp.divmod(action, NUM_CHOICES['tag'])
  move, turn = jnp.divmod(rest, NUM_CHOICES['turn'])
  return rules.Action(move, turn, tag)


def encode_action(
  action: rules.Action, config: config_lib.CaptureTheFlagConfig
) -> types.ArrayTree:
  """Returns the action as the game takes it; undoes `decode_action`."""
  if config.action == 'composite':
    return action._asdict()
  rest = action.move * NUM_CHOICES['turn'] + action.turn
  return rest * NUM_CHOICES['tag'] + action.tag
