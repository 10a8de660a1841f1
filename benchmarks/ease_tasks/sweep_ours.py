import ftwax
from ftwax.agents import ppo
from ftwax.runtime import sweeps

experiment = ftwax.ExperimentConfig(
  ppo.PPOConfig(), 'gymnax:CartPole-v1', 10_000
)
cells = sweeps.grid({'agent.learning_rate': [1e-4, 1e-3, 1e-2]})
sweeps.run(experiment, cells, seeds=range(3))  # Also draws the curves.
