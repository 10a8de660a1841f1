"""PettingZoo's parallel environments as team games.

Agents of a parallel environment come and go, but players stay until the end of
a game. A player whose agent is absent observes zeros and gets rewards of 0; its
actions are ignored. Its discount is 0 once its agent has terminated; an agent
that was truncated keeps discount 1.

Agents whose spaces differ play roles; see `ftwax.environments.padding`. For
example, mpe2's `simple_tag`, three against one:

    pettingzoo_adapter.PettingZooGame(
      simple_tag_v3.parallel_env(), teams=(0, 0, 0, 1), seed=seed
    )
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import jax
import numpy as np
from numpy import typing as npt

from ftwax import trees, types
from ftwax.environments import games, gymnasium_spaces, padding

# (parallel environment, returns of players [P]) -> outcomes of teams
# [num_teams]; see `games.GameEnvironment.outcome`.
OutcomeFn = Callable[[Any, npt.NDArray[np.float64]], npt.NDArray[Any]]


class PettingZooGame(games.SpecifiedGame):
  """A PettingZoo parallel environment as a `games.GameEnvironment`.

  Args:
    env: a parallel environment; see `ftwax.environments.gymnasium_spaces`.
      Agents become players in the order of `env.possible_agents`.
    teams: the team of each player; by default each player is a team.
    seed: seed of the first reset; None leaves the choice to the environment.
    outcome_fn: computes the outcome at the end of a game; by default the team
      with the highest mean return wins.
    roles: the role of each player. By default there is one if all spaces are
      the same; if not, agents whose names differ by a number alone share one.

  Raises:
    ValueError: if teams or roles do not match agents, or if spaces cannot be
      expressed as specs or padded to the same one.
  """

  def __init__(
    self,
    env: Any,
    teams: Sequence[int] | None = None,
    seed: int | None = None,
    outcome_fn: OutcomeFn | None = None,
    roles: Sequence[int] | None = None,
  ):
    self._env = env
    self._agents = tuple(env.possible_agents)
    num_players = len(self._agents)
    teams = tuple(range(num_players) if teams is None else teams)
    games.check_teams(teams, num_players)
    seen = [env.observation_space(agent) for agent in self._agents]
    taken = [env.action_space(agent) for agent in self._agents]
    spec = gymnasium_spaces.make_spec(seen[0], taken[0])
    views = [
      gymnasium_spaces.observation_spec(space, 'observation_space')
      for space in seen
    ]
    actions = [
      gymnasium_spaces.action_spec(space, 'action_space') for space in taken
    ]
    if roles is None:
      roles = padding.find_roles(self._agents, views, actions)
    self._padding: padding.Padding | None = None
    if roles:
      self._padding = padding.make_padding(views, actions, roles)
      spec = spec._replace(
        observations=self._padding.observations, actions=self._padding.actions
      )
    super().__init__(spec, teams, roles=roles)
    self._encoders = [gymnasium_spaces.make_encoder(space) for space in seen]
    self._decoders = [gymnasium_spaces.make_decoder(space) for space in taken]
    self._nothing = trees.zeros_like_spec(self._spec.observations, ())
    self._seed = seed
    self._outcome_fn = outcome_fn or self._compare_returns
    self._returns = np.zeros(num_players)
    self._discounts: dict[str, float] = {}
    self._must_reset = True

  @property
  def env(self) -> Any:
    """The wrapped environment."""
    return self._env

  def reset(self) -> dm_env.TimeStep:
    """Starts a game."""
    observations, _ = self._env.reset(seed=self._seed)
    self._seed = None
    self._returns[:] = 0
    self._discounts = dict.fromkeys(self._agents, 1.0)
    self._must_reset = False
    return self._timestep(types.FIRST, {}, observations)

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps the game; starts a game after `LAST` and before the first.

    Args:
      action: leaves [P, ...]; those of absent agents are ignored.
    """
    if self._must_reset:
      return self.reset()
    present = set(self._env.agents)
    actions = {
      agent: self._decoders[i](jax.tree.map(lambda leaf, i=i: leaf[i], action))
      for i, agent in enumerate(self._agents)
      if agent in present
    }
    observations, rewards, terminations, _, _ = self._env.step(actions)
    for agent, is_terminal in terminations.items():
      if is_terminal:
        self._discounts[agent] = 0.0
    self._must_reset = not self._env.agents
    step_type = types.LAST if self._must_reset else types.MID
    timestep = self._timestep(step_type, rewards, observations)
    self._returns += timestep.reward
    return timestep

  def outcome(self) -> npt.NDArray[np.float32]:
    """Returns the outcome of the game that has just ended, [num_teams].

    Raises:
      ValueError: if `outcome_fn` returns anything but wins, draws and losses.
    """
    outcome = np.asarray(self._outcome_fn(self._env, self._returns.copy()))
    games.check_outcomes(outcome[None], len(set(self._teams)))
    return outcome.astype(np.float32)

  def render(self) -> Any:
    """Returns an image of the present state, in `env.render_mode`."""
    return self._env.render()

  def close(self) -> None:
    """Closes the parallel environment."""
    self._env.close()

  def _timestep(
    self,
    step_type: int,
    rewards: Mapping[str, float],
    observations: Mapping[str, Any],
  ) -> dm_env.TimeStep:
    seen = [
      self._see(player, observations.get(agent))
      for player, agent in enumerate(self._agents)
    ]
    return dm_env.TimeStep(
      np.full(len(self._agents), step_type, np.int32),
      np.array([rewards.get(agent, 0) for agent in self._agents], np.float32),
      np.array([self._discounts[agent] for agent in self._agents], np.float32),
      jax.tree.map(lambda *leaves: np.stack(leaves), *seen),
    )

  def _see(self, player: int, observation: Any) -> Any:
    """Returns what a player sees, given what its agent does, if present."""
    if observation is not None:
      observation = self._encoders[player](observation)
    if self._padding is not None:
      if observation is None:
        return self._padding.nothing(player)
      return self._padding.pad(player, observation)
    return self._nothing if observation is None else observation

  def _compare_returns(
    self, env: Any, returns: npt.NDArray[np.float64]
  ) -> npt.NDArray[Any]:
    del env
    teams = np.array(self._teams)
    return games.outcome_of_scores(
      [returns[teams == team].mean() for team in range(teams.max() + 1)]
    )
