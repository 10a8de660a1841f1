import gymnasium

import ftwax

env = gymnasium.make('CartPole-v1')
agent = ftwax.load('cartpole')
observation, _ = env.reset(seed=0)
state, reward, total, done = None, None, 0.0, False
while not done:
  action, state = agent.step(observation, state, reward)
  observation, reward, terminated, truncated, _ = env.step(action)
  total += reward
  done = terminated or truncated
print(total)
