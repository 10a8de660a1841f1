import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

env = gymnasium.make('CartPole-v1', render_mode='rgb_array')
env = gymnasium.wrappers.RecordVideo(env, 'film')
evaluate_policy(PPO.load('cartpole'), env, 1)
env.close()
