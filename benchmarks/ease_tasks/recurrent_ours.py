import ftwax

experiment = ftwax.make_experiment('ppo', 'CartPole-v1', 20_000)
ftwax.run(experiment, eval_every=20_000)
