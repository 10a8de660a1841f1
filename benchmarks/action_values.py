r"""Compares agents of action values with PPO at equal steps and the same core.

    uv run benchmarks/action_values.py --tasks catch --num_steps=100000
    uv run --with gymnax==0.0.9 benchmarks/action_values.py --tasks breakout \
      asterix --num_steps=1000000

Each row has the mean return of 200 episodes of each seed's greedy policy after
training, and the CPU seconds of a seed, with compilation and evaluation.
R2D2's trajectories hold two episodes of a memory task, as those of `ppo_long`
do, which is `PPOConfig.long_memory`; else agents have their defaults.

With `--directory`, each run is kept there as one file, with its curve of 20
evaluations: finished runs are not repeated. `curves.png` there has all of them.
"""

import argparse
import contextlib
import functools
import io
import json
import pathlib
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import figures
import numpy as np

import ftwax
from ftwax.agents import named, ppo
from ftwax.environments import (
  catch,
  copying,
  jax_adapters,
  memory_chain,
  recall,
)
from ftwax.records import loggers

# Environments, and the lengths of episodes that begin with what is asked later.
_TASKS: Mapping[str, tuple[Any, int]] = {
  'CartPole-v1': ('CartPole-v1', 0),
  'catch': (catch.make, 0),
  **{
    f'recall_{length}': (
      functools.partial(memory_chain.make, length),
      length + 1,
    )
    for length in (15, 16, 30, 64, 128, 256)
  },
  'recall_by_key': (recall.make, 12),
  'copying': (copying.make, 20),
  **{
    name.lower(): (
      functools.partial(jax_adapters.make, f'gymnax:{name}-MinAtar'),
      0,
    )
    for name in ('Breakout', 'Asterix')
  },
  'craftax': (
    functools.partial(jax_adapters.make, 'craftax:Craftax-Symbolic-v1'),
    0,
  ),
}
_AGENTS = ('ppo', 'ppo_long', 'r2d2', 'pqn')
_NUM_EVALUATIONS = 20


def make_agent(name: str, core: str, episode_length: int) -> Any:
  """Returns an agent for episodes of a length, 0 for no task of memory."""
  if name == 'ppo_long':
    return ppo.PPOConfig.long_memory(episode_length, core=core)
  options = {}
  if name == 'r2d2' and episode_length:
    options = {'sequence_length': 2 * episode_length}
  return named.AGENTS[name](core=core, **options)


def measure(
  task: str, agent: str, core: str, num_steps: int, seed: int
) -> dict[str, Any]:
  """Returns a curve of steps and mean returns, and CPU seconds."""
  environment, length = _TASKS[task]
  experiment = ftwax.ExperimentConfig(
    agent=make_agent(agent, core, length),
    environment=environment,
    max_num_actor_steps=num_steps,
    num_environments=16,
    checkpointing=None,
    seed=seed,
    name='action_values',
  )
  before = time.process_time()
  with tempfile.TemporaryDirectory() as directory:
    run_dir = pathlib.Path(directory) / 'run'
    with contextlib.redirect_stdout(io.StringIO()):
      ftwax.run(
        experiment,
        run_dir=run_dir,
        eval_every=num_steps // _NUM_EVALUATIONS,
        num_eval_episodes=200,
      )
    rows = loggers.read_jsonl(loggers.log_path(run_dir, 'evaluation'))
  return {
    'curve': [(row['actor_steps'], row['episode_return']) for row in rows],
    'cpu_seconds': time.process_time() - before,
  }


def main() -> None:
  """Prints the table, row by row."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--tasks', nargs='+', choices=_TASKS, default=['catch'])
  parser.add_argument('--agents', nargs='+', choices=_AGENTS, default=_AGENTS)
  parser.add_argument('--core', default='lstm')
  parser.add_argument('--num_steps', type=int, default=100_000)
  parser.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2])
  parser.add_argument('--directory', help='where runs are kept')
  args = parser.parse_args()
  with contextlib.ExitStack() as stack:
    directory = pathlib.Path(
      args.directory or stack.enter_context(tempfile.TemporaryDirectory())
    )
    directory.mkdir(parents=True, exist_ok=True)
    print(f'| task | agent | returns, seeds {args.seeds} | CPU s a seed |')
    print('| --- | --- | --- | --- |')
    panels: dict[str, dict[str, list[Any]]] = {}
    for task in args.tasks:
      curves = panels.setdefault(task, {})
      for agent in args.agents:
        if agent == 'ppo_long' and not _TASKS[task][1]:
          continue
        scores, seconds = [], []
        for seed in args.seeds:
          name = f'{task}_{args.num_steps}_{agent}_{args.core}_{seed}.json'
          path = directory / name
          if not path.exists():
            run = measure(task, agent, args.core, args.num_steps, seed)
            path.write_text(json.dumps(run))
          run = json.loads(path.read_text())
          scores.append(f'{run["curve"][-1][1]:.2f}')
          seconds.append(run['cpu_seconds'])
          curves.setdefault(agent, []).append(run['curve'])
        row = [task, agent, ', '.join(scores), f'{np.mean(seconds):.0f}']
        print('|', ' | '.join(row), '|', flush=True)
    figures.draw_runs(directory / 'curves.png', panels, 'return')


if __name__ == '__main__':
  main()
