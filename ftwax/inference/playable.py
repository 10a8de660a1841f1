"""Games that can be played in the browser, and their players."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import dm_env

from ftwax import compilation, import_guard, types
from ftwax.environments import (
  capture_the_flag,
  catch,
  functional,
  game_pages,
  games,
  vector,
)
from ftwax.environments.capture_the_flag import browser
from ftwax.inference import loading, named_players
from ftwax.records import game_files
from ftwax.runtime import experiment as experiment_lib

_PETTINGZOO = 'pettingzoo:'


@dataclasses.dataclass(frozen=True)
class PlayableGame:
  """A game, its page, and its players.

  Attributes:
    name: name shown to people.
    game: a JAX game, or a Python game (`games.GameEnvironment`).
    page: displays the game.
    players: players that can take seats: members, scripts and others.
  """

  name: str
  game: functional.FunctionalGame | games.GameEnvironment
  page: game_pages.GamePage
  players: named_players.NamedPlayers

  @property
  def teams(self) -> tuple[int, ...]:
    """The team of each seat."""
    return tuple(self.game.teams)

  def seat_facts(
    self, seat: int, name: str, is_person: bool = False
  ) -> dict[str, Any]:
    """Returns the record of the player on a seat, for saved games."""
    return {
      'name': name,
      'kind': 'person' if is_person else 'player',
      'team': self.teams[seat],
      'rating': round(self.players.rating(name)),
    }

  @functools.cached_property
  def functions(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`reset(key)` and `step(state, action)`, compiled for JAX games.

    Both return the state, the timestep, the state shown by the page, and the
    outcome.
    """
    game, page = self.game, self.page
    if isinstance(game, functional.FunctionalGame):
      jax_game = game

      def shown(state: Any, timestep: dm_env.TimeStep) -> Any:
        return state, timestep, page.to_page(state), jax_game.outcome(state)

      return (
        compilation.jit_unoptimized(lambda key: shown(*jax_game.reset(key))),
        # Of one game, for people: soon compiled is better than fast.
        compilation.jit_unoptimized(
          lambda state, action: shown(*jax_game.step(state, action))
        ),
      )
    python_game = game

    def show(timestep: dm_env.TimeStep) -> Any:
      is_over = (timestep.step_type == types.LAST).all()
      outcome = python_game.outcome() if is_over else None
      return None, timestep, page.to_page(None), outcome

    return (
      lambda key: show(python_game.reset()),
      lambda state, action: show(python_game.step(action)),
    )


def make(
  name: str,
  game: Any,
  source: str | os.PathLike[str] | None = None,
  experiment: experiment_lib.ExperimentConfig | None = None,
) -> PlayableGame:
  """Makes a game that can be played in the browser.

  Args:
    name: name shown to people.
    game: a JAX or Python game with a `page`, a `display` or a `render`; see
      `game_pages.find`. A JAX environment is a game of one player.
    source: source of members, if any; see `loading.load`.
    experiment: experiment of the members; see `loading.load`.

  Raises:
    ValueError: if the game is not supported, or members were trained in another
      game.
  """
  if isinstance(game, functional.FunctionalEnvironment):
    game = functional.as_game(game)
  if not hasattr(game, 'teams'):
    raise ValueError(
      f'game ({type(game).__name__}) must be a game of teams, or an environment'
      ' in JAX, to be played in the browser; `ftwax film` films any.'
    )
  spec = games.spec_of(game)
  scripts = getattr(game, 'scripts', {})
  return PlayableGame(
    name,
    game,
    game_pages.find(game, spec.environment.actions),
    named_players.NamedPlayers(spec, scripts, source, experiment),
  )


def find(
  source: str, experiment: experiment_lib.ExperimentConfig | None = None
) -> PlayableGame:
  """Finds a game and its players.

  Args:
    source: a population included in the library, such as 'capture_the_flag';
      the directory of a run; 'catch', without a population; or 'pettingzoo:'
      and the name of a parallel environment, such as
      'pettingzoo:butterfly/cooperative_pong-v6'.
    experiment: experiment of the run, whose evaluation game is used. Without
      it, the records of the run must show that its game is capture the flag or
      catch.

  Raises:
    ValueError: if the source does not exist or its game cannot be shown.
  """
  if source.startswith(_PETTINGZOO):
    name = source.removeprefix(_PETTINGZOO)
    return make(name, _pettingzoo_game(name))
  if source == 'catch':
    return make('catch', catch.make())
  directory = loading.find(source)
  if experiment is not None:
    factory = experiment.evaluation_factory
    if isinstance(factory, vector.VectorFactory):
      raise ValueError(
        f'environment of {source} must make single games to be played,'
        ' and makes vectors; pass --experiment with one that does.'
      )
    return make(
      experiment.name.replace('_', ' '), factory(0), directory, experiment
    )
  spec = game_files.read(directory)
  if spec.event_names == capture_the_flag.EVENT_NAMES:
    config = browser.read_config(spec.environment, spec.team_size)
    return make('capture the flag', capture_the_flag.make(config), directory)
  shape = getattr(spec.environment.observations, 'shape', ())
  if len(shape) == 2 and spec.environment == catch.make(*shape).spec:
    return make('catch', catch.make(*shape), directory)
  raise ValueError(
    f'game of {source} must be capture the flag or catch to be rebuilt from its'
    ' records; pass the experiment of the run with --experiment.'
  )


def _pettingzoo_game(name: str) -> Any:
  from ftwax.environments import pettingzoo_adapter

  try:
    with import_guard.guarded():
      import pettingzoo

      env = pettingzoo.make('parallel', name, render_mode='rgb_array')
  except Exception as error:  # Of PettingZoo or its imports.
    raise ValueError(
      f'game ({_PETTINGZOO}{name}) must be a parallel environment of PettingZoo'
      f' whose packages are installed, but: {error}; choose e.g.'
      f' {_PETTINGZOO}butterfly/cooperative_pong-v6.'
    ) from None
  return pettingzoo_adapter.PettingZooGame(env)
