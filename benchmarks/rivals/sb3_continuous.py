# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "stable-baselines3==2.9.2",
#   "gymnasium[mujoco]==1.4.0",
#   "mujoco==4.0.0",
# ]
# ///
"""PPO of Stable-Baselines3 on continuous control, with its defaults.

Prints each training episode and each greedy evaluation, in environments of
their own, as one line of JSON.
"""

import argparse
import json

import torch
from stable_baselines3 import PPO
from stable_baselines3.common import callbacks, env_util, evaluation


class Recorder(callbacks.BaseCallback):
  """Records episodes, and evaluates now and then."""

  def __init__(self, played, period, num_episodes):
    super().__init__()
    self.episodes, self.evaluations = [], []
    self._played, self._period = played, period
    self._num_episodes = num_episodes

  def _on_step(self):
    for info in self.locals['infos']:
      if 'episode' in info:
        self.episodes.append(
          {
            'actor_steps': self.num_timesteps,
            'episode_return': float(info['episode']['r']),
            'num_episodes': 1,
          }
        )
    if self.num_timesteps % self._period == 0:
      score, _ = evaluation.evaluate_policy(
        self.model, self._played, self._num_episodes
      )
      self.evaluations.append(
        {'actor_steps': self.num_timesteps, 'episode_return': float(score)}
      )
    return True


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--task', required=True)
  parser.add_argument('--seed', type=int, required=True)
  parser.add_argument('--num_steps', type=int, required=True)
  parser.add_argument('--num_evaluations', type=int, required=True)
  parser.add_argument('--num_episodes', type=int, required=True)
  args = parser.parse_args()
  torch.set_num_threads(1)
  agent = PPO(
    'MlpPolicy',
    env_util.make_vec_env(args.task, 1),
    seed=args.seed,
    device='cpu',
  )
  recorder = Recorder(
    env_util.make_vec_env(args.task, 1, seed=args.seed + 1_000_000),
    args.num_steps // args.num_evaluations,
    args.num_episodes,
  )
  agent.learn(args.num_steps, recorder)
  print(
    json.dumps(
      {'episodes': recorder.episodes, 'evaluations': recorder.evaluations}
    )
  )


if __name__ == '__main__':
  main()
