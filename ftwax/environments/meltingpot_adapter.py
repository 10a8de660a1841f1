"""Melting Pot substrates (Leibo et al., 2021) as team games.

The events that a substrate emits can be counted as a vector reward; see
`meltingpot_paintball` for an example.

On Python 3.10, install Melting Pot 2.2 from its source distribution with empty
assets, since its setup would download assets that only its bots need:

    pip install dmlab2d==1.0.0 immutabledict ml-collections networkx reactivex
    pip download --no-deps dm-meltingpot==2.2.0
    tar xzf dm-meltingpot-2.2.0.tar.gz
    mkdir -p stub/assets dm-meltingpot-2.2.0/assets && touch stub/assets/EMPTY
    tar czf meltingpot-assets-2.1.0.tar.gz -C stub assets
    mv meltingpot-assets-2.1.0.tar.gz dm-meltingpot-2.2.0/assets
    pip install --no-deps ./dm-meltingpot-2.2.0

Importing Melting Pot loads TensorFlow; this module does not import it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np
from dm_env import specs
from numpy import typing as npt

from ftwax import types
from ftwax.environments import games, specified

# Name and content of an event that a substrate emits.
Event = tuple[str, Mapping[str, Any]]


class Events(NamedTuple):
  """Rules by which a substrate's events become a vector reward.

  Attributes:
    names: names of the entries of the reward, length num_events.
    count_events: turns the events of a step into float32 [P, num_events].
    score: name of the entry that decides a game: the team whose players have
      the largest mean of it over the game wins.
  """

  names: tuple[str, ...]
  count_events: Callable[[Sequence[Event]], npt.NDArray[np.float32]]
  score: str


class MeltingPotGame(games.SpecifiedGame):
  """A Melting Pot substrate as a `games.GameEnvironment`.

  Args:
    substrate: a substrate returned by `meltingpot.substrate.build`.
    teams: the team of each player; by default each player is a team.
    events: rules of a vector reward; by default, the substrate's reward is used
      and the team with the highest mean return wins.
    observation_names: entries of the observation that players see; by default
      all except 'WORLD.RGB' and 'COLLECTIVE_REWARD', which are hidden
      information.

  Raises:
    ValueError: if teams do not match players or an observation is unknown.
  """

  def __init__(
    self,
    substrate: Any,
    teams: Sequence[int] | None = None,
    events: Events | None = None,
    observation_names: Sequence[str] | None = None,
  ):
    self._substrate = substrate
    num_players = len(substrate.action_spec())
    teams = tuple(range(num_players) if teams is None else teams)
    games.check_teams(teams, num_players)
    super().__init__(
      _make_spec(substrate, events, observation_names),
      teams,
      ('reward',) if events is None else events.names,
    )
    self._counter = events
    self._totals = np.zeros((num_players, *self._spec.rewards.shape))
    self._inbox: list[tuple[str, Any]] = []
    substrate.observables().events.subscribe(self._inbox.append)
    self._must_reset = True

  @property
  def substrate(self) -> Any:
    """The wrapped substrate."""
    return self._substrate

  def reset(self) -> dm_env.TimeStep:
    """Starts a game."""
    timestep = self._substrate.reset()
    self._inbox.clear()
    self._totals[:] = 0
    self._must_reset = False
    return self._stack(timestep, np.zeros(self._totals.shape, np.float32), 1.0)

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps the game; starts a game after `LAST` and before the first.

    Args:
      action: int32 [P].
    """
    if self._must_reset:
      return self.reset()
    timestep = self._substrate.step([int(choice) for choice in action])
    if self._counter is None:
      reward = np.array(timestep.reward, np.float32)
    else:
      reward = self._counter.count_events(list(map(_decode_event, self._inbox)))
    self._inbox.clear()
    self._totals += reward
    self._must_reset = timestep.last()
    return self._stack(timestep, reward, timestep.discount)

  def outcome(self) -> npt.NDArray[np.float32]:
    """Returns the outcome of the game that has just ended, [num_teams]."""
    teams = np.array(self._teams)
    if self._counter is None:
      points = self._totals
    else:
      points = self._totals[:, self._counter.names.index(self._counter.score)]
    return games.outcome_of_scores(
      [points[teams == team].mean() for team in range(teams.max() + 1)]
    )

  def close(self) -> None:
    """Closes the substrate."""
    self._substrate.close()

  def _stack(
    self,
    timestep: dm_env.TimeStep,
    reward: npt.NDArray[np.float32],
    discount: float,
  ) -> dm_env.TimeStep:
    """Stacks the list of observations in `timestep` into leaves [P, ...]."""
    num_players = len(self._teams)
    observation = {
      name: np.stack([one[name] for one in timestep.observation]).astype(
        spec.dtype
      )
      for name, spec in self._spec.observations.items()
    }
    return dm_env.TimeStep(
      np.full(num_players, timestep.step_type, np.int32),
      reward,
      np.full(num_players, discount, np.float32),
      observation,
    )


def _decode_event(event: tuple[str, Any]) -> Event:
  """Decodes `b'dict', key, value, key, value ...` into a mapping."""
  name, items = event
  if not items or items[0] != b'dict':
    return name, {}
  return name, {
    key.decode(): value
    for key, value in zip(items[1::2], items[2::2], strict=True)
  }


def _make_spec(
  substrate: Any, events: Events | None, names: Sequence[str] | None
) -> types.EnvironmentSpec:
  seen = substrate.observation_spec()[0]
  if names is None:
    hidden = ('WORLD.RGB', 'COLLECTIVE_REWARD')
    names = [name for name in seen if name not in hidden]
  for name in names:
    if name not in seen:
      raise ValueError(
        f'observation_names ({name!r}) must be among those of the substrate;'
        f' choose from {sorted(seen)}.'
      )
  return specified.make_spec(
    {
      name: specs.Array(seen[name].shape, _dtype(seen[name].dtype), name)
      for name in names
    },
    int(substrate.action_spec()[0].num_values),
    num_events=None if events is None else len(events.names),
  )


def _dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
  """Returns `dtype` with 32 bits instead of 64, as in JAX by default."""
  return np.dtype(
    {'float64': np.float32, 'int64': np.int32}.get(dtype.name, dtype)
  )
