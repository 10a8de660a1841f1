import ftwax

config = ftwax.agents.PPOConfig().replace(learning_rate=1e-4)
experiment = ftwax.ExperimentConfig(
  config, 'CartPole-v1', 10_000, init_from='cartpole'
)
ftwax.run(experiment, eval_every=10_000)
