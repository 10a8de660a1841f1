from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

print(evaluate_policy(PPO.load('cartpole'), make_vec_env('CartPole-v1'), 20))
