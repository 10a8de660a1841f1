"""Schedules: what a member's ancestors went through, for one agent to follow.

A population finds not only values but their change over training. `of_member`
reads it from the records of a run, and `follow` makes a learner go through it,
without a population.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from ftwax import types
from ftwax.population import lineage


@dataclasses.dataclass(frozen=True)
class Schedule(types.Config):
  """Values of an agent over its updates; entries hold until the next one.

  Attributes:
    updates: the number of updates before each of the K entries, from 0 on.
    hyperparameters: K values of each hyperparameter, by name.
    internal_rewards: K times the weights of all events.
  """

  updates: tuple[int, ...]
  hyperparameters: Mapping[str, tuple[float, ...]]
  internal_rewards: tuple[tuple[float, ...], ...]

  def __post_init__(self) -> None:
    """Checks the order and the numbers of entries."""
    updates = self.updates
    if not updates or updates[0] != 0 or list(updates) != sorted(set(updates)):
      raise ValueError(
        f'updates ({updates}) must increase from 0; give each entry the number'
        ' of updates before it.'
      )
    columns = {**self.hyperparameters, 'rewards': self.internal_rewards}
    for name, column in columns.items():
      if len(column) != len(updates):
        raise ValueError(
          f'{name} ({len(column)} entries) must have one for each of the'
          f' {len(updates)} updates; give that many.'
        )


def of_member(
  rows: Sequence[lineage.Row],
  updates_of_generations: Mapping[int, int],
  member: int,
) -> Schedule:
  """Returns the schedule of a member and its ancestors.

  Args:
    rows: the lineage of the population.
    updates_of_generations: number of updates before each generation.
    member: index of the member, at the end.
  """
  birth, *changes = rows
  entries: list[tuple[int, lineage.Row]] = []
  for row in reversed(changes):
    # Of one generation, it was written before any that is in `entries`.
    is_later = not entries or row['generation'] < entries[-1][0]
    if row['member'] == member and is_later:
      entries.append((row['generation'], row))
      member = row['parent']
  first = {
    part: {name: column[member] for name, column in birth[part].items()}
    for part in ('hyperparameters', 'internal_rewards')
  }
  entries = [(birth['generation'], first), *reversed(entries)]
  # Of generations between the same two updates, the last one holds.
  by_update = {
    0 if row is first else updates_of_generations[generation]: row
    for generation, row in entries
  }
  return Schedule(
    updates=tuple(by_update),
    hyperparameters={
      name: tuple(
        float(row['hyperparameters'][name]) for row in by_update.values()
      )
      for name in first['hyperparameters']
    },
    internal_rewards=tuple(
      tuple(map(float, row['internal_rewards']['weights']))
      for row in by_update.values()
    ),
  )


def check(
  schedule: Schedule, hyperparameters: Sequence[str], num_events: int
) -> None:
  """Raises a ValueError unless a schedule fits an agent.

  Args:
    schedule: the schedule.
    hyperparameters: names of the agent's hyperparameters.
    num_events: number of events of its environment.
  """
  if set(schedule.hyperparameters) != set(hyperparameters):
    raise ValueError(
      f'schedule (of {sorted(schedule.hyperparameters)}) must have the'
      f" agent's hyperparameters, {sorted(hyperparameters)}; take that of a run"
      ' of the same agent.'
    )
  if {len(row) for row in schedule.internal_rewards} != {num_events}:
    raise ValueError(
      f'schedule (of {len(schedule.internal_rewards[0])} events) must have a'
      f' weight for each of the {num_events} events of the environment; take'
      ' that of a run in the same environment.'
    )


def follow(core: types.LearnerCore, schedule: Schedule) -> types.LearnerCore:
  """Returns a learner whose state always has the values of its next update."""
  updates = jnp.asarray(schedule.updates, jnp.int32)
  weights = jnp.asarray(schedule.internal_rewards, jnp.float32)

  def with_values(state: types.TrainingState) -> types.TrainingState:
    index = jnp.searchsorted(updates, state.steps, side='right') - 1
    hyperparameters: Any = state.hyperparameters
    values = {
      name: jnp.asarray(schedule.hyperparameters[name], leaf.dtype)[index]
      for name, leaf in hyperparameters._asdict().items()
    }
    return state._replace(
      hyperparameters=hyperparameters._replace(**values),
      internal_rewards=weights[index],
    )

  def update(
    state: types.TrainingState, batch: types.LearnerBatch
  ) -> tuple[types.TrainingState, types.Metrics]:
    state, metrics = core.update(state, batch)
    return with_values(state), metrics

  return types.LearnerCore(lambda key: with_values(core.init(key)), update)
