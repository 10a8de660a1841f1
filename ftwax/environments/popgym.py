"""Tasks of POPGym in JAX, by the definitions of its paper and code.

Morad et al., 2023, "POPGym: benchmarking partially observable reinforcement
learning" (arXiv:2303.01859). Here a suit is observed as a one-hot code.
"""

import math
from typing import NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional, specified

_NUM_SUITS, _CARDS_PER_DECK = 4, 52


class DeckState(NamedTuple):
  """State of a task with cards.

  Attributes:
    suits: int32 [num_cards], the suits in the order in which they are dealt.
    step: int32 [], number of actions taken so far.
  """

  suits: types.Array
  step: types.Array


def _deal(key: types.Key, num_decks: int) -> DeckState:
  suits = jnp.arange(num_decks * _CARDS_PER_DECK, dtype=jnp.int32) % _NUM_SUITS
  return DeckState(jax.random.permutation(key, suits), jnp.zeros((), jnp.int32))


def repeat_previous(
  num_decks: int = 1, k: int = 4
) -> functional.FunctionalEnvironment:
  """Makes RepeatPrevious: name the suit of the card seen `k - 1` steps ago.

  POPGym's easy, medium and hard are (1, 4), (2, 32) and (3, 64). An action from
  the `k`-th card on returns `1 / (num_cards - k)` if it is right, else minus
  that, so a perfect return is 1 and guessing returns -0.5.

  Args:
    num_decks: number of decks of 52 cards, which are seen one at a time.
    k: the distance, counted from 1 for the card in sight.

  Returns:
    The environment. Its observation is float32 [4].

  Raises:
    ValueError: if an argument is below 1, or there are not more cards than `k`.
  """
  specified.check_at_least(1, num_decks=num_decks, k=k)
  num_cards = num_decks * _CARDS_PER_DECK
  if k >= num_cards:
    raise ValueError(
      f'k ({k}) must be below the number of cards, {num_cards}; choose k=4, or'
      ' more decks.'
    )

  def observe(state: DeckState) -> types.Array:
    return jax.nn.one_hot(state.suits[state.step], _NUM_SUITS)

  def reset(key: types.Key) -> tuple[DeckState, dm_env.TimeStep]:
    state = _deal(key, num_decks)
    return state, functional.restart(observe(state))

  def step(
    state: DeckState, action: types.Array
  ) -> tuple[DeckState, dm_env.TimeStep]:
    previous = state.step + 1 - k
    is_right = action == state.suits[jnp.maximum(previous, 0)]
    reward = jnp.where(is_right, 1.0, -1.0) / (num_cards - k)
    state = state._replace(step=state.step + 1)
    return state, functional.transition(
      jnp.where(previous >= 0, reward, 0.0),
      observe(state),
      is_terminal=jnp.bool_(False),
      is_truncated=state.step == num_cards - 1,
    )

  spec = specified.make_spec(
    specs.Array((_NUM_SUITS,), np.float32, 'observation'),
    _NUM_SUITS,
    reward_range=(-1, 1),
  )
  return functional.FunctionalEnvironment(spec, reset, step)


def autoencode(num_decks: int = 1) -> functional.FunctionalEnvironment:
  """Makes Autoencode: name the suits of a deck in reverse order.

  POPGym's easy, medium and hard have 1, 2 and 3 decks. While cards are shown,
  actions have no effect; then each returns `1 / num_cards` if it is right, else
  minus that. The flag to play comes with the last card.

  Args:
    num_decks: number of decks of 52 cards.

  Returns:
    The environment. Its observation is float32 [5]: the suit, which is the
    first one after the last card, and a flag that is 1 while cards are shown.

  Raises:
    ValueError: if `num_decks` is below 1.
  """
  specified.check_at_least(1, num_decks=num_decks)
  num_cards = num_decks * _CARDS_PER_DECK
  last = num_cards - 1

  def observe(state: DeckState) -> types.Array:
    suit = jnp.where(
      state.step > last, 0, state.suits[jnp.minimum(state.step, last)]
    )
    is_shown = jnp.float32(state.step < last)
    return jnp.append(jax.nn.one_hot(suit, _NUM_SUITS), is_shown)

  def reset(key: types.Key) -> tuple[DeckState, dm_env.TimeStep]:
    state = _deal(key, num_decks)
    return state, functional.restart(observe(state))

  def step(
    state: DeckState, action: types.Array
  ) -> tuple[DeckState, dm_env.TimeStep]:
    asked = 2 * last - state.step  # Counts down from the last card.
    is_right = action == state.suits[jnp.clip(asked, 0, last)]
    reward = jnp.where(is_right, 1.0, -1.0) / num_cards
    state = state._replace(step=state.step + 1)
    return state, functional.transition(
      jnp.where(asked <= last, reward, 0.0),
      observe(state),
      is_terminal=asked == 0,
    )

  spec = specified.make_spec(
    specs.Array((_NUM_SUITS + 1,), np.float32, 'observation'),
    _NUM_SUITS,
    reward_range=(-1, 1),
  )
  return functional.FunctionalEnvironment(spec, reset, step)


class CartPoleState(NamedTuple):
  """State of a cart with a pole.

  Attributes:
    motion: float32 [4], position, velocity, angle and angular velocity.
    step: int32 [], number of actions taken so far.
  """

  motion: types.Array
  step: types.Array


def stateless_cart_pole(
  num_steps: int = 200,
) -> functional.FunctionalEnvironment:
  """Makes StatelessCartPole: balance a pole without seeing velocities.

  POPGym's easy, medium and hard have 200, 400 and 600 steps. Each step returns
  `1 / num_steps`. The dynamics are those of Barto et al., 1983, with the
  constants of Gym.

  Args:
    num_steps: steps after which an episode is truncated.

  Returns:
    The environment. Its observation is float32 [2], position and angle.

  Raises:
    ValueError: if `num_steps` is below 1.
  """
  specified.check_at_least(1, num_steps=num_steps)

  def reset(key: types.Key) -> tuple[CartPoleState, dm_env.TimeStep]:
    motion = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
    state = CartPoleState(motion, jnp.zeros((), jnp.int32))
    return state, functional.restart(motion[::2])

  def step(
    state: CartPoleState, action: types.Array
  ) -> tuple[CartPoleState, dm_env.TimeStep]:
    motion = _balance(state.motion, action)
    state = CartPoleState(motion, state.step + 1)
    has_fallen = jnp.abs(motion[2]) > math.radians(12.0)
    return state, functional.transition(
      jnp.float32(1.0 / num_steps),
      motion[::2],
      is_terminal=(jnp.abs(motion[0]) > 2.4) | has_fallen,
      is_truncated=state.step >= num_steps,
    )

  spec = specified.make_spec(
    specs.Array((2,), np.float32, 'observation'), 2, reward_range=(0, 1)
  )
  return functional.FunctionalEnvironment(spec, reset, step)


def _balance(motion: types.Array, action: types.Array) -> types.Array:
  """Moves the cart for 0.02 seconds, to the left (0) or to the right (1)."""
  _, velocity, angle, angular_velocity = motion
  mass, pole_mass, pole_length = 1.1, 0.1, 0.5  # The length is half of it.
  sin, cos = jnp.sin(angle), jnp.cos(angle)
  force = jnp.where(action == 1, 10.0, -10.0)
  force += pole_mass * pole_length * jnp.square(angular_velocity) * sin
  angular_acceleration = (9.8 * sin - cos * force / mass) / (
    pole_length * (4.0 / 3.0 - pole_mass * jnp.square(cos) / mass)
  )
  acceleration = (
    force - pole_mass * pole_length * angular_acceleration * cos
  ) / mass
  change = [velocity, acceleration, angular_velocity, angular_acceleration]
  return motion + 0.02 * jnp.stack(change)
