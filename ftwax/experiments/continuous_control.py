"""PPO on continuous control: a pendulum, or robots simulated by MuJoCo.

Run `uv run experiments/continuous_control.py` for Pendulum-v1. With
`uv run --with 'gymnasium[mujoco]'`, `--task=Hopper-v5` is a robot of MuJoCo,
and with `--with playground` a task of Brax or MuJoCo Playground in JAX, such as
`--task=brax:inverted_double_pendulum` or `--task=playground:CartpoleBalance`.
"""

import dataclasses
from typing import Any

import ftwax
from ftwax.agents import ppo
from ftwax.cli import flags, launch
from ftwax.networks import torsos


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  num_environments: int = 16
  task: str = flags.flag('Pendulum-v1', 'Name of the environment.')

  def defaults(self) -> dict[str, Any]:
    """Returns more environments for those in JAX."""
    return {'num_environments': 64} if ':' in self.task else {}


# What is known to suit tasks, by the start of their names.
_SETTINGS: dict[str, dict[str, float]] = {
  '': {'learning_rate': 3e-4, 'entropy_cost': 0.0},
  'Pendulum-v1': {'discount': 0.9},
  # As in Playground's own training; without the entropy no pendulum swings up.
  'playground:': {'discount': 0.995, 'entropy_cost': 0.01},
}


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  config = ppo.PPOConfig(
    core='feed_forward',
    skip_connection=False,
    torso=torsos.Torso(hidden_sizes=(64,)),
    separate_value=True,
    normalize_observations=True,
    normalize_returns=True,
    sequence_length=32,
    batch_size=max(32, options.num_environments),
    num_epochs=10,
    num_minibatches=16,
  ).replace(
    **{
      name: value
      for start, settings in _SETTINGS.items()
      if options.task.startswith(start)
      for name, value in settings.items()
    }
  )
  if ':' in options.task:
    # Episodes start together: an update sees one part of them, a long one. Once
    # a task is solved, normalized advantages are noise.
    config = config.replace(
      sequence_length=128, num_minibatches=32
    ).decayed_over(options.max_num_actor_steps)
  return ftwax.ExperimentConfig(
    agent=config, environment=options.task, **options.fields()
  )


if __name__ == '__main__':
  launch.main(__file__)
