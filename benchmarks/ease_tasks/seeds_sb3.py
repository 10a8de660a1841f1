from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

for seed in range(3):
  agent = PPO('MlpPolicy', 'CartPole-v1', seed=seed).learn(10_000)
  print(evaluate_policy(agent, agent.get_env()))
