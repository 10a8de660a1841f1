"""Films of games, captioned with players, score and legend."""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import trees, types
from ftwax.environments import adapting, functional, game_vectors, games
from ftwax.inference import play
from ftwax.population import players as players_lib
from ftwax.reporting import videos


def record(
  environment: play.Environment,
  path: str | os.PathLike[str],
  seats: Sequence[tuple[str, players_lib.Player | None]],
  seed: int,
  max_num_steps: int,
  frames_per_second: float,
  num_games: int = 1,
  seat: int | None = None,
) -> pathlib.Path:
  """Films episodes; see `loaded_agent.LoadedAgent.record`.

  Args:
    environment: an environment or a game, which stays open.
    path: path of the GIF.
    seats: name and player of each seat, or of one player for all seats; a
      player of None is the script of that name.
    seed: seed of the players, and of a JAX game.
    max_num_steps: number of steps after which the film ends.
    frames_per_second: frame rate of the film.
    num_games: number of episodes after which the film ends.
    seat: seat of the player whose view is shown beside the game, from 0; None
      for the game alone.

  Returns:
    The path.
  """
  if not {'DISPLAY', 'WAYLAND_DISPLAY'} & os.environ.keys():
    # Else pygame complains that it finds no screen.
    os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')
  environment = adapting.wrap(environment, seed, render_mode='rgb_array')
  game = game_vectors.make_games(lambda seed: environment, [seed], 'film')
  names, seated = _seat(seats, environment, game.spec)
  camera = _Camera(environment, game, seat)
  players = play.SeatedPlayers(game, seated, seed)
  returns = np.zeros((len(names), game.spec.num_events))
  frames, lines = [], []
  for step, (_, timestep) in enumerate(play.play(game, players.act)):
    returns += np.reshape(timestep.reward, returns.shape)
    frames.append(camera.take(timestep))
    lines.append(camera.describe(names, returns, step))
    num_games -= int((timestep.step_type == types.LAST).all())
    if not num_games or step == max_num_steps:
      break
  captioned = videos.add_captions(frames, lines, camera.legend)
  return videos.write_gif(path, captioned, frames_per_second)


def _seat(
  seats: Sequence[tuple[str, players_lib.Player | None]],
  environment: Any,
  spec: games.GameSpec,
) -> tuple[list[str], list[players_lib.Player]]:
  """Returns the names and players of all seats."""
  seats = list(seats) * spec.num_players if len(seats) == 1 else seats
  if len(seats) != spec.num_players:
    raise ValueError(
      f'seats ({len(seats)}) must name a player for each of the'
      f' {spec.num_players} seats of the game, or one for all; repeat a player'
      ' that takes several.'
    )
  scripts = {
    name: find_script(name, environment, spec)
    for name, player in seats
    if player is None
  }
  names = [name for name, _ in seats]
  seated = [player or scripts[name] for name, player in seats]
  players_lib.check_specs(
    dict(zip(names, seated, strict=True)), spec.environment
  )
  return names, seated


def find_script(
  name: str, environment: Any, spec: games.GameSpec
) -> players_lib.Player:
  """Returns the player by a script of a game, or by chance.

  Raises:
    ValueError: if there is no such script.
  """
  if name == 'random':
    return players_lib.uniform(spec.environment.actions)
  scripts: Mapping[str, functional.Script] = getattr(environment, 'scripts', {})
  if name not in scripts:
    raise ValueError(
      f'script ({name!r}) must be one of {["random", *scripts]} in this game;'
      ' choose one of these, or give a loaded agent.'
    )
  return players_lib.scripted(scripts[name])


class _Camera:
  """Takes pictures of a game and describes its state."""

  def __init__(
    self, environment: Any, game: game_vectors.GameVector, seat: int | None
  ):
    self._game = game
    self._display: functional.Display | None = getattr(
      environment, 'display', None
    )
    self._render = self._find_render(environment)
    self._look = None if seat is None else self._find_look(seat)
    self._score = (
      jax.jit(self._display.score) if self._display is not None else None
    )

  @property
  def legend(self) -> Sequence[tuple[str, tuple[int, int, int]]]:
    """The meaning of the colors."""
    return () if self._display is None else self._display.legend

  def take(self, timestep: dm_env.TimeStep) -> types.NumpyArray:
    """Returns an image of the present state, uint8 [H, W, 3]."""
    frame = np.asarray(self._render(timestep))
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[-1] != 3:
      raise ValueError(
        f'the image of the environment ({frame.dtype} of shape {frame.shape})'
        ' must be uint8 [H, W, 3]; make the environment with'
        " render_mode='rgb_array'."
      )
    if self._look is None:
      return frame
    return np.concatenate([frame, self._look()], axis=1)

  def describe(
    self, names: Sequence[str], returns: types.NumpyArray, num_steps: int
  ) -> list[str]:
    """Returns caption lines with players, score and time."""
    teams = self._game.spec.teams
    if len(teams) == 1:
      return [f'{names[0]}   return {returns.sum():.4g}   step {num_steps}']
    num_teams = max(teams) + 1
    if self._score is not None:
      scores = np.asarray(self._score(self._first_state()))
    else:
      scores = np.bincount(teams, returns.sum(axis=1), num_teams)
    team_names = [f'team {team}' for team in range(num_teams)]
    if self._display is not None:
      team_names = list(self._display.team_names)
    lines = []
    for team, score in enumerate(scores):
      own = [name for name, side in zip(names, teams, strict=True)
             if side == team]  # fmt: skip
      lines.append(f'{team_names[team]} {score:g}   {_list_names(own)}')
    lines[0] += f'   step {num_steps}'
    return lines

  def _first_state(self) -> Any:
    return trees.take(self._game.state, 0)

  def _find_look(self, seat: int) -> Callable[[], types.NumpyArray]:
    """Returns a function that draws what the player on a seat sees."""
    look = None if self._display is None else self._display.look
    if look is None:
      raise ValueError(
        f'seat ({seat}) must be None in a game without views of players; leave'
        ' it out, or give the `display` of the game a `look`.'
      )
    num_players = self._game.spec.num_players
    if not 0 <= seat < num_players:
      raise ValueError(
        f'seat ({seat}) must be one of the {num_players} of the game, from 0;'
        f' choose e.g. {num_players - 1}.'
      )
    draw = jax.jit(look)
    return lambda: np.asarray(draw(self._first_state(), np.int32(seat)))

  def _find_render(self, environment: Any) -> Callable[[dm_env.TimeStep], Any]:
    """Returns a function that renders the game, given its timestep."""
    if self._display is not None:
      render = jax.jit(self._display.render)
      return lambda timestep: render(self._first_state())
    if hasattr(environment, 'render'):
      return lambda timestep: environment.render()
    spec = self._game.spec.environment.observations
    if isinstance(spec, Mapping) or len(spec.shape) not in (2, 3):
      raise ValueError(
        f'environment ({type(environment).__name__}) must have a method'
        ' `render` that returns uint8 [H, W, 3], a `display`, or images as'
        ' observations to be filmed; give it one of these.'
      )
    return lambda timestep: _to_image(timestep.observation[0])


def _to_image(observation: types.NumpyArray) -> types.NumpyArray:
  """Converts an image, or the last of a stack, to uint8 [H, W, 3]."""
  image = np.asarray(observation)
  if image.dtype != np.uint8:
    image = (255 * np.clip(image, 0.0, 1.0)).astype(np.uint8)
  if image.ndim == 2 or image.shape[-1] != 3:
    image = image if image.ndim == 2 else image[..., -1]
    image = np.repeat(image[..., None], 3, axis=-1)
  return image


def _list_names(names: Sequence[str]) -> str:
  """Joins names with their multiplicities, e.g. `member 1 (2x)`."""
  counts = {name: list(names).count(name) for name in names}
  return ', '.join(
    name if count == 1 else f'{name} ({count}x)'
    for name, count in counts.items()
  )
