import ftwax

experiment = ftwax.make_experiment('ppo', 'CartPole-v1', 10_000)
ftwax.run(experiment, eval_every=10_000)
