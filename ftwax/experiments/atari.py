"""IMPALA, A2C or A3C on an Atari game, Pong by default.

Run `uv run experiments/atari.py --game=breakout`. Ctrl-C saves the run, and the
same command with `--resume` continues it. `--agent=a3c --runtime=distributed`
is A3C with asynchronous actors. With `--vector`, ale-py steps all games
together; see `ftwax.environments.atari_vector` for the differences.
"""

import functools

import dm_env
from absl import flags

from ftwax.agents import a2c, a3c, impala, named, ppo
from ftwax.environments import atari, atari_vector, vector
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=10_000_000, num_environments=8, eval_every=0
)
_GAME = flags.DEFINE_string('game', 'pong', 'Name of the game.')
_AGENT = flags.DEFINE_enum('agent', 'impala', named.STANDARD, 'The agent.')
_SIZE = flags.DEFINE_enum(
  'size',
  '84',
  ['84', '42'],
  'Height and width of frames: 84 (color, see --torso) or 42 (gray, as in A3C'
  ' and UNREAL; four times as fast).',
)
_VECTOR = flags.DEFINE_bool(
  'vector',
  False,
  "Step the games in threads, with ale-py's own vector environment.",
)
_TORSO = flags.DEFINE_enum(
  'torso',
  'shallow',
  ['shallow', 'deep', 'ftw', 'nature'],
  'Torso for frames of 84x84.',
)

# The settings of each agent's paper on Atari.
_PRESETS = {
  'impala': impala.IMPALAConfig.atari_paper,
  'a2c': a2c.A2CConfig.paper,
  'a3c': a3c.A3CConfig.paper,
  'ppo': ppo.PPOConfig.atari_paper,
}


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment described by the flags."""
  large = _SIZE.value == '84'
  config = _PRESETS[_AGENT.value](image_torso=_TORSO.value if large else 'a3c')
  rules = atari.AtariConfig(size=int(_SIZE.value), grayscale=not large)
  make = functools.partial(
    _make_vector if _VECTOR.value else _make_environment, _GAME.value, rules
  )
  return experiment.ExperimentConfig(
    name=f'{_AGENT.value}_{_GAME.value}',
    agent=config,
    environment=vector.VectorFactory(make) if _VECTOR.value else make,
    **launch.experiment_options(),
  )


def _make_environment(
  game: str, config: atari.AtariConfig, seed: int
) -> dm_env.Environment:
  return atari.make(game, seed=seed, config=config)


def _make_vector(
  game: str, config: atari.AtariConfig, num_environments: int, seed: int
) -> vector.EnvironmentVector:
  return atari_vector.make(
    game, num_environments=num_environments, seed=seed, config=config
  )


if __name__ == '__main__':
  launch.run(build_experiment)
