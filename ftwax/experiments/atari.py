"""An agent on an Atari game, IMPALA on Pong by default.

Run `uv run experiments/atari.py --game=breakout`. Ctrl-C saves the run, and the
same command with `--resume` continues it. `--agent=a3c --runtime=distributed`
is A3C with asynchronous actors. With `--vector`, ale-py steps all games
together; see `ftwax.environments.atari_vector` for the differences.
"""

import dataclasses
import functools
from typing import Any

import ftwax
from ftwax import registry
from ftwax.agents import a2c, a3c, impala, ppo, unreal
from ftwax.agents.actor_critic import tasks
from ftwax.cli import flags, launch
from ftwax.environments import atari, atari_vector, vector


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 10_000_000
  game: str = flags.flag('pong', 'Name of the game.')
  agent: str = flags.flag(
    'impala', 'The agent.', ['impala', 'a2c', 'a3c', 'ppo', 'unreal']
  )
  size: str = flags.flag(
    '84',
    'Height and width of frames: 84 (color, see --torso) or 42 (gray, as in'
    ' A3C and UNREAL; four times as fast).',
    ['84', '42'],
  )
  vector: bool = flags.flag(
    False, "Step the games in threads, with ale-py's own vector environment."
  )
  torso: str = flags.flag(
    'shallow',
    'Torso for frames of 84x84.',
    ['shallow', 'deep', 'ftw', 'nature'],
  )


def _make_unreal(torso: str) -> unreal.UNREALConfig:
  """Returns UNREAL with fixed values within the ranges that its paper tunes."""
  cell_size = 2 if torso == 'a3c' else 4
  return unreal.UNREALConfig.paper(
    torso=torso,
    batch_size=16,
    learning_rate=7e-4,
    entropy_cost=1e-3,
    tasks=(
      tasks.PixelControl(
        cost=1e-3, cell_size=cell_size, crop_size=(20 * cell_size,) * 2
      ),
      tasks.RewardPrediction(),
      tasks.ValueReplay(),
    ),
  )


# The settings of each agent's paper on Atari.
_PRESETS: dict[str, Any] = {
  'impala': impala.IMPALAConfig.atari_paper,
  'a2c': a2c.A2CConfig.paper,
  'a3c': a3c.A3CConfig.paper,
  'ppo': ppo.PPOConfig.atari_paper,
  'unreal': _make_unreal,
}


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  large = options.size == '84'
  rules = atari.AtariConfig(size=int(options.size), grayscale=not large)
  make: Any = functools.partial(atari.make, options.game, config=rules)
  if options.vector:
    make = functools.partial(make_vector, options.game, rules)
  return ftwax.ExperimentConfig(
    name=f'{options.agent}_{options.game}',
    agent=_PRESETS[options.agent](torso=options.torso if large else 'a3c'),
    environment=vector.VectorFactory(make) if options.vector else make,
    **options.fields(),
  )


@registry.register('atari_vector.games')
def make_vector(
  game: str, config: atari.AtariConfig, num_environments: int, seed: int
) -> vector.EnvironmentVector:
  """Returns a vector of games."""
  return atari_vector.make(
    game, num_environments=num_environments, seed=seed, config=config
  )


if __name__ == '__main__':
  launch.main(__file__)
