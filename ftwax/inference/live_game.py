"""A game in progress: steps the environment and its players.

Shown states are JSON for a web page, so a game that was played or recorded can
be replayed in the browser.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np

from ftwax import trees, types
from ftwax.environments import game_pages
from ftwax.inference import named_players
from ftwax.inference import playable as playable_lib
from ftwax.reporting import saved_games

# Steps per second, as for FTW agents in the paper.
DEFAULT_SPEED = 15


class Moment(NamedTuple):
  """A game after a step.

  Attributes:
    state: state for the page, as JSON; see `GamePage.to_page`.
    is_over: whether the game has ended.
    outcome: outcome of each team if the game has ended: 1 for a win, 0 for a
      draw, -1 for a loss.
  """

  state: Any
  is_over: bool
  outcome: list[float]


class LiveGame:
  """Plays one game after another; each step takes milliseconds.

  Attributes:
    seed: seed of the current game's map and players.
    timestep: the last timestep, leaves [P, ...].
    facts: facts of the current game; see `GamePage.facts`.
    states: states shown so far, including the first.
    actions_taken: actions of all seats in each step.
  """

  def __init__(self, playable: playable_lib.PlayableGame):
    """Stores the game; compiles nothing yet."""
    self._playable = playable
    self._state: Any = None
    self._players: list[tuple[str, Any]] = []
    self._chosen: dict[int, Any] = {}  # Actions in this state, by seat.
    self.timestep: dm_env.TimeStep | None = None
    self.facts: Any = None
    self.seed = 0
    self.states: list[Any] = []
    self.actions_taken: list[Any] = []

  def start(self, seed: int, seats: Sequence[str]) -> Moment:
    """Starts a game.

    Args:
      seed: seed of the map and of players; only used for JAX games.
      seats: name of the player on each seat; `STILL` for a person.
    """
    self.seed = seed
    keys = jax.random.split(jax.random.PRNGKey(seed), len(seats) + 1)
    self._keys = keys[1:]
    self._players = [('', None)] * len(seats)
    self._chosen = {}
    for seat, name in enumerate(seats):
      self.seat(seat, name)
    reset, _ = self._playable.functions
    self._state, timestep, shown, _ = reset(keys[0])
    self.timestep = jax.device_get(timestep)
    self.facts = self._playable.page.facts(self._state)
    self.states, self.actions_taken = [game_pages.to_json(shown)], []
    return Moment(self.states[-1], False, [])

  def prepare(self, seed: int, seats: Sequence[str]) -> Moment:
    """Compiles the functions of a first step, then starts a game."""
    self.start(seed, seats)
    self.step(self.actions({}))
    return self.start(seed, seats)

  def play(self, choices: Mapping[int, Mapping[str, int]]) -> Moment:
    """Plays one step, given the choices of people; see `actions`."""
    return self.step(self.actions(choices))

  def seat(self, seat: int, name: str) -> None:
    """Puts another player on a seat; allowed at any time."""
    if self._players[seat][0] != name:
      state = self._playable.players.start(name, self._keys[seat])
      self._players[seat] = (name, state)
      self._chosen.pop(seat, None)

  def actions(
    self, choices: Mapping[int, Mapping[str, int]]
  ) -> list[types.ArrayTree]:
    """Returns the action of each seat.

    Args:
      choices: choices of people, by seat; see `GamePage.act`.
    """
    chosen, page = [], self._playable.page
    for seat, (name, state) in enumerate(self._players):
      if seat in choices or name == named_players.STILL:
        made = choices.get(seat, {})
        if page.steer is not None:
          made = page.steer(self.states[-1], seat, made)
        chosen.append(page.act(made))
        continue
      # Acting twice in a state would advance the recurrent state twice.
      if seat not in self._chosen:
        self._chosen[seat], state = self._playable.players.act(
          name, self._state, seat, self.observed(seat), state
        )
        self._players[seat] = (name, state)
      chosen.append(self._chosen[seat])
    return chosen

  def step(self, actions: Sequence[types.ArrayTree]) -> Moment:
    """Plays one step, given the action of each seat."""
    self._chosen = {}
    action = jax.tree.map(lambda *leaves: np.stack(leaves), *actions)
    _, step = self._playable.functions
    self._state, timestep, shown, outcome = step(self._state, action)
    self.timestep = jax.device_get(timestep)
    self.states.append(game_pages.to_json(shown))
    self.actions_taken.append(
      [
        jax.tree.map(lambda part: np.asarray(part).tolist(), action)
        for action in actions
      ]
    )
    is_over = bool((self.timestep.step_type == types.LAST).all())
    return Moment(
      self.states[-1], is_over, np.asarray(outcome).tolist() if is_over else []
    )

  def record(
    self, seats: Sequence[Mapping[str, Any]], outcome: list[float], speed: int
  ) -> dict[str, Any]:
    """Returns the current game in the format of `saved_games`.

    Args:
      seats: 'name', 'kind', 'team' and 'rating' of each player.
      outcome: outcome of each team; see `Moment`.
      speed: steps per second.
    """
    page = self._playable.page
    return {
      'game': self._playable.name,
      'script': page.script.stem,
      'code': page.script.read_text('utf-8'),
      'facts': self.facts,
      'seed': self.seed,
      'seats': list(seats),
      'outcome': outcome,
      'speed': speed,
      'states': self.states,
      'actions': self.actions_taken,
    }

  def observed(self, seat: int) -> dm_env.TimeStep:
    """Returns the last timestep of one seat, without a player axis."""
    return trees.take(self.timestep, seat)

  def view(self, seat: int) -> Any:
    """Returns the current observation of the agent on a seat, as JSON."""
    return self._playable.page.view(self.observed(seat).observation)

  def looks(self) -> list[dict[str, Any]]:
    """Returns values inside the player on each seat; see `NamedPlayers`."""
    return [
      self._playable.players.look(name, self.observed(seat), state)
      for seat, (name, state) in enumerate(self._players)
    ]


def record_matches(
  playable: playable_lib.PlayableGame,
  matches: Sequence[Sequence[str]],
  run_dir: str | os.PathLike[str],
  seed: int = 0,
) -> None:
  """Plays games between given players and saves them for a run's report.

  Args:
    playable: the game.
    matches: for each game, the player of each team or of each seat; see
      `NamedPlayers.names`.
    run_dir: directory of the run.
    seed: seed of all games.

  Raises:
    ValueError: if a player does not exist, or their number matches neither
      teams nor seats.
  """
  teams, players = playable.teams, playable.players
  for match in matches:
    unknown = [name for name in match if name not in players.names]
    if unknown or len(match) not in (max(teams) + 1, len(teams)):
      raise ValueError(
        f'match ({list(match)}) must name a player for each of the'
        f' {max(teams) + 1} teams, or each of the {len(teams)} seats, of'
        f' {players.names}; choose from these.'
      )
  live = LiveGame(playable)
  saved = saved_games.SavedGames(
    pathlib.Path(run_dir) / saved_games.GAMES_DIRECTORY
  )
  for match in matches:
    by_team = len(match) != len(teams)
    names = [match[team] for team in teams] if by_team else list(match)
    moment = live.start(seed, names)
    while not moment.is_over:
      moment = live.play({})
    seats = [playable.seat_facts(seat, name) for seat, name in enumerate(names)]
    saved.save(live.record(seats, moment.outcome, DEFAULT_SPEED))
