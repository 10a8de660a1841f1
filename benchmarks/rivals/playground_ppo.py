# /// script
# requires-python = ">=3.11"
# dependencies = ["brax==0.14.2", "jax<0.8", "playground==0.2.0"]
# ///
"""PPO of Brax with Playground's settings for one of its tasks.

Steps are rounded to whole updates of it, each of which takes about a million.
Prints the mean of the last 100 training episodes, now and then, and greedy
evaluations, as one line of JSON.
"""

import argparse
import functools
import json

from brax.training.agents.ppo import networks, train
from mujoco_playground import registry, wrapper
from mujoco_playground.config import dm_control_suite_params


def main():
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--task', default='playground:CheetahRun')
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--num_steps', type=int, default=5_000_000)
  parser.add_argument('--num_evaluations', type=int, help='Unused.')
  parser.add_argument('--num_episodes', type=int, default=10)
  args = parser.parse_args()
  name = args.task.partition(':')[2]
  config = dict(dm_control_suite_params.brax_ppo_config(name))
  sizes = ('batch_size', 'num_minibatches', 'unroll_length', 'action_repeat')
  steps_per_update = 1
  for size in sizes:
    steps_per_update *= config[size]
  num_updates = max(1, args.num_steps // steps_per_update)
  config |= {
    'num_timesteps': num_updates * steps_per_update,
    'num_evals': num_updates + 1,
    'num_resets_per_eval': 1,
  }
  if layers := config.pop('network_factory', None):
    config['network_factory'] = functools.partial(
      networks.make_ppo_networks, **layers
    )
  # Warp, the default, is made for GPUs.
  environments = [
    registry.load(name, config_overrides={'impl': 'jax'}) for _ in range(2)
  ]
  episodes, evaluations = [], []

  def note(steps, metrics):
    for rows, key, count in (
      (episodes, 'episode/sum_reward', 100),
      (evaluations, 'eval/episode_reward', args.num_episodes),
    ):
      if key in metrics and steps:
        rows.append(
          {
            'actor_steps': int(steps),
            'episode_return': float(metrics[key]),
            'num_episodes': count,
          }
        )

  train.train(
    **config,
    environment=environments[0],
    eval_env=environments[1],
    wrap_env_fn=wrapper.wrap_for_brax_training,
    num_eval_envs=args.num_episodes,
    deterministic_eval=True,
    log_training_metrics=True,
    training_metrics_steps=steps_per_update,
    progress_fn=note,
    seed=args.seed,
  )
  print(json.dumps({'episodes': episodes, 'evaluations': evaluations}))


if __name__ == '__main__':
  main()
