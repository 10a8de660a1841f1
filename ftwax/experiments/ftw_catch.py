"""FTW learns catch from pixels, with or without auxiliary tasks.

Run `uv run experiments/ftw_catch.py`, and with `--noauxiliary` to compare;
`--compare=3` runs both with three seeds each and prints a table. Observations
are 84x84x3 images. A catch is rewarded with 1 and a miss with 0, so rewards are
rare at first. The torso is that of UNREAL, which is much faster than FTW's.
"""

import functools

from absl import flags

from ftwax.agents import ftw
from ftwax.environments import catch, functional, pixels
from ftwax.networks import torsos
from ftwax.runtime import comparison, experiment, launch

launch.define_flags(
  max_num_actor_steps=80_000,
  num_environments=16,
  eval_every=0,
  runtime='device',
)
_CORE = flags.DEFINE_enum('core', 'lstm', ftw.CORES, 'The recurrent core.')
_AUXILIARY = flags.DEFINE_bool(
  'auxiliary', True, 'Whether to train pixel control and reward prediction.'
)

_ROWS = _COLUMNS = 12
_HIDDEN_SIZE = 128


def make_environment(seed: int) -> functional.FunctionalEnvironment:
  """Returns catch rendered as images."""
  del seed
  return pixels.make(catch.make(_ROWS, _COLUMNS, miss_reward=0.0))


def make_experiment(
  use_auxiliary: bool, seed: int | None = None
) -> experiment.ExperimentConfig:
  """Returns the experiment, with or without auxiliary tasks."""
  config = ftw.FTWConfig.paper(
    core=_CORE.value,
    torso=functools.partial(torsos.ShallowTorso, _HIDDEN_SIZE),
    use_pixel_control=use_auxiliary,
    use_reward_prediction=use_auxiliary,
    crop_size=(80, 80),
  ).with_size(_HIDDEN_SIZE)
  config = config.fix(
    learning_rate=3e-4,
    entropy_cost=1e-2,
    pixel_control_cost=2e-3,
    reward_prediction_cost=0.5,
    kl_posterior_prior_cost=1e-3,
    kl_prior_fixed_cost=1e-4,
    slow_period=5,
    fast_to_slow_gradient_scale=0.5,
  )
  suffix = '' if use_auxiliary else '_no_auxiliary'
  return experiment.ExperimentConfig(
    name=f'ftw_catch_{_CORE.value}{suffix}',
    agent=config,
    environment=make_environment,
    **launch.experiment_options(seed),
  )


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment described by the flags."""
  return make_experiment(_AUXILIARY.value)


def make_variants() -> comparison.Variants:
  """Returns the variants of `--compare`, by name."""
  return {
    'tasks': functools.partial(make_experiment, True),
    'no tasks': functools.partial(make_experiment, False),
  }


if __name__ == '__main__':
  launch.run(build_experiment, make_variants=make_variants)
