"""Atari 2600 games through the Arcade Learning Environment (ALE).

Defaults follow Machado et al., 2018, "Revisiting the Arcade Learning
Environment": sticky actions, episodes that end with the game, at most half an
hour of play. Frames are 84 x 84 as in Mnih et al., 2015; with `size=42`, the
computation of a convolutional torso drops to a quarter. There is no frame
stack, as recurrent agents need none. Rewards are the unclipped scores of the
game; agents may clip them.

Grayscale frames come directly from ALE, without Gymnasium in between, so nearly
all time is spent in the emulator.
"""

import dataclasses
import difflib
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from numpy import typing as npt

from ftwax import extras, parts, registry, types
from ftwax.environments import specified

with extras.required('ale-py', 'envs'):
  import ale_py
  from ale_py import roms

with extras.required('opencv-python-headless', 'envs'):
  import cv2


@registry.register('atari.rules')
@dataclasses.dataclass(frozen=True)
class AtariConfig(parts.Part):
  """Observations and rules of a game, which runs at 60 frames per second.

  Attributes:
    size: height and width of the observation, in pixels.
    grayscale: whether frames have one channel rather than three.
    action_repeat: frames for which each action is held.
    max_pool: whether a frame is the maximum over the last two of a repeat, as
      some games draw an object in every second frame only.
    frame_stack: frames in an observation, concatenated along channels, oldest
      first. At the start of an episode all are the first frame.
    sticky_actions: probability, per frame, that the emulator repeats the
      previous action instead.
    max_episode_frames: frames after which a game is truncated.
    terminal_on_life_loss: whether the loss of a life ends the episode, with
      discount 0; the next episode continues the game.
    full_action_space: whether there are all 18 actions rather than only those
      that the game uses.
    noop_max: a game starts with 1 to `noop_max` frames without action, drawn
      uniformly; 0 for none.

  Raises:
    ValueError: if a value is out of its range.
  """

  size: int = parts.option(84, low=1)
  grayscale: bool = True
  action_repeat: int = parts.option(4, low=1)
  max_pool: bool = True
  frame_stack: int = parts.option(1, low=1, high=parts.MAX_UNROLLED)
  sticky_actions: float = parts.option(0.25, low=0, below=1)
  max_episode_frames: int = parts.option(108_000, low=1)
  terminal_on_life_loss: bool = False
  full_action_space: bool = False
  noop_max: int = parts.option(30, low=0)


def list_games() -> list[str]:
  """Returns the names of all games."""
  return sorted(roms.get_all_rom_ids())


def make_spec(config: AtariConfig, num_actions: int) -> types.EnvironmentSpec:
  """Returns the spec of a game with `num_actions` actions."""
  num_channels = (1 if config.grayscale else 3) * config.frame_stack
  shape = (config.size, config.size, num_channels)
  frames = specs.BoundedArray(shape, np.uint8, 0, 255, 'observation')
  return specified.make_spec(frames, num_actions)


def check_game(game: str, seed: int) -> None:
  """Raises a ValueError if the game is unknown or the seed is out of range."""
  if game not in roms.get_all_rom_ids():
    close = difflib.get_close_matches(game.lower(), list_games())
    raise ValueError(
      f'game ({game!r}) must be the name of an Atari game; did you mean'
      f' {" or ".join(map(repr, close)) or "another one"}?'
      ' ftwax.environments.atari.list_games() lists all.'
    )
  if not 0 <= seed < 2**31:
    raise ValueError(
      f'seed ({seed}) must lie in [0, 2**31), as the emulator requires; take it'
      ' modulo 2**31.'
    )


@registry.register('atari.game')
def make(
  game: str = 'pong', *, seed: int, config: AtariConfig | None = None
) -> 'AtariEnvironment':
  """Makes an Atari environment.

  Args:
    game: one of `list_games()`.
    seed: seed of the emulator and of the no-ops, in [0, 2**31).
    config: observations and rules; defaults to `AtariConfig()`.

  Raises:
    ValueError: if there is no such game or the seed is out of range.
  """
  return AtariEnvironment(game, seed, config or AtariConfig())


class AtariEnvironment(specified.Specified, dm_env.Environment):
  """An Atari game as a dm_env environment.

  The observation is uint8 [size, size, channels], with 1 or 3 channels for each
  frame of the stack. Rewards and discounts are float32, both None at `FIRST`.
  The discount is 0 where the game or, if configured, a life ends, and 1 where
  `max_episode_frames` truncates the game. Callers may keep observations, but
  must not modify stacked ones. Making an environment restricts ALE's logging to
  errors in the whole process.
  """

  def __init__(self, game: str, seed: int, config: AtariConfig):
    self._config = config
    check_game(game, seed)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    self._ale = ale_py.ALEInterface()
    self._ale.setInt('random_seed', int(seed))
    self._ale.setFloat('repeat_action_probability', config.sticky_actions)
    self._ale.loadROM(str(roms.get_rom_path(game)))
    self._rng = np.random.default_rng(seed)
    self._actions = (
      self._ale.getLegalActionSet()
      if config.full_action_space
      else self._ale.getMinimalActionSet()
    )
    screen = self._ale.getScreenDims()
    self._num_channels = 1 if config.grayscale else 3
    super().__init__(make_spec(config, len(self._actions)))
    self._get_screen = (
      self._ale.getScreenGrayscale
      if config.grayscale
      else self._ale.getScreenRGB
    )
    shape = screen if config.grayscale else (*screen, 3)
    self._screen = np.empty(shape, np.uint8)
    self._screen_before = np.empty(shape, np.uint8)
    self._stack = np.empty(self._spec.observations.shape, np.uint8)
    self._must_reset = True
    self._next_life = False

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timestep of a new game, or of the next life."""
    if not self._next_life:
      self._start_game()
    self._must_reset = self._next_life = False
    self._get_screen(self._screen)
    frame = self._make_frame()
    self._stack = np.tile(frame, (1, 1, self._config.frame_stack))
    return dm_env.restart(self._stack)

  def step(self, action: types.Array) -> dm_env.TimeStep:
    """Returns the next timestep, a `FIRST` one after `LAST` or at the start.

    Args:
      action: [], an index into the actions of the game.

    Raises:
      ValueError: if `action` is out of range.
    """
    if self._must_reset:
      return self.reset()
    index = int(action)
    if not 0 <= index < len(self._actions):
      raise ValueError(
        f'action ({index}) must lie in [0, {len(self._actions)}); choose an'
        ' action of action_spec.'
      )
    reward, life_lost = self._act(self._actions[index])
    game_over = self._ale.game_over()
    num_frames = self._ale.getEpisodeFrameNumber()
    cut_off = num_frames >= self._config.max_episode_frames
    terminated = game_over or life_lost
    self._must_reset = terminated or cut_off
    self._next_life = life_lost and not (game_over or cut_off)
    return dm_env.TimeStep(
      dm_env.StepType.LAST if self._must_reset else dm_env.StepType.MID,
      np.float32(reward),
      np.float32(0 if terminated else 1),
      self._observe(),
    )

  def play_whole_games(self) -> None:
    """Ends episodes with games alone, and not with lives, from the next on."""
    self._config = dataclasses.replace(
      self._config, terminal_on_life_loss=False
    )

  def _start_game(self) -> None:
    self._ale.reset_game()
    if self._config.noop_max:
      for _ in range(self._rng.integers(1, self._config.noop_max + 1)):
        self._ale.act(ale_py.Action.NOOP)
        if self._ale.game_over():
          self._ale.reset_game()

  def _act(self, action: ale_py.Action) -> tuple[float, bool]:
    """Holds `action`; returns the reward and whether it ended a life."""
    ale, config = self._ale, self._config
    lives = ale.lives()
    life_lost = False
    reward = 0.0
    for frames_left in reversed(range(config.action_repeat)):
      reward += ale.act(action)
      if frames_left == 1 and config.max_pool:
        self._get_screen(self._screen_before)
      life_lost = config.terminal_on_life_loss and ale.lives() < lives
      if life_lost or ale.game_over():
        break
    self._get_screen(self._screen)
    # A repeat that ended early has no second-to-last frame to pool with.
    if config.max_pool and config.action_repeat > 1 and frames_left == 0:
      np.maximum(self._screen, self._screen_before, out=self._screen)
    return reward, life_lost

  def _make_frame(self) -> npt.NDArray[Any]:
    """Returns the screen resized to uint8 [size, size, 1 or 3]."""
    size = (self._config.size, self._config.size)
    frame = cv2.resize(self._screen, size, interpolation=cv2.INTER_AREA)
    return frame.reshape((*size, self._num_channels))

  def _observe(self) -> npt.NDArray[Any]:
    frame = self._make_frame()
    if self._config.frame_stack == 1:
      return frame
    older = self._stack[..., self._num_channels :]
    self._stack = np.concatenate([older, frame], axis=-1)
    return self._stack
