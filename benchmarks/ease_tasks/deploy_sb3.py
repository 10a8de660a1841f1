import gymnasium
from stable_baselines3 import PPO

env = gymnasium.make('CartPole-v1')
agent = PPO.load('cartpole')
observation, _ = env.reset(seed=0)
state, total, done = None, 0.0, False
while not done:
  action, state = agent.predict(observation, state, deterministic=True)
  observation, reward, terminated, truncated, _ = env.step(action)
  total += reward
  done = terminated or truncated
print(total)
