"""Team games on the host, with an interface like dm_env.

A game has `P` players, each in one of the teams: one player; one team that
cooperates; two teams or more of any size; or each player for itself. Players
may have roles, such as predator and prey, which observations tell, since a
member of a population plays all of them. Timesteps and actions are
stacked into leaves [P, ...]. The step type is the same for all players, so a
game ends for all of them at once, unless the game has the attribute
`absences = True`. Then each seat begins, ends and waits for itself; see
`ftwax.environments.absences`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import dm_env
import numpy as np

from ftwax import distributions, internal_rewards, types
from ftwax.environments import specified


class GameSpec(NamedTuple):
  """The static description of a game.

  Attributes:
    environment: spec of one player.
    teams: the team of each player, length P.
    event_names: names of the entries of the reward.
    roles: the role of each player; empty if there is one.
    headline: the event that logs give as the return; empty for the sum of all.
    spaces: the Gymnasium spaces that specs were made from, as JSON; empty for
      other environments. See `gymnasium_spaces.to_text`.
  """

  environment: types.EnvironmentSpec
  teams: tuple[int, ...]
  event_names: tuple[str, ...]
  roles: tuple[int, ...] = ()
  headline: str = ''
  spaces: str = ''

  def headlines(self, returns: types.NumpyArray) -> types.NumpyArray:
    """Returns the return in logs, [...], of sums of rewards [..., E]."""
    if not self.headline:
      total: types.NumpyArray = returns.sum(axis=-1)
      return total
    return returns[..., self.event_names.index(self.headline)]

  @property
  def num_players(self) -> int:
    """P, number of seats of a game."""
    return len(self.teams)

  @property
  def team_size(self) -> int:
    """Number of players of the smallest team."""
    return int(np.bincount(self.teams).min())

  @property
  def num_events(self) -> int:
    """Number of entries of the reward; 1 for a scalar."""
    return internal_rewards.num_events(self.environment.rewards)


def spec_of(environment: Any) -> GameSpec:
  """Returns the spec of a game, or of a single-agent environment in Python."""
  spec = getattr(environment, 'spec', None)  # Of a game in JAX.
  if not isinstance(spec, types.EnvironmentSpec):
    spec = types.make_environment_spec(environment)
  if hasattr(environment, 'teams'):
    names = tuple(environment.event_names)
    roles = tuple(getattr(environment, 'roles', ()))
    headline = getattr(environment, 'headline', '')
    return GameSpec(spec, tuple(environment.teams), names, roles, headline)
  spaces = getattr(environment, 'spaces', '')
  return GameSpec(spec, (0,), event_names_of(spec), spaces=spaces)


def event_names_of(spec: types.EnvironmentSpec) -> tuple[str, ...]:
  """Returns ('reward',), or a numbered name for each entry of the reward."""
  if not spec.rewards.shape:
    return ('reward',)
  return tuple(f'event_{i}' for i in range(spec.rewards.shape[0]))


class GameEnvironment(Protocol):
  """A team game; see the module docstring.

  A game with roles also has a property `roles`, the role of each player; one
  with a headline also has `headline`. See `GameSpec`.
  """

  @property
  def teams(self) -> tuple[int, ...]:
    """The team of each player, length P; teams count from zero."""

  @property
  def event_names(self) -> tuple[str, ...]:
    """Names of the events that a vector reward counts, or ('reward',)."""

  def observation_spec(self) -> types.SpecTree:
    """Returns the specs of one player's observation."""

  def action_spec(self) -> types.SpecTree:
    """Returns the specs of one player's action."""

  def reward_spec(self) -> types.SpecTree:
    """Returns the spec of one player's reward, [] or [num_events]."""

  def discount_spec(self) -> types.SpecTree:
    """Returns the spec of one player's discount."""

  def reset(self) -> dm_env.TimeStep:
    """Starts a game.

    Returns:
      A timestep with `step_type` int32 [P], `reward` float32 [P] or
      [P, num_events] (0 at `FIRST`), `discount` float32 [P] (1 at `FIRST`), and
      an observation with leaves [P, ...].
    """

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps the game; starts a game after `LAST` and before the first.

    Args:
      action: int32 [P] for each part.
    """

  def outcome(self) -> types.NumpyArray:
    """Returns the outcome of the game that has just ended, float32 [num_teams].

    It holds the score of each team; higher scores beat lower ones. Between two
    teams a win is usually 1, a draw 0, and a loss -1.
    """

  def close(self) -> None:
    """Releases the resources of the game."""


class SpecifiedGame(specified.Specified):
  """The constant part of a `GameEnvironment`: specs, teams and roles."""

  def __init__(
    self,
    spec: types.EnvironmentSpec,
    teams: Sequence[int],
    event_names: Sequence[str] = ('reward',),
    roles: Sequence[int] = (),
  ):
    """Stores the specs, teams and roles.

    Args:
      spec: spec of one player.
      teams: the team of each player.
      event_names: names of the events that a vector reward counts.
      roles: the role of each player; empty if there is one.

    Raises:
      ValueError: if teams, roles, events and actions are inconsistent.
    """
    super().__init__(spec)
    self.teams, self.event_names = tuple(teams), tuple(event_names)
    self.roles = tuple(roles)
    check_game(GameSpec(spec, self.teams, self.event_names, self.roles))


def check_game(spec: GameSpec) -> None:
  """Raises a ValueError unless actions, teams and events are consistent."""
  distributions.check_action_spec(spec.environment.actions)
  check_teams(spec.teams)
  roles = spec.roles or (0,) * spec.num_players
  if len(roles) != spec.num_players or {*roles} != {*range(len({*roles}))}:
    raise ValueError(
      f'roles {spec.roles} must be numbered from zero without gaps, one for'
      f' each of the {spec.num_players} players; choose e.g.'
      f' {(0,) * spec.num_players}.'
    )
  rewards = spec.environment.rewards
  num_events = rewards.shape[0] if rewards.shape else 1
  if len(spec.event_names) != num_events:
    raise ValueError(
      f'event_names {spec.event_names} must name the {num_events} entries of'
      ' the reward; give one name for each.'
    )
  if spec.headline and spec.headline not in spec.event_names:
    raise ValueError(
      f'headline ({spec.headline!r}) must be one of the event_names'
      f' {spec.event_names}; choose one, or leave it out.'
    )


def check_teams(teams: Sequence[int], num_players: int | None = None) -> None:
  """Raises a ValueError unless `teams` lists a team for each player.

  Args:
    teams: the team of each player.
    num_players: number of players; None to take it from `teams`.
  """
  if num_players is not None and len(teams) != num_players:
    raise ValueError(
      f'teams {tuple(teams)} must name a team for each of the {num_players}'
      ' players; give one number for each.'
    )
  if set(teams) != set(range(len(set(teams)))) or not teams:
    raise ValueError(
      f'teams {tuple(teams)} must be numbered from zero without gaps, each with'
      ' at least one player; choose e.g. (0, 0, 1, 1).'
    )


def check_outcomes(outcomes: types.NumpyArray, num_teams: int) -> None:
  """Raises a ValueError unless every team has a finite score.

  Args:
    outcomes: outcomes, [num_games, num_teams].
    num_teams: number of teams in a game.
  """
  good = np.isfinite(outcomes).all(axis=1)
  if outcomes.shape[1:] != (num_teams,) or not good.all():
    raise ValueError(
      f'outcome ({outcomes[np.argmin(good)].tolist()}) of a game must be a'
      f' finite score for each of the {num_teams} teams, such as 1, 0 or -1 for'
      ' won, drawn or lost; compare scores with games.outcome_of_scores.'
    )


def outcome_of_scores(scores: Sequence[float]) -> types.NumpyArray:
  """Returns the outcome of scores, float32 [num_teams].

  Each team gets the share of the others that it beats less the share that it
  loses to: 1, 0 or -1 if there are two teams. A single team gets 0.
  """
  value = np.asarray(scores, np.float64)
  signs = np.sign(value[:, None] - value)
  return (signs.sum(axis=1) / max(len(value) - 1, 1)).astype(np.float32)
