import ftwax
from ftwax.agents import ppo

experiment = ftwax.ExperimentConfig(ppo.PPOConfig(), 'CartPole-v1', 10_000)
for seed in range(3):
  ftwax.run(experiment.replace(seed=seed), eval_every=10_000)
