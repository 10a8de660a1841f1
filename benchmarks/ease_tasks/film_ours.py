import ftwax

ftwax.load('cartpole').record('CartPole-v1', 'cartpole.gif')
