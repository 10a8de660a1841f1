"""Atari games that ale-py steps together, in its own threads.

Nearly the same as `ftwax.environments.atari`: with equal seeds and without
no-ops, frames, rewards, ends and sticky actions are equal bit for bit, except
where ale-py's vector (0.12) differs:

- the observation at `LAST` is that of the previous step, even if a game is
  truncated and its value is bootstrapped from it;
- the number of no-ops at the start is drawn from 0 to `noop_max`, rather than
  from 1, by ale-py's own generator;
- if `max_episode_frames` is not a multiple of `action_repeat`, sticky actions
  differ after the first truncated game;
- at the start of an episode the older frames of a stack are black rather than
  copies of the first;
- the loss of a life would start a new game instead of continuing the old one,
  so `terminal_on_life_loss` is refused.
"""

import ale_py
import numpy as np

from ftwax import types
from ftwax.environments import atari, gymnasium_adapter

_MAX_SEED = 2**31


def make(
  game: str = 'pong',
  *,
  num_environments: int,
  seed: int,
  config: atari.AtariConfig | None = None,
  num_threads: int = 0,
) -> 'AtariVectorEnvironment':
  """Makes a vector of Atari games.

  Args:
    game: one of `atari.list_games()`.
    num_environments: `E`.
    seed: seed of row 0, in [0, 2**31); row `i` uses `seed + i`. Where that of
      the last row would not be below 2**31 - 1, all are lowered alike.
    config: observations and rules; defaults to `AtariConfig()`.
    num_threads: number of threads that step the games; 0 chooses it by the
      machine.

  Raises:
    ValueError: if there is no such game, the seed is out of range, or
      `terminal_on_life_loss` is set.
  """
  config = config or atari.AtariConfig()
  atari.check_game(game, seed)
  if config.terminal_on_life_loss:
    raise ValueError(
      'terminal_on_life_loss (True) must be False in a vector environment of'
      ' ale-py, which would start a new game after each life; set it to False,'
      ' or make single environments with atari.make.'
    )
  vector_env = ale_py.AtariVectorEnv(
    game,
    num_environments,
    num_threads=num_threads,
    max_num_frames_per_episode=config.max_episode_frames,
    repeat_action_probability=config.sticky_actions,
    full_action_space=config.full_action_space,
    img_height=config.size,
    img_width=config.size,
    grayscale=config.grayscale,
    stack_num=config.frame_stack,
    frameskip=config.action_repeat,
    maxpool=config.max_pool,
    noop_max=config.noop_max,
    reward_clipping=False,
    use_fire_reset=False,
  )
  # The seed of the last row must be below the limit as well.
  first_seed = min(seed, _MAX_SEED - num_environments)
  return AtariVectorEnvironment(vector_env, first_seed, config)


class AtariVectorEnvironment(gymnasium_adapter.GymnasiumVectorEnvironment):
  """Atari games as a `vector.EnvironmentVector`, with the specs of `atari`."""

  def __init__(
    self,
    vector_env: ale_py.AtariVectorEnv,
    seed: int,
    config: atari.AtariConfig,
  ):
    super().__init__(vector_env, seed)
    self._spec = atari.make_spec(config, self._spec.actions.num_values)
    shape = self._spec.observations.shape

    def encode(frames: types.NumpyArray) -> types.NumpyArray:
      # [E, stack, size, size] or [..., 3], with the stack in the channels.
      frames = np.moveaxis(np.array(frames), 1, 3)
      return frames.reshape((len(frames), *shape))

    self._convert = encode
