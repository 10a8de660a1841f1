# /// script
# requires-python = ">=3.11"
# dependencies = ["brax==0.14.2", "jax<0.8", "playground==0.2.0"]
# ///
"""PPO of Brax with Playground's settings, on a task of its control suite.

Steps are rounded to whole updates of it, each of which takes about a million.
With these settings each update starts episodes anew, before they end. So there
are no returns of training; greedy evaluations are printed as one line of JSON.
"""

import argparse
import functools
import json
import math

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
  steps_per_update = math.prod(config[size] for size in sizes)
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
  evaluations = []

  def note(steps, metrics):
    if steps:
      evaluations.append(
        {
          'actor_steps': int(steps),
          'episode_return': float(metrics['eval/episode_reward']),
          'num_episodes': args.num_episodes,
        }
      )

  train.train(
    **config,
    environment=environments[0],
    eval_env=environments[1],
    wrap_env_fn=wrapper.wrap_for_brax_training,
    num_eval_envs=args.num_episodes,
    deterministic_eval=True,
    progress_fn=note,
    seed=args.seed,
  )
  print(json.dumps({'episodes': [], 'evaluations': evaluations}))


if __name__ == '__main__':
  main()
