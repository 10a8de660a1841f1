import ftwax
from ftwax.agents import ppo

experiment = ftwax.ExperimentConfig(ppo.PPOConfig(), 'CartPole-v1', 10_000)
ftwax.run(experiment, eval_every=10_000)
