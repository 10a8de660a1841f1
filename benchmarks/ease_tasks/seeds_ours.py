import ftwax

experiment = ftwax.make_experiment('ppo', 'CartPole-v1', 10_000)
for seed in range(3):
  ftwax.run(experiment.replace(seed=seed), eval_every=10_000)
