"""Games in which each seat comes, goes and waits by a table.

A seat gets a reward of 1 at each step of the game from its first decision to
its end, also while it waits.
"""

from typing import NamedTuple

import dm_env
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments import functional, pettingzoo_adapter, specified

F, M, L, A = types.FIRST, types.MID, types.LAST, types.ABSENT

# Rows are seats, columns steps of the game; the last column ends it.
TABLE = np.array(
  [
    [F, M, M, M, M, M, M, M, L],  # There all the time, then cut off.
    [F, M, M, L, A, A, A, A, L],  # Its own time limit.
    [F, M, L, A, F, M, M, M, L],  # Dies and returns.
    [A, A, A, F, M, A, A, M, L],  # Arrives, then waits.
  ]
)
NUM_SEATS, NUM_COLUMNS = TABLE.shape
# Seats that are cut off. Both see the same at each step, so that a core with a
# state learns from the longer one what the last step of the shorter is worth.
CUT = (0, 1)


def rewards(table):
  """Returns the rewards of a table, by seats and steps."""
  paid = np.zeros(table.shape, np.float32)
  for seat, row in enumerate(table):
    is_in = False
    for step, kind in enumerate(row):
      paid[seat, step] = float(is_in and kind != F)
      is_in = (is_in or kind == F) and kind != L
  return paid


def discounts(table):
  """Returns the discounts: 0 at each end but those of the seats `CUT`."""
  discount = np.where(table == L, 0.0, 1.0).astype(np.float32)
  discount[list(CUT)] = 1.0
  return discount


def observe(seat, step):
  """Returns which seat it is and the step, or that it is one of `CUT`."""
  seen = np.zeros(NUM_SEATS + NUM_COLUMNS, np.float32)
  seen[CUT[0] if seat in CUT else seat] = 1.0
  seen[NUM_SEATS + step] = float(seat not in CUT)
  return seen


def exact_values(discount, table=TABLE):
  """Returns the value of each decision, by seat and step."""
  paid, ends = rewards(table), discounts(table)
  values = {}
  for seat, row in enumerate(table):
    after, owed = 0.0, 0.0
    for step in reversed(range(len(row))):
      if row[step] < L:
        values[seat, step] = owed + discount * after
      if row[step] != A:
        after = values.get((seat, step), 0.0)
        if seat in CUT:
          after = 1.0 / (1.0 - discount)
        after *= ends[seat, step]
        owed = 0.0
      owed += paid[seat, step]
  return values


class State(NamedTuple):
  """The step of the game."""

  step: types.Array


def make(table=TABLE, teams=(0,) * NUM_SEATS):
  """Makes the game of a table in JAX."""
  kinds, paid = jnp.array(table, jnp.int32), jnp.array(rewards(table))
  ends = jnp.array(discounts(table))
  seen = jnp.array(
    [[observe(s, t) for t in range(NUM_COLUMNS)] for s in range(NUM_SEATS)]
  )

  def timestep(step):
    return dm_env.TimeStep(
      kinds[:, step], paid[:, step], ends[:, step], seen[:, step]
    )

  def reset(key):
    del key
    return State(jnp.int32(0)), timestep(0)

  def step(state, action):
    del action
    state = State(state.step + 1)
    return state, timestep(state.step)

  specs = jax.eval_shape(reset, jax.random.PRNGKey(0))[1].observation
  spec = specified.make_spec(
    functional.array_specs(jax.ShapeDtypeStruct(specs.shape[1:], specs.dtype)),
    2,
  )
  return functional.FunctionalGame(
    spec=spec._replace(absences=True),
    reset=reset,
    step=step,
    teams=teams,
    event_names=('reward',),
    outcome=lambda state: jnp.zeros(max(teams) + 1),
  )


def make_parallel(seed, table=TABLE, teams=(0,) * NUM_SEATS):
  """Makes the game of a table as one of PettingZoo."""
  return pettingzoo_adapter.PettingZooGame(
    Parallel(table), teams=teams, seed=seed
  )


class Parallel:
  """The game of a table as a parallel environment of PettingZoo."""

  def __init__(self, table=TABLE):
    self._table, self._paid = table, rewards(table)
    self._ends = discounts(table)
    self.possible_agents = [f'agent_{seat}' for seat in range(NUM_SEATS)]
    self.agents = []

  def observation_space(self, agent):
    del agent
    return gymnasium.spaces.Box(0, 1, (NUM_SEATS + NUM_COLUMNS,), np.float32)

  def action_space(self, agent):
    del agent
    return gymnasium.spaces.Discrete(2)

  def reset(self, seed=None, options=None):
    del seed, options
    self._step = 0
    return self._tell()[0], {}

  def step(self, actions):
    assert set(actions) == set(self.agents)
    self._step += 1
    return self._tell()

  def close(self):
    pass

  def _tell(self):
    column = self._table[:, self._step]
    here = {
      agent: seat
      for seat, agent in enumerate(self.possible_agents)
      if column[seat] != A
    }
    self.agents = [agent for agent, seat in here.items() if column[seat] != L]
    ends = {agent: column[seat] == L for agent, seat in here.items()}
    is_cut = {
      agent: self._ends[seat, self._step] > 0 for agent, seat in here.items()
    }
    return (
      {agent: observe(seat, self._step) for agent, seat in here.items()},
      {
        agent: float(self._paid[seat, self._step])
        for seat, agent in enumerate(self.possible_agents)
      },
      {agent: ends[agent] and not is_cut[agent] for agent in here},
      {agent: ends[agent] and is_cut[agent] for agent in here},
      {},
    )
