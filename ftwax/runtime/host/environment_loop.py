"""The loop of an actor and its environments, as a generator.

Statistics are what the caller makes of the ticks it yields. It differs from
acme's loop in that one call acts in several environments.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import vector


class Episode(NamedTuple):
  """An episode that has ended.

  Attributes:
    environment: index of the environment.
    episode_return: sum of its rewards, not discounted; of a vector of events
      the sum of their numbers.
    episode_length: number of its actions.
  """

  environment: int
  episode_return: float
  episode_length: int


class Tick(NamedTuple):
  """One step of all environments.

  Attributes:
    num_steps: actions taken; an environment that reset took none.
    episodes: those that ended.
  """

  num_steps: int
  episodes: Sequence[Episode]


class Actor(Protocol):
  """The part of acme's actor that the loop calls, over environments."""

  def select_action(self, observation: types.ArrayTree) -> types.ArrayTree:
    """Returns actions, leaves [E]."""

  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    """Observes the first timesteps, leaves [E, ...]."""

  def observe(self, action: Any, next_timestep: dm_env.TimeStep) -> None:
    """Observes the timesteps that followed, leaves [E, ...]."""

  def update(self, wait: bool = False) -> None:
    """Fetches variables if it is time to."""


class Observer(Protocol):
  """Watches a loop; timesteps and actions have leaves [E, ...]."""

  def observe_first(
    self, environment: dm_env.Environment, timestep: dm_env.TimeStep
  ) -> None:
    """Sees the first timesteps."""

  def observe(
    self,
    environment: dm_env.Environment,
    timestep: dm_env.TimeStep,
    action: types.ArrayTree,
  ) -> None:
    """Sees the timesteps that followed `action`."""

  def get_metrics(self) -> dict[str, float]:
    """Returns what goes into the log with each episode."""


def run_loop(
  environment: vector.VectorEnvironment,
  actor: Actor,
  observers: Sequence[Observer] = (),
) -> Iterator[Tick]:
  """Acts for as long as ticks are asked for.

  Args:
    environment: E environments that reset by themselves.
    actor: acts in all of them.
    observers: watch.

  Yields:
    A tick for each step of the environments.
  """
  timestep = environment.reset()
  actor.observe_first(timestep)
  for observer in observers:
    observer.observe_first(environment, timestep)
  num_environments = len(timestep.step_type)
  action = jax.tree.map(
    lambda spec: np.zeros((num_environments,), spec.dtype),
    environment.action_spec(),
  )
  returns = np.zeros((num_environments,))
  lengths = np.zeros((num_environments,), np.int64)
  while True:
    actor.update()
    if not (timestep.step_type == dm_env.StepType.LAST).all():
      action = actor.select_action(timestep.observation)
    timestep = environment.step(action)
    actor.observe(action, timestep)
    for observer in observers:
      observer.observe(environment, timestep, action)

    moved = timestep.step_type != dm_env.StepType.FIRST
    rewards = timestep.reward.reshape(num_environments, -1).sum(axis=-1)
    returns += np.where(moved, rewards, 0.0)
    lengths += moved
    episodes = []
    for index in np.flatnonzero(timestep.step_type == dm_env.StepType.LAST):
      episodes.append(
        Episode(int(index), float(returns[index]), int(lengths[index]))
      )
      returns[index] = 0.0
      lengths[index] = 0
    yield Tick(int(moved.sum()), episodes)


def run_episodes(
  environment: vector.VectorEnvironment, actor: Actor, num_episodes: int
) -> list[Episode]:
  """Runs as many episodes in each environment, `num_episodes` or more in all.

  To stop at the first ones to end would favour short episodes.

  Args:
    environment: E environments.
    actor: acts in all of them.
    num_episodes: the least number of episodes.

  Returns:
    The episodes, a multiple of E.
  """
  counts: dict[int, int] = {}
  episodes = []
  for tick in run_loop(environment, actor):
    quota = -(-num_episodes // environment.num_environments)
    for episode in tick.episodes:
      counts[episode.environment] = counts.get(episode.environment, 0) + 1
      if counts[episode.environment] <= quota:
        episodes.append(episode)
    if len(episodes) == quota * environment.num_environments:
      break
  return episodes
