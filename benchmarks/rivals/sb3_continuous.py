# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "stable-baselines3==2.9.2",
#   "gymnasium[mujoco]==1.4.0",
#   "mujoco==3.17.0",
# ]
# ///
"""PPO of Stable-Baselines3 on continuous control.

Runs with its defaults, or with the settings that its authors tuned for the task
in RL Baselines3 Zoo (hyperparams/ppo.yml; Hopper-v3 for Hopper-v5). The score
is that of 20 greedy episodes at the end, in separate environments.
"""

import argparse
import json
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common import env_util, evaluation, vec_env

# Settings, number of environments, and whether to normalize, by task.
_ZOO = {
  'Pendulum-v1': (
    {
      'n_steps': 1024,
      'gamma': 0.9,
      'learning_rate': 1e-3,
      'use_sde': True,
      'sde_sample_freq': 4,
    },
    4,
    False,
  ),
  'Hopper-v5': (
    {
      'batch_size': 32,
      'n_steps': 512,
      'gamma': 0.999,
      'learning_rate': 9.80828e-05,
      'ent_coef': 0.00229519,
      'n_epochs': 5,
      'gae_lambda': 0.99,
      'max_grad_norm': 0.7,
      'vf_coef': 0.835671,
      'policy_kwargs': {
        'log_std_init': -2,
        'ortho_init': False,
        'activation_fn': torch.nn.ReLU,
        'net_arch': {'pi': [256, 256], 'vf': [256, 256]},
      },
    },
    1,
    True,
  ),
}


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--task', required=True)
  parser.add_argument('--settings', choices=['defaults', 'zoo'], required=True)
  parser.add_argument('--seed', type=int, required=True)
  parser.add_argument('--num_steps', type=int, required=True)
  args = parser.parse_args()
  torch.set_num_threads(1)
  options, num_envs, normalize = ({}, 1, False)
  if args.settings == 'zoo':
    options, num_envs, normalize = _ZOO[args.task]
  env = env_util.make_vec_env(args.task, num_envs)
  if normalize:
    env = vec_env.VecNormalize(env, gamma=options['gamma'])
  agent = PPO('MlpPolicy', env, seed=args.seed, device='cpu', **options)
  start = time.perf_counter()
  agent.learn(args.num_steps)
  seconds = time.perf_counter() - start
  played = env_util.make_vec_env(args.task, seed=args.seed + 1_000_000)
  if normalize:
    played = vec_env.VecNormalize(played, training=False, norm_reward=False)
    played.obs_rms = env.obs_rms
  score, _ = evaluation.evaluate_policy(agent, played, 20)
  print(
    json.dumps({'score': score, 'seconds': seconds, 'steps': args.num_steps})
  )


if __name__ == '__main__':
  main()
