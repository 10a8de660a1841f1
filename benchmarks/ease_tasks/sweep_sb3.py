import numpy as np
from matplotlib import pyplot as plt
from stable_baselines3 import PPO
from stable_baselines3.common import callbacks, env_util

for rate in (1e-4, 1e-3, 1e-2):
  curves = []
  for seed in range(3):
    evaluation = callbacks.EvalCallback(
      env_util.make_vec_env('CartPole-v1'),
      eval_freq=2_000,
      log_path=f'sweep_{rate}_{seed}',
    )
    agent = PPO('MlpPolicy', 'CartPole-v1', learning_rate=rate, seed=seed)
    agent.learn(10_000, callback=evaluation)
    curves.append(np.mean(evaluation.evaluations_results, axis=1))
  steps, mean = evaluation.evaluations_timesteps, np.mean(curves, axis=0)
  plt.plot(steps, mean, label=f'learning rate {rate}')
  plt.fill_between(steps, np.min(curves, 0), np.max(curves, 0), alpha=0.3)
plt.legend()
plt.savefig('sweep.png')
