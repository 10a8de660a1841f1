"""Compares agents of action values with PPO at equal steps and the same core.

    uv run benchmarks/action_values.py --tasks catch --num_steps=100000

Each row has the mean return of 200 episodes of each seed's greedy policy after
training, and the seconds of training of all seeds, without compilation and
evaluation. R2D2's trajectories hold two episodes of a memory task, as those of
`ppo_long` do, which is `PPOConfig.long_memory`; else agents have their
defaults.
"""

import argparse
import contextlib
import functools
import io
import json
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import ftwax
from ftwax.agents import named, ppo
from ftwax.environments import catch, copying, memory_chain, recall

# Environments, and the lengths of episodes that begin with what is asked later.
_TASKS: Mapping[str, tuple[Any, int]] = {
  'CartPole-v1': ('CartPole-v1', 0),
  'catch': (catch.make, 0),
  'recall_15': (functools.partial(memory_chain.make, 15), 16),
  'recall_30': (functools.partial(memory_chain.make, 30), 31),
  'recall_by_key': (recall.make, 12),
  'copying': (copying.make, 20),
}
_AGENTS = ('ppo', 'ppo_long', 'r2d2', 'pqn')


def make_agent(name: str, core: str, episode_length: int) -> Any:
  """Returns an agent for episodes of a length, 0 for no task of memory."""
  if name == 'ppo_long':
    return ppo.PPOConfig.long_memory(episode_length, core=core)
  options = {}
  if name == 'r2d2' and episode_length:
    options = {'sequence_length': 2 * episode_length}
  return named.AGENTS[name](core=core, **options)


def measure(
  task: str, agent: str, core: str, num_steps: int, seeds: range
) -> tuple[list[float], float]:
  """Returns the mean return of each seed, and seconds."""
  environment, length = _TASKS[task]
  scores, seconds = [], 0.0
  for seed in seeds:
    experiment = ftwax.ExperimentConfig(
      agent=make_agent(agent, core, length),
      environment=environment,
      max_num_actor_steps=num_steps,
      num_environments=16,
      checkpointing=None,
      seed=seed,
      name='action_values',
    )
    with tempfile.TemporaryDirectory() as directory:
      run_dir = pathlib.Path(directory) / 'run'
      with contextlib.redirect_stdout(io.StringIO()):
        result = ftwax.run(
          experiment,
          run_dir=run_dir,
          eval_every=num_steps,
          num_eval_episodes=200,
        )
      text = (run_dir / 'logs' / 'evaluation.jsonl').read_text()
    scores.append(json.loads(text.splitlines()[-1])['episode_return'])
    seconds += result.counts.seconds
  return scores, seconds


def main() -> None:
  """Prints the table, row by row."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--tasks', nargs='+', choices=_TASKS, default=['catch'])
  parser.add_argument('--agents', nargs='+', choices=_AGENTS, default=_AGENTS)
  parser.add_argument('--core', default='lstm')
  parser.add_argument('--num_steps', type=int, default=100_000)
  parser.add_argument('--first_seed', type=int, default=0)
  parser.add_argument('--num_seeds', type=int, default=3)
  args = parser.parse_args()
  seeds = range(args.first_seed, args.first_seed + args.num_seeds)
  print(f'| task | agent | returns, seeds {list(seeds)} | seconds |')
  print('| --- | --- | --- | --- |')
  for task in args.tasks:
    for agent in args.agents:
      if agent == 'ppo_long' and not _TASKS[task][1]:
        continue
      scores, seconds = measure(task, agent, args.core, args.num_steps, seeds)
      words = ', '.join(f'{score:.2f}' for score in scores)
      print(f'| {task} | {agent} | {words} | {seconds:.0f} |', flush=True)


if __name__ == '__main__':
  main()
