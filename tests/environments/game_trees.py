"""Exact values of small card games of pgx, over the tree of all their games.

Both players begin equally often, so that the value of a game between equals is
zero, and the value of a best response to a policy is its exploitability.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments import functional
from ftwax.inference import loaded_agent

# Copies of each card in the deck.
COPIES = {'kuhn_poker': 1, 'leduc_holdem': 2}

# Rows of a compiled call; more take several calls.
_CHUNK = 1024


class Policy(NamedTuple):
  """A policy that may remember its game.

  Attributes:
    init: makes the state of `n` rows.
    act: `(timestep, action, state) -> (probabilities, state)`: the
      probabilities of all actions, [n, A], given the seat's timestep and the
      action that it took before.
  """

  init: Callable[[int], Any]
  act: Callable[[Any, Any, Any], tuple[Any, Any]]


class _Level(NamedTuple):
  """All histories of one length, leaves [n, ...].

  Attributes:
    state: state of the game.
    timestep: timesteps of both seats, leaves [n, 2, ...].
    reach: probability of chance and of all policies together.
    parent: index of the history that it continues.
    move: the action that led to it.
    information: index of what the first seat knows.
    action: actions of both seats that led to it, [n, 2].
    memory: state of the policy of each seat.
  """

  state: Any
  timestep: Any
  reach: Any
  parent: Any
  move: Any
  information: Any
  action: Any
  memory: tuple[Any, Any]

  @property
  def is_last(self) -> Any:
    """Whether a history is a whole game, bool [n]."""
    return np.asarray(self.timestep.step_type[:, 0]) == types.LAST

  @property
  def waits(self) -> Any:
    """Whether it is not the first seat's turn, bool [n]."""
    return np.asarray(self.timestep.step_type[:, 0]) == types.ABSENT

  @property
  def masks(self) -> Any:
    """The legal actions of both seats, bool [n, 2, A]."""
    return np.asarray(self.timestep.observation[types.ACTION_MASK], bool)


def uniform() -> Policy:
  """Returns the policy that takes all legal actions equally often."""

  def act(timestep: Any, action: Any, state: Any) -> tuple[Any, Any]:
    del action
    mask = timestep.observation[types.ACTION_MASK].astype(jnp.float32)
    return mask / mask.sum(axis=1, keepdims=True), state

  return Policy(lambda num_rows: np.zeros(num_rows), act)


def of_agent(agent: loaded_agent.LoadedAgent, greedy: bool = False) -> Policy:
  """Returns the policy of a loaded agent."""

  def act(timestep: Any, action: Any, state: Any) -> tuple[Any, Any]:
    # The key is that of all rows, and chances nothing: actions are replaced.
    recurrent, seed = state
    key = jax.random.PRNGKey(0)
    old = agent.actor.init(key, len(action))
    old = old._replace(recurrent_state=recurrent, action=action, seed=seed)
    _, new = agent.actor.select_action(agent.variables, timestep, old)
    probabilities = jax.nn.softmax(new.logits)
    if greedy:
      best = new.logits.argmax(axis=1)
      probabilities = jax.nn.one_hot(best, new.logits.shape[1])
    return probabilities, (new.recurrent_state, new.seed)

  def init(num_rows: int) -> Any:
    state = agent.actor.init(jax.random.PRNGKey(0), num_rows)
    return state.recurrent_state, state.seed

  return Policy(init, act)


def value(
  game: functional.FunctionalGame,
  copies: int,
  second: Policy,
  first: Policy | None = None,
) -> float:
  """Returns the mean reward of the first seat against the second.

  Args:
    game: a card game of `pgx_adapter`, whose chance is all in the deal.
    copies: see `COPIES`.
    second: policy of the second seat.
    first: policy of the first seat; None for the best response.
  """
  levels = [_deal(game, copies, (first, second))]
  while not levels[-1].is_last.all():
    levels.append(_expand(game, levels[-1], (first, second)))
  below = None
  for index in reversed(range(len(levels))):
    child = levels[index + 1] if index + 1 < len(levels) else None
    below = _evaluate(levels[index], child, below, first is None)
  return float(below.sum())


def _deal(
  game: functional.FunctionalGame, copies: int, policies: Any
) -> _Level:
  """Returns all deals."""
  # Enough for each to come up, without any knowledge of the game's states.
  keys = jax.random.split(jax.random.PRNGKey(0), 4096)
  state, timestep = jax.jit(jax.vmap(game.reset))(keys)
  cards = np.asarray(state.state._cards)
  begins = np.asarray(state.state.current_player)[:, None]
  rows = np.unique(np.hstack([cards, begins]), axis=0, return_index=True)[1]
  state, timestep = _take((state, timestep), rows)
  weights = np.ones(len(rows))
  for place in range(cards.shape[1]):
    drawn = (cards[rows, :place] == cards[rows, place, None]).sum(axis=1)
    weights *= copies - drawn
  num_rows = len(rows)
  return _Level(
    state,
    timestep,
    weights / weights.sum(),
    np.zeros(num_rows, int),
    np.zeros(num_rows, int),
    _inform(timestep, np.zeros(num_rows, int)),
    np.full((num_rows, 2), types.NO_ACTION, np.int32),
    tuple(policy and policy.init(num_rows) for policy in policies),
  )


def _inform(timestep: Any, before: Any) -> Any:
  """Numbers what the first seat knows, by what it knew and what it sees."""
  seen = [
    np.asarray(leaf[:, 0]).reshape(len(before), -1)
    for leaf in jax.tree.leaves(timestep.observation)
  ]
  rows = np.hstack([before[:, None], *seen]).astype(np.int64)
  return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


def _expand(
  game: functional.FunctionalGame, level: _Level, policies: Any
) -> _Level:
  """Returns the histories that are one move longer."""
  masks, is_open = level.masks, ~level.is_last
  idle = masks.shape[2]
  mover = np.where(level.waits, 1, 0)
  rows = np.arange(len(mover))
  chances = np.ones(masks.shape[::2])
  memory = list(level.memory)
  for seat, policy in enumerate(policies):
    if policy is not None:
      timestep = jax.tree.map(lambda leaf: leaf[:, seat], level.timestep)  # noqa: B023
      own, memory[seat] = _in_chunks(
        policy.act, timestep, level.action[:, seat], memory[seat]
      )
      chances = np.where((mover == seat)[:, None], own, chances)
  legal = masks[rows, mover] & is_open[:, None]
  parent, move = np.nonzero(legal)
  action = np.array(level.action[parent])
  action[np.arange(len(parent)), mover[parent]] = move
  state, timestep = _in_chunks(
    _vectorized(game.step),
    _take(level.state, parent),
    action,
  )
  before = level.information[parent] * (idle + 1) + np.where(
    mover[parent] == 0, move, idle
  )
  return _Level(
    state,
    timestep,
    level.reach[parent] * chances[parent, move],
    parent,
    move,
    _inform(timestep, before),
    action,
    _take(tuple(memory), parent),
  )


def _evaluate(level: _Level, child: Any, below: Any, responds: bool) -> Any:
  """Returns the value of each history times its probability, [n]."""
  values = level.reach * np.asarray(level.timestep.reward[:, 0], np.float64)
  values = np.where(level.is_last, values, 0.0)
  if child is None:
    return values
  masks = level.masks
  of_moves = np.zeros(masks.shape[::2])
  of_moves[child.parent, child.move] = below
  summed = of_moves.sum(axis=1)
  if responds:
    # What the seat knows is the same in several histories: so is its move.
    totals = np.zeros((level.information.max() + 1, masks.shape[2]))
    np.add.at(totals, level.information, of_moves)
    best = np.where(masks[:, 0], totals[level.information], -np.inf)
    chosen = of_moves[np.arange(len(best)), best.argmax(axis=1)]
    summed = np.where(level.waits, summed, chosen)
  return np.where(level.is_last, values, summed)


@functools.cache
def _vectorized(step: Any) -> Any:
  """Returns the same function each time, which compiles once."""
  return jax.vmap(step)


@functools.cache
def _compiled(function: Any) -> Any:
  return jax.jit(function)


def _in_chunks(function: Any, *trees: Any) -> Any:
  """Applies a function to rows in chunks of one size, so compiles once."""
  num_rows = len(jax.tree.leaves(trees)[0])
  results = []
  for start in range(0, num_rows, _CHUNK):
    rows = np.minimum(np.arange(start, start + _CHUNK), num_rows - 1)
    results.append(_compiled(function)(*_take(trees, rows)))
  return jax.tree.map(
    lambda *leaves: np.concatenate(leaves)[:num_rows], *results
  )


def _take(tree: Any, rows: Any) -> Any:
  return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], tree)
