from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

env = make_vec_env('CartPole-v1')
agent = PPO.load('cartpole', env, learning_rate=1e-4).learn(10_000)
print(evaluate_policy(agent, env))
