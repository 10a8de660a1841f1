import ftwax
from ftwax.agents import ppo
from ftwax.runtime import callbacks

experiment = ftwax.ExperimentConfig(
  ppo.PPOConfig(),
  'CartPole-v1',
  150_000,
  observers=[callbacks.EarlyStopping(score=475)],
)
ftwax.run(experiment, eval_every=5_000, run_dir='cartpole')
