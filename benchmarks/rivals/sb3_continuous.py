# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "stable-baselines3==2.9.2",
#   "sb3-contrib==2.9.2",
#   "gymnasium[mujoco]==1.4.0",
#   "mujoco==4.0.0",
# ]
# ///
"""PPO of Stable-Baselines3 on continuous control, with its defaults.

With `--normalize`, observations and rewards are divided by their deviations so
far (`VecNormalize`); with `--recurrent`, it is RecurrentPPO of sb3-contrib. A
task is an id of Gymnasium or a function of `hidden_velocities.py`. Returns are
those of the environment, and observations of evaluations are scaled as in
training.

Prints each training episode and each greedy evaluation, in environments of
their own, as one line of JSON.
"""

import argparse
import json

import hidden_velocities
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common import (
  callbacks,
  env_util,
  evaluation,
  vec_env,
)


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
      if self.model.get_vec_normalize_env() is not None:
        vec_env.sync_envs_normalization(self.training_env, self._played)
      score, _ = evaluation.evaluate_policy(
        self.model, self._played, self._num_episodes
      )
      self.evaluations.append(
        {'actor_steps': self.num_timesteps, 'episode_return': float(score)}
      )
    return True


def _make(task, seed, normalizes, trains):
  """Makes one environment, whose random numbers are drawn from `seed`."""
  made = env_util.make_vec_env(
    getattr(hidden_velocities, task, task), 1, seed=seed
  )
  if normalizes:
    made = vec_env.VecNormalize(made, training=trains, norm_reward=trains)
  return made


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--task', required=True)
  parser.add_argument('--seed', type=int, required=True)
  parser.add_argument('--num_steps', type=int, required=True)
  parser.add_argument('--num_evaluations', type=int, required=True)
  parser.add_argument('--num_episodes', type=int, required=True)
  parser.add_argument('--normalize', action='store_true')
  parser.add_argument('--recurrent', action='store_true')
  args = parser.parse_args()
  torch.set_num_threads(1)
  agent_class, policy = stable_baselines3.PPO, 'MlpPolicy'
  if args.recurrent:
    agent_class, policy = sb3_contrib.RecurrentPPO, 'MlpLstmPolicy'
  agent = agent_class(
    policy,
    _make(args.task, None, args.normalize, trains=True),
    seed=args.seed,
    device='cpu',
  )
  recorder = Recorder(
    _make(args.task, args.seed + 1_000_000, args.normalize, trains=False),
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
