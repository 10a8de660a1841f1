from stable_baselines3 import PPO
from stable_baselines3.common import callbacks, env_util

evaluation = callbacks.EvalCallback(
  env_util.make_vec_env('CartPole-v1'),
  callback_on_new_best=callbacks.StopTrainingOnRewardThreshold(475),
  n_eval_episodes=10,
  eval_freq=5_000,
)
agent = PPO('MlpPolicy', 'CartPole-v1').learn(150_000, callback=evaluation)
agent.save('cartpole')
