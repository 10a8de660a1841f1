"""Past selves: frozen copies of members, which later members play against.

A snapshot of a member is kept every few rounds, of each member in turn, and
takes the place of the oldest one. In each round a few of the snapshots play;
`matchmaking` draws them. In fictitious self-play all past selves count, so that
members cannot go in circles; the games are spent on those that are hard to beat
(Vinyals et al., 2019, "Grandmaster level in StarCraft II").
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import trees, types
from ftwax.population import payoff as payoff_lib

# Weight of earlier results after each round, so that they count for about
# twenty rounds: members learn.
_MEMORY = 0.95


class PastSelves(NamedTuple):
  """`S` snapshots, all of the first members before any other.

  Attributes:
    variables: actor variables, leaves [S, ...].
    member: int32 [S], the member of which each is a snapshot.
    payoff: results of members against snapshots, [N, S]; recent ones count
      most.
    rounds: int32 [], rounds that have begun.
    num_taken: int32 [], snapshots taken in them.
  """

  variables: types.ActorVariables
  member: types.Array
  payoff: payoff_lib.Payoff
  rounds: types.Array
  num_taken: types.Array


def init(members: types.TrainingState, num_past: int) -> PastSelves:
  """Returns snapshots of members [N, ...], in turn."""
  num_members = members.internal_rewards.shape[0]
  member = jnp.arange(num_past, dtype=jnp.int32) % num_members
  zeros = jnp.zeros((num_members, num_past))
  return PastSelves(
    variables=trees.take(types.actor_variables(members), member),
    member=member,
    payoff=payoff_lib.Payoff(zeros, zeros),
    rounds=jnp.int32(0),
    num_taken=jnp.int32(0),
  )


def begin_round(
  past: PastSelves, members: types.TrainingState, period: int
) -> tuple[PastSelves, types.Array]:
  """Starts a round, with a snapshot if one is due.

  Args:
    past: before the round.
    members: the members now, leaves [N, ...].
    period: rounds between two snapshots.

  Returns:
    The snapshots; and which are new, bool [S].
  """
  num_members, num_past = past.payoff.games.shape
  is_due = (past.rounds > 0) & (past.rounds % period == 0)
  is_new = is_due & (jnp.arange(num_past) == past.num_taken % num_past)
  member = jnp.where(is_new, past.num_taken % num_members, past.member)
  now = trees.take(types.actor_variables(members), member)
  after = PastSelves(
    variables=trees.where_rows(is_new, now, past.variables),
    member=member,
    payoff=jax.tree.map(
      lambda leaf: jnp.where(is_new[None], 0.0, _MEMORY * leaf), past.payoff
    ),
    rounds=past.rounds + 1,
    num_taken=past.num_taken + is_due,
  )
  return after, is_new


def win_rates(past: PastSelves) -> types.Array:
  """Returns the score [N, S] of members against snapshots, 0.5 at first."""
  # As if there had been a draw, so that one game does not decide.
  return (past.payoff.scores + 0.5) / (past.payoff.games + 1.0)


def draw(
  key: types.Key, weights: types.Array, seats: types.Array, places: types.Array
) -> types.Array:
  """Draws the snapshots that play in a round.

  Args:
    key: random key.
    weights: float32 [N, S], of each snapshot for each member.
    seats: int32 [G, P], the player on each seat.
    places: int32 [J], the player that each drawn snapshot takes the seats of.

  Returns:
    int32 [J], snapshots: each drawn with the weights of a random member of
    those who play against it.
  """
  plays = jnp.any(seats[:, :, None] == places[None, None], axis=1)  # [G, J]
  seated = jax.nn.one_hot(seats, weights.shape[0])  # [G, P, N]
  chances = weights / jnp.maximum(jnp.sum(weights, 1, keepdims=True), 1e-9)
  drawn = jnp.einsum(
    'gj,gpn,ns->js', plays.astype(jnp.float32), seated, chances
  )
  logits = jnp.log(drawn + 1e-6)  # Whoever beats all of them meets each.
  return jax.random.categorical(key, logits).astype(jnp.int32)


def seat(states: tuple[Any, ...], variables: Any) -> tuple[Any, ...]:
  """Gives past selves, the last of some players, their variables.

  Args:
    states: initial states of all players that do not learn.
    variables: leaves [J, ...]; `()` without past selves.

  Returns:
    The states, those of the last J players for `players.past_self`.
  """
  leaves = jax.tree.leaves(variables)
  first = len(states) - (len(leaves[0]) if leaves else 0)
  return states[:first] + tuple(
    (trees.take(variables, index), state)
    for index, state in enumerate(states[first:])
  )
