"""Melting Pot's substrates (Leibo et al., 2021) as games of teams.

What a substrate tells through its stream of events can be counted as a vector
reward; see `meltingpot_paintball` for one that does.

Melting Pot 2.2 on Python 3.10 must be installed from its source distribution,
since its set-up would download assets that only its bots need:

    pip install dmlab2d==1.0.0 immutabledict ml-collections networkx reactivex
    pip download --no-deps dm-meltingpot==2.2.0
    tar xzf dm-meltingpot-2.2.0.tar.gz
    mkdir -p stub/assets dm-meltingpot-2.2.0/assets && touch stub/assets/EMPTY
    tar czf meltingpot-assets-2.1.0.tar.gz -C stub assets
    mv meltingpot-assets-2.1.0.tar.gz dm-meltingpot-2.2.0/assets
    pip install --no-deps ./dm-meltingpot-2.2.0

Importing it loads TensorFlow; this module does not import it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import games

# An event of a substrate: its name and what it holds.
Event = tuple[str, Mapping[str, Any]]


class Events(NamedTuple):
  """How a substrate's events become a vector reward.

  Attributes:
    names: of the entries of the reward.
    count_events: turns the events of a step into float32 [P, num_events].
    score: name of the entry whose sum over a team is the team's score.
  """

  names: tuple[str, ...]
  count_events: Callable[[Sequence[Event]], np.ndarray]
  score: str


class MeltingPotGame(games.SpecifiedGame):
  """A Melting Pot substrate as a `games.GameEnvironment`.

  Args:
    substrate: as `meltingpot.substrate.build` returns it.
    teams: the team of each player; by default everyone plays alone.
    events: counts what happens; by default the reward is the substrate's, and
      the teams' mean returns tell who has won.
    observation_names: what a player sees of its observation; by default all
      but what no player should see, the whole world and the others' reward.

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
    """The substrate."""
    return self._substrate

  def reset(self) -> dm_env.TimeStep:
    """Starts a game."""
    timestep = self._substrate.reset()
    self._inbox.clear()
    self._totals[:] = 0
    self._must_reset = False
    return self._stack(timestep, np.zeros(self._totals.shape, np.float32), 1.0)

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Plays one step, or starts a game after `LAST` and before the first.

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

  def outcome(self) -> np.ndarray:
    """Returns how the game that has just ended went, float32 [num_teams]."""
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

  def _stack(self, timestep, reward, discount):
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
  """Decodes a flat list of alternating keys and values into a mapping."""
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
  action = substrate.action_spec()[0]
  reward_shape = () if events is None else (len(events.names),)
  return types.EnvironmentSpec(
    observations={
      name: specs.Array(seen[name].shape, _dtype(seen[name].dtype), name)
      for name in names
    },
    actions=specs.DiscreteArray(action.num_values, np.int32, 'action'),
    rewards=specs.Array(reward_shape, np.float32, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, 'discount'),
  )


def _dtype(dtype: np.dtype) -> np.dtype:
  """Returns the dtype that JAX has for it: 64 bits become 32."""
  return np.dtype(
    {'float64': np.float32, 'int64': np.int32}.get(dtype.name, dtype)
  )
