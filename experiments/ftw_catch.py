"""FTW learns catch from pixels, with its auxiliary tasks or without.

Run as `uv run experiments/ftw_catch.py`, and with `--noauxiliary` for the
comparison. The frames are 84x84x3; the only reward of an episode comes when the
ball is at the bottom.
"""

import functools

from absl import flags

from ftwax.agents import ftw
from ftwax.environments import bsuite_adapter, pixels
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=100_000, num_environments=16, eval_every=0
)
_CORE = flags.DEFINE_enum('core', 'lstm', ftw.CORES, 'The recurrent core.')
_AUXILIARY = flags.DEFINE_bool(
  'auxiliary', True, 'Whether to learn pixel control and reward prediction.'
)


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment that the flags describe."""
  config = ftw.FTWConfig(
    core=_CORE.value,
    use_pixel_control=_AUXILIARY.value,
    use_reward_prediction=_AUXILIARY.value,
    crop_size=(80, 80),
  ).fix(
    learning_rate=2e-4,
    entropy_cost=1e-2,
    pixel_control_cost=0.01,
    reward_prediction_cost=0.5,
    kl_posterior_prior_cost=1e-3,
    kl_prior_fixed_cost=1e-4,
    slow_period=5,
    fast_to_slow_gradient_scale=0.5,
  )
  suffix = '' if _AUXILIARY.value else '_no_auxiliary'
  return experiment.ExperimentConfig(
    name=f'ftw_catch_{_CORE.value}{suffix}',
    builder=ftw.FTWBuilder(config),
    network_factory=functools.partial(ftw.make_network, config=config),
    environment_factory=make_environment,
    **launch.experiment_options(),
  )


def make_environment(seed: int) -> pixels.PixelBoard:
  """Returns catch on a frame."""
  return pixels.PixelBoard(bsuite_adapter.make('catch/0', seed))


if __name__ == '__main__':
  launch.run(build_experiment)
