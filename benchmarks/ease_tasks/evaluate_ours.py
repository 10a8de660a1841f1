import ftwax

print(ftwax.load('cartpole').evaluate('CartPole-v1', 20).mean())
