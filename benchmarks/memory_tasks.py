"""Tasks for memories in JAX: those of POPGym, and recall over a long delay.

Morad et al., 2023, "POPGym: benchmarking partially observable reinforcement
learning" (arXiv:2303.01859), by its paper and code; here cards are observed as
one-hot codes. Long recall is a T-maze without the walk (Bakker, 2002): one of
several goals is shown at the first step, and must be named after `delay` more.
Nothing but the question tells the time, and every step has noise that must not
displace the memory.
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


def _shuffle(
  key: types.Key, num_decks: int, num_kinds: int = _NUM_SUITS
) -> types.Array:
  """Returns the kinds of shuffled cards, int32 [num_decks * 52]."""
  kinds = jnp.arange(num_decks * _CARDS_PER_DECK, dtype=jnp.int32) % num_kinds
  return jax.random.permutation(key, kinds)


def _deal(key: types.Key, num_decks: int) -> DeckState:
  return DeckState(_shuffle(key, num_decks), jnp.zeros((), jnp.int32))


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


class CountState(NamedTuple):
  """State of CountRecall.

  Attributes:
    cards: int32 [2, num_cards], the kinds of cards that are dealt, and of those
      that are asked for, in order.
    step: int32 [], number of actions taken so far.
  """

  cards: types.Array
  step: types.Array


def count_recall(
  num_decks: int = 1, num_kinds: int = 2
) -> functional.FunctionalEnvironment:
  """Makes CountRecall: tell how many cards of a kind have been dealt so far.

  POPGym's easy, medium and hard are (1, 2), (2, 4) and (4, 13): colors, suits
  and ranks. Each step deals a card and asks for a kind, drawn from a deck of
  its own. A right action returns `1 / (num_cards - 1)`, others minus that.

  Args:
    num_decks: number of decks of 52 cards.
    num_kinds: number of kinds, which divides 52.

  Returns:
    The environment. Its observation is float32 [2 * num_kinds]: the card, and
    the kind that is asked for.

  Raises:
    ValueError: if `num_decks` is below 1, or `num_kinds` no divisor from 2 on.
  """
  _check_kinds(num_decks, num_kinds, 'count_recall')
  num_cards = num_decks * _CARDS_PER_DECK

  def observe(state: CountState) -> types.Array:
    return jax.nn.one_hot(state.cards[:, state.step], num_kinds).ravel()

  def reset(key: types.Key) -> tuple[CountState, dm_env.TimeStep]:
    cards = [_shuffle(k, num_decks, num_kinds) for k in jax.random.split(key)]
    state = CountState(jnp.stack(cards), jnp.zeros((), jnp.int32))
    return state, functional.restart(observe(state))

  def step(
    state: CountState, action: types.Array
  ) -> tuple[CountState, dm_env.TimeStep]:
    dealt, asked = state.cards
    is_counted = (dealt == asked[state.step]) & (
      jnp.arange(num_cards) <= state.step
    )
    is_right = action == jnp.sum(is_counted)
    state = state._replace(step=state.step + 1)
    return state, functional.transition(
      jnp.where(is_right, 1.0, -1.0) / (num_cards - 1),
      observe(state),
      is_terminal=state.step == num_cards - 1,
    )

  spec = specified.make_spec(
    specs.Array((2 * num_kinds,), np.float32, 'observation'),
    num_cards // num_kinds + 1,
    reward_range=(-1, 1),
  )
  return functional.FunctionalEnvironment(spec, reset, step)


class TableState(NamedTuple):
  """State of Concentration.

  Attributes:
    kinds: int32 [num_cards], the kind of each card on the table.
    is_won: bool [num_cards], whether it is face up for good.
    first: int32 [], the card turned up before; -1 if the next action is the
      first of a pair.
    step: int32 [], number of actions taken so far.
  """

  kinds: types.Array
  is_won: types.Array
  first: types.Array
  step: types.Array


def concentration(
  num_decks: int = 1, num_kinds: int = 2
) -> functional.FunctionalEnvironment:
  """Makes Concentration: turn up pairs of cards of one kind.

  POPGym's easy, medium and hard are (1, 2), (2, 2) and (1, 13). An action turns
  a card up. Two that match stay up, which returns `2 / num_cards`; others
  return minus `2 / num_steps`, where `num_steps` is the length of an episode,
  about `2 * num_cards`. To turn a card that is up for good ends the pair, and
  returns minus `1 / num_steps` for each of its cards.

  Args:
    num_decks: number of decks of 52 cards.
    num_kinds: number of kinds, which divides 26.

  Returns:
    The environment. Its observation is float32 [num_cards * (num_kinds + 1)]:
    a code for each card, the last entry of which is 1 if it is face down.

  Raises:
    ValueError: if `num_decks` is below 1, or `num_kinds` no divisor from 2 on.
  """
  _check_kinds(num_decks, num_kinds, 'concentration', num_copies=2)
  num_cards = num_decks * _CARDS_PER_DECK
  # That of a perfect player on average, if all pairs are different.
  num_steps = math.ceil(2 * num_cards - num_cards / (2 * num_cards - 1))

  def observe(state: TableState, is_up: types.Array) -> types.Array:
    seen = jnp.where(is_up, state.kinds, num_kinds)
    return jax.nn.one_hot(seen, num_kinds + 1).ravel()

  def reset(key: types.Key) -> tuple[TableState, dm_env.TimeStep]:
    is_won = jnp.zeros(num_cards, bool)
    state = TableState(
      _shuffle(key, num_decks, num_kinds), is_won, jnp.int32(-1), jnp.int32(0)
    )
    return state, functional.restart(observe(state, is_won))

  def step(
    state: TableState, action: types.Array
  ) -> tuple[TableState, dm_env.TimeStep]:
    kinds, is_won, first, _ = state
    is_first = first < 0
    cards = jnp.arange(num_cards)
    turned = (cards == action) | (cards == first)
    ends = is_won[action] | ~is_first
    is_match = ~is_won[action] & ~is_first & (action != first)
    is_match &= kinds[action] == kinds[first]
    failure = jnp.where(is_first, 1.0, 2.0) / num_steps
    reward = jnp.where(is_match, 2.0 / num_cards, -failure)
    state = TableState(
      kinds,
      is_won | (turned & is_match),
      jnp.where(ends, -1, action).astype(jnp.int32),
      state.step + 1,
    )
    return state, functional.transition(
      jnp.where(ends, reward, 0.0),
      observe(state, is_won | turned),
      is_terminal=jnp.all(state.is_won),
      is_truncated=state.step >= num_steps,
    )

  spec = specified.make_spec(
    specs.Array((num_cards * (num_kinds + 1),), np.float32, 'observation'),
    num_cards,
    reward_range=(-4, 1),
  )
  return functional.FunctionalEnvironment(spec, reset, step)


def _check_kinds(
  num_decks: int, num_kinds: int, name: str, num_copies: int = 1
) -> None:
  specified.check_at_least(1, num_decks=num_decks)
  divided = _CARDS_PER_DECK // num_copies
  if num_kinds < 2 or divided % num_kinds:
    raise ValueError(
      f'num_kinds ({num_kinds}) of {name} must divide {divided} and be at least'
      ' 2; choose 2, 4 or 13, as POPGym does.'
    )


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


class LongRecallState(NamedTuple):
  """State of an episode.

  Attributes:
    goal: int32 [], the goal that was shown.
    step: int32 [], number of actions taken so far.
    key: random key of the noise.
  """

  goal: types.Array
  step: types.Array
  key: types.Key


def long_recall(
  delay: int = 100, num_goals: int = 4, noise_size: int = 4
) -> functional.FunctionalEnvironment:
  """Makes the task.

  An episode has `delay + 1` transitions. The last action is rewarded with 1 if
  it is the index of the goal; others have no effect. Guessing returns
  `1 / num_goals` on average.

  Args:
    delay: steps between the cue and the question, at least 1.
    num_goals: number of goals, at least 2.
    noise_size: number of standard normal numbers in each observation.

  Returns:
    The environment. Its observation is float32 [num_goals + 1 + noise_size]:
    the one-hot code of the goal at the first step and zeros later, a flag that
    is 1 when the goal is asked for, and the noise.

  Raises:
    ValueError: if an argument is too small.
  """
  specified.check_at_least(1, delay=delay)
  specified.check_at_least(2, num_goals=num_goals)
  specified.check_at_least(0, noise_size=noise_size)

  def observe(state: LongRecallState) -> types.Array:
    cue = jax.nn.one_hot(state.goal, num_goals)
    noise_key = jax.random.fold_in(state.key, state.step)
    return jnp.concatenate(
      [
        jnp.where(state.step == 0, cue, 0.0),
        jnp.float32(state.step >= delay)[None],
        jax.random.normal(noise_key, (noise_size,)),
      ]
    )

  def reset(key: types.Key) -> tuple[LongRecallState, dm_env.TimeStep]:
    goal_key, noise_key = jax.random.split(key)
    goal = jax.random.randint(goal_key, (), 0, num_goals, jnp.int32)
    state = LongRecallState(goal, jnp.zeros((), jnp.int32), noise_key)
    return state, functional.restart(observe(state))

  def step(
    state: LongRecallState, action: types.Array
  ) -> tuple[LongRecallState, dm_env.TimeStep]:
    is_asked = state.step == delay
    state = state._replace(step=state.step + 1)
    return state, functional.transition(
      jnp.float32(is_asked & (action == state.goal)),
      observe(state),
      is_terminal=is_asked,
    )

  size = num_goals + 1 + noise_size
  spec = specified.make_spec(
    specs.Array((size,), np.float32, 'observation'), num_goals
  )
  return functional.FunctionalEnvironment(spec, reset, step)
