"""PettingZoo's environments, parallel and in turns, as team games.

Each agent has a seat. It begins when its agent comes, ends with discount 0 when
it is terminated and 1 when it is truncated, and is `types.ABSENT` until its
agent returns; see `ftwax.environments.absences`. In an AEC environment the
agent whose turn it is decides, and the others wait.

Agents whose spaces differ play roles; see `ftwax.environments.padding`. For
example, mpe2's `simple_tag`, three against one:

    pettingzoo_adapter.PettingZooGame(
      simple_tag_v3.parallel_env(), teams=(0, 0, 0, 1), seed=seed
    )
"""

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import dm_env
import jax
import numpy as np
from dm_env import specs
from numpy import typing as npt

from ftwax import distributions, import_guard, trees, types
from ftwax.environments import (
  action_masks,
  curricula,
  episode_metrics,
  games,
  gymnasium_spaces,
  padding,
  specified,
  validation,
)

# (environment, returns of players [P]) -> outcomes of teams
# [num_teams]; see `games.GameEnvironment.outcome`.
OutcomeFn = Callable[[Any, npt.NDArray[np.float64]], npt.NDArray[Any]]


class _Row(NamedTuple):
  """A seat's part of a timestep.

  `seen` is what its agent observes, and `mask` are its legal actions where they
  are not part of that.
  """

  step_type: int
  reward: float
  discount: float
  seen: Any
  mask: types.NumpyArray | None = None


# What a step of a parallel environment returns.
_PARTS = 'observations', 'rewards', 'terminations', 'truncations', 'infos'

_NOBODY = _Row(types.ABSENT, 0.0, 1.0, None)


class PettingZooGame(games.SpecifiedGame):
  """A PettingZoo environment as a `games.GameEnvironment`.

  Args:
    env: a parallel or an AEC environment; see
      `ftwax.environments.gymnasium_spaces` for its spaces. Agents become
      players in the order of `env.possible_agents`.
    teams: the team of each player; by default each player is a team.
    seed: seed of the first reset; None leaves the choice to the environment.
    outcome_fn: computes the outcome at the end of a game; by default the team
      with the highest mean return wins.
    roles: the role of each player. By default there is one if all spaces are
      the same; if not, agents whose names differ by a number alone share one.
    team_state: whether observations have an entry `types.PRIVILEGED` for a
      critic, what the environment's `state()` returns.

  Raises:
    ValueError: if there is no such state, if teams or roles do not match
      agents, or if spaces cannot be expressed as specs or padded to the same
      one.
  """

  def __init__(
    self,
    env: Any,
    teams: Sequence[int] | None = None,
    seed: int | None = None,
    outcome_fn: OutcomeFn | None = None,
    roles: Sequence[int] | None = None,
    team_state: bool = False,
  ):
    self._env = env
    self._guard = import_guard.around(env)
    self._name = type(getattr(env, 'unwrapped', env)).__name__
    self._agents = _read_agents(env)
    self._known = frozenset(self._agents)
    num_players = len(self._agents)
    teams = tuple(range(num_players) if teams is None else teams)
    games.check_teams(teams, num_players)
    seen = [env.observation_space(agent) for agent in self._agents]
    taken = [env.action_space(agent) for agent in self._agents]
    spec = gymnasium_spaces.make_spec(seen[0], taken[0])
    spec = spec._replace(absences=True)
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
    self._actions = actions
    self._in_turns = hasattr(env, 'agent_iter')
    self._seed = seed
    self._parameters: curricula.Values = {}
    # What the first reset returned, until it is handed out.
    self._first: Any = None
    self._masks = self._find_masks(views)
    # Whether agents may have no legal action, and wait.
    self._may_wait = bool(self._masks) or any(
      types.ACTION_MASK in specified.entries(view) for view in views
    )
    if self._masks:
      spec = action_masks.Masks(spec.actions, self._masks[0].key).add_to(spec)
      self._sizes = distributions.count_choices(spec.actions)
    self._has_state = team_state
    if team_state:
      spec = self._add_state(spec)
    super().__init__(spec, teams, roles=roles)
    self._encoders = [gymnasium_spaces.make_encoder(space) for space in seen]
    self._decoders = [gymnasium_spaces.make_decoder(space) for space in taken]
    self._nothing = trees.zeros_like_spec(self._spec.observations, ())
    self._outcome_fn = outcome_fn or self._compare_returns
    self._returns = np.zeros(num_players)
    self._num_steps = 0
    self._meters = {agent: episode_metrics.Meter() for agent in self._agents}
    self._measured: dict[str, dict[str, float]] = {}
    # Rows of agents that are there, now and in the next timestep.
    self._rows: dict[str, _Row] = {}
    self._back: dict[str, _Row] = {}
    self._in_episode: set[str] = set()
    self._last_seen: dict[str, Any] = {}
    self._must_reset = True

  @property
  def env(self) -> Any:
    """The wrapped environment."""
    return self._env

  def _find_masks(
    self, views: Sequence[types.SpecTree]
  ) -> list[action_masks.Masks]:
    """Returns how legal actions of each agent are stated; empty if not."""
    specs = [
      specified.make_spec(*pair)
      for pair in zip(views, self._actions, strict=True)
    ]
    self._may_mask = all(map(action_masks.may_have, specs))
    if not self._may_mask:
      return []
    # An error comes again where the first game begins.
    with contextlib.suppress(Exception):
      self._first = self._reset()
    infos = {} if self._first is None else self._first[1]
    has_method = callable(getattr(self._env, action_masks.METHOD, None))
    for agent, spec in zip(self._agents, specs, strict=True):
      info = infos.get(agent) or {}
      if (masks := action_masks.find(spec, info, has_method)) is not None:
        return [action_masks.Masks(own, masks.key) for own in self._actions]
    return []

  def _reset(self) -> tuple[Any, Any]:
    """Resets the environment; returns observations and `infos`."""
    with self._guard():
      options = {'options': self._parameters} if self._parameters else {}
      returned = self._env.reset(seed=self._seed, **options)
    self._seed = None
    if self._in_turns:
      return None, self._env.infos
    self._check('reset', returned, ('observations', 'infos'))
    observations, infos = returned
    return observations, infos

  def _add_state(self, spec: types.EnvironmentSpec) -> types.EnvironmentSpec:
    """Returns the spec with the entry of the state of the whole game."""
    self._first = self._first or self._reset()
    state = specs.Array(self._read_state().shape, np.float32, 'state')
    entries = specified.entries(spec.observations)
    return spec._replace(observations=entries | {types.PRIVILEGED: state})

  def _read_state(self) -> types.NumpyArray:
    """Returns the state of the whole game, float32 [size]."""
    try:
      return np.asarray(self._env.state(), np.float32).ravel()
    except (AttributeError, NotImplementedError, TypeError, ValueError) as why:
      raise ValueError(
        f'team_state (True) of {self._name} must be False, since its state()'
        f' gives no array ({type(why).__name__}: {why}); let it return one, or'
        ' leave team_state out.'
      ) from None

  def _check(self, method: str, returned: Any, parts: Sequence[str]) -> None:
    """Raises an error unless a method returned a tuple of these parts."""
    if isinstance(returned, tuple) and len(returned) == len(parts):
      return
    validation.fail_parts(
      self._name,
      method,
      returned,
      f'({", ".join(parts)}), each a dict by agents',
      'return them as PettingZoo 1.24 does',
    )

  def reset(self) -> dm_env.TimeStep:
    """Starts a game."""
    returned, self._first = self._first or self._reset(), None
    self._num_steps = 0
    self._returns[:] = 0
    self._rows, self._back, self._last_seen = {}, {}, {}
    self._measured = {}
    self._in_episode = set()
    self._must_reset = False
    if self._in_turns:
      self._take_turn()
      return self._timestep()
    observations, infos = returned
    self._check_agents('observations', observations)
    for agent, observation in observations.items():
      self._put(agent, observation, info=infos.get(agent))
    self._let_wait()
    return self._timestep()

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps the game; starts a game after `LAST` and before the first.

    Args:
      action: leaves [P, ...]; those of absent agents are ignored.
    """
    if self._must_reset:
      return self.reset()
    self._num_steps += 1
    self._rows = {}
    if self._back:  # The game waits for those who died and are there again.
      self._rows, self._back = self._back, {}
      self._in_episode |= self._rows.keys()
      return self._timestep()
    if self._in_turns:
      self._env.step(self._decode(self._env.agent_selection, action))
      self._take_turn()
    else:
      self._step_all(action)
    if not self._env.agents:
      self._end()
    return self._timestep()

  def outcome(self) -> npt.NDArray[np.float32]:
    """Returns the outcome of the game that has just ended, [num_teams].

    Raises:
      ValueError: if `outcome_fn` returns anything but wins, draws and losses.
    """
    outcome = np.asarray(self._outcome_fn(self._env, self._returns.copy()))
    games.check_outcomes(outcome[None], len(set(self.teams)))
    return outcome.astype(np.float32)

  def measure(self, names: episode_metrics.Names) -> None:
    """Asks for metrics over all steps of games."""
    for meter in self._meters.values():
      meter.measure(names)

  def episode_metrics(self) -> dict[str, float]:
    """Returns the metrics of the game that has just ended, means of agents."""
    means = episode_metrics.average([*self._measured.values()])
    prefix = episode_metrics.PREFIX
    return {name.removeprefix(prefix): mean for name, mean in means.items()}

  def set_parameters(self, values: curricula.Values) -> None:
    """Gives the next games other parameters; see `curricula`."""
    self._first = None
    own = getattr(self._env, curricula.METHOD, None)
    if own is not None:
      own(dict(values))
    else:
      self._parameters = dict(values)

  def render(self) -> Any:
    """Returns an image of the present state, in `env.render_mode`."""
    with self._guard():
      return self._env.render()

  def close(self) -> None:
    """Closes the parallel environment."""
    self._env.close()

  def _decode(self, agent: str, action: types.ArrayTree) -> Any:
    player = self._agents.index(agent)
    own = trees.take(action, player)
    return self._decoders[player](own)

  def _step_all(self, action: types.ArrayTree) -> None:
    """Steps a parallel environment."""
    actions = {
      agent: self._decode(agent, action)
      for agent in self._agents
      if agent in self._env.agents
    }
    returned = self._env.step(actions)
    self._check('step', returned, _PARTS)
    seen, rewards, terminations, truncations, infos = returned
    if not (self._known.issuperset(seen) and self._known.issuperset(rewards)):
      for name, by_agent in zip(_PARTS, returned, strict=True):
        self._check_agents(name, by_agent)
    for agent, reward in rewards.items():
      self._returns[self._agents.index(agent)] += reward
    for agent in self._agents:
      is_terminal = bool(terminations.get(agent))
      is_over = is_terminal or bool(truncations.get(agent))
      if agent not in seen and not is_over:
        if agent in self._in_episode:  # It waits.
          reward = rewards.get(agent, 0)
          self._rows[agent] = _NOBODY._replace(reward=reward)
        continue
      observation = seen.get(agent, self._last_seen.get(agent))
      # With `final_obs`, the agent has begun again in the same step.
      info = infos.get(agent) or {}
      final, is_back = info.get('final_obs', observation), 'final_obs' in info
      reward = rewards.get(agent, 0)
      self._put(agent, final, reward, is_over, is_terminal, info)
      if is_over and is_back:
        mask = self._read_mask(agent, info or {})
        self._back[agent] = _Row(types.FIRST, 0.0, 1.0, observation, mask)
    self._let_wait()

  def _let_wait(self) -> None:
    """Makes agents absent who may do nothing while others may.

    So do games in turns that PettingZoo has made parallel.
    """
    if not self._may_wait:
      return
    rows = self._rows.items()
    deciding = {agent: row for agent, row in rows if row.step_type < types.LAST}
    waiting = [a for a, row in deciding.items() if not self._may_act(a, row)]
    if len(waiting) == len(deciding):
      return
    for agent in waiting:
      row = self._rows[agent]
      if row.step_type == types.FIRST:
        self._in_episode.discard(agent)
      self._rows[agent] = _NOBODY._replace(reward=row.reward)

  def _may_act(self, agent: str, row: _Row) -> bool:
    """Returns whether an action mask, if there is one, allows an action."""
    mask = row.mask
    if not self._masks:
      if not isinstance(row.seen, Mapping):
        return True
      mask = row.seen.get(types.ACTION_MASK)
    if mask is None:
      return True
    actions = self._actions[self._agents.index(agent)]
    return bool(distributions.has_choices(actions, mask))

  def _note(self, agent: str, info: Mapping[str, Any], is_over: bool) -> None:
    """Notes what an agent's environment measures."""
    meter = self._meters[agent]
    if agent not in self._in_episode:
      meter.start()
    elif meter.is_on:
      meter.add(info)
    self._measured[agent] = meter.end(info) if is_over else {}

  def _read_mask(
    self, agent: str, info: Mapping[str, Any]
  ) -> types.NumpyArray | None:
    """Returns the flat mask of an agent that takes an action, if any."""
    name = f'{self._name}, agent {agent!r},'
    if not self._masks:
      if info and self._may_mask:
        action_masks.check_announced(info, name, self._num_steps)
      return None
    masks = self._masks[self._agents.index(agent)]
    if masks.key is not None:
      value = info.get(masks.key)
    else:
      value = _call_masks(getattr(self._env, action_masks.METHOD), agent)
    return masks.read_at(value, name, self._num_steps)

  def _check_agents(self, name: str, by_agent: Any) -> None:
    """Raises an error if an agent is not one of `possible_agents`."""
    for agent in by_agent:
      if agent not in self._known:
        validation.fail(
          self._name,
          f'agent {agent!r} in {name}',
          'unknown',
          f'be one of possible_agents {self._agents}',
          'list there all agents that may ever come',
          f' Seen at step {self._num_steps}.',
        )

  def _take_turn(self) -> None:
    """Puts the row of whose turn it is, and those of agents that are over."""
    while self._env.agents:
      agent = self._env.agent_selection
      self._check_agents('agent_selection', [agent])
      observation, reward, terminated, truncated, info = self._env.last()
      is_over = bool(terminated or truncated)
      self._returns[self._agents.index(agent)] += reward
      self._put(agent, observation, reward, is_over, bool(terminated), info)
      if not is_over:
        return
      self._env.step(None)

  def _put(
    self,
    agent: str,
    observation: Any,
    reward: float = 0.0,
    is_over: bool = False,
    is_terminal: bool = False,
    info: Any = None,
  ) -> None:
    """Puts the row of an agent that the environment tells of."""
    mask = None
    if info or self._masks:
      self._note(agent, info or {}, is_over)
      mask = None if is_over else self._read_mask(agent, info or {})
    if agent in self._in_episode:
      step_type = types.LAST if is_over else types.MID
      self._rows[agent] = _Row(
        step_type, reward, 1.0 - is_terminal, observation, mask
      )
    elif not is_over:
      self._rows[agent] = _Row(types.FIRST, 0.0, 1.0, observation, mask)
    (self._in_episode.discard if is_over else self._in_episode.add)(agent)
    self._last_seen[agent] = observation

  def _end(self) -> None:
    """Ends the game for all: those who wait in it are cut off."""
    self._must_reset = True
    for agent in self._agents:
      row = self._rows.get(agent, _NOBODY)
      if row.step_type != types.LAST:
        discount = float(agent in self._in_episode)
        seen = self._last_seen.get(agent)
        self._rows[agent] = _Row(types.LAST, row.reward, discount, seen)

  def _timestep(self) -> dm_env.TimeStep:
    rows = [self._rows.get(agent, _NOBODY) for agent in self._agents]
    seen = [self._see(player, row) for player, row in enumerate(rows)]
    if self._has_state:
      state = {types.PRIVILEGED: self._read_state()}
      seen = [specified.entries(own) | state for own in seen]
    return dm_env.TimeStep(
      np.array([row.step_type for row in rows], np.int32),
      np.array([row.reward for row in rows], np.float32),
      np.array([row.discount for row in rows], np.float32),
      jax.tree.map(lambda *leaves: np.stack(leaves), *seen),
    )

  def _see(self, player: int, row: _Row) -> Any:
    """Returns what a player sees, given what its agent does, if present."""
    if row.seen is None:
      if self._padding is None:
        return self._nothing
      seen: Any = self._padding.nothing(player)
    else:
      try:
        seen = self._encoders[player](row.seen)
      except (KeyError, OverflowError, TypeError, ValueError):
        self._fail(player, row.seen)
      if self._padding is not None:
        seen = self._padding.pad(player, seen)
    if not self._masks:
      return seen
    masks = self._masks[player]
    mask = masks.allow_all() if row.mask is None else row.mask
    return masks.see(seen, masks.widen(mask, self._sizes))

  def _fail(self, player: int, observation: Any) -> NoReturn:
    """Raises the error of an observation that cannot be converted."""
    agent = self._agents[player]
    space = self._env.observation_space(agent)
    name = f'observation of agent {agent!r}'
    fault = gymnasium_spaces.find_fault(space, observation, name)
    gymnasium_spaces.fail(self._name, fault, self._num_steps)

  def _compare_returns(
    self, env: Any, returns: npt.NDArray[np.float64]
  ) -> npt.NDArray[Any]:
    del env
    teams = np.array(self.teams)
    return games.outcome_of_scores(
      [returns[teams == team].mean() for team in range(teams.max() + 1)]
    )


def _read_agents(env: Any) -> tuple[str, ...]:
  """Returns the agents of an environment.

  Raises:
    ValueError: if it does not list them.
  """
  agents = tuple(getattr(env, 'possible_agents', ()))
  if agents:
    return agents
  raise ValueError(
    f'possible_agents of {type(env).__name__} ({agents}) must list all agents'
    ' that may ever come, since each has a seat; set it in __init__, and let'
    ' those who are not there be absent from agents.'
  )


def _call_masks(method: Callable[..., Any], agent: str) -> Any:
  """Returns the mask of an agent by a method that may give those of all."""
  if inspect.signature(method).parameters:
    return method(agent)
  value = method()
  is_by_agent = isinstance(value, Mapping) and agent in value
  return value[agent] if is_by_agent else value
