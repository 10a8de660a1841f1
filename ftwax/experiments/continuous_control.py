"""PPO on continuous control: a pendulum, or robots simulated by MuJoCo.

Run `uv run experiments/continuous_control.py` for Pendulum-v1, or
`uv run --with mujoco experiments/continuous_control.py --task=Hopper-v5`.
"""

from absl import flags

from ftwax.agents import ppo
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=100_000, num_environments=16, eval_every=0
)
_TASK = flags.DEFINE_string(
  'task', 'Pendulum-v1', 'Name of the environment in Gymnasium.'
)

# Discounts that are known to suit a task.
_DISCOUNTS = {'Pendulum-v1': 0.9}


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment described by the flags."""
  config = ppo.PPOConfig(
    core='feed_forward',
    skip_connection=False,
    vector_hidden_sizes=(64,),
    separate_value=True,
    normalize_observations=True,
    normalize_returns=True,
    sequence_length=32,
    batch_size=32,
    num_epochs=10,
    num_minibatches=16,
  ).fix(
    learning_rate=3e-4,
    discount=_DISCOUNTS.get(_TASK.value, 0.99),
    entropy_cost=0.0,
  )
  return experiment.ExperimentConfig(
    agent=config, environment=_TASK.value, **launch.experiment_options()
  )


if __name__ == '__main__':
  launch.run(build_experiment)
