r"""R2D2 beside memorax's and Stoix's, at equal steps and with a GRU of 64.

    uv run --with gymnax==0.0.9 benchmarks/r2d2_rival.py --num_steps=40000 \
      --stoix=PATH

Ours has its defaults, but that a trajectory holds two episodes of the chain.
memorax has the settings of its example for CartPole, Stoix the defaults of its
`rec_r2d2` from the clone at PATH, without which it is left out;
`uv run --script` installs what both need. All play gymnax's tasks, and are
scored by the greedy policy's mean return in 200 episodes. CPU seconds are those
of training, without compilation and evaluation; of ours, those of the first
seed.

Each run is kept in `--directory` as one file: finished runs are not repeated.
`curves.png` there has the evaluations of each seed.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import resource
import tempfile
from typing import Any

import common
import figures

import ftwax
from ftwax.agents import r2d2
from ftwax.environments import functional, jax_adapters
from ftwax.networks import cores
from ftwax.records import loggers

_TASKS = ('cart_pole', 'cart_pole_hidden', 'chain_15')
_SIDES = {'ftwax': 'ours', 'memorax': 'memorax', 'stoix': 'Stoix'}
_NUM_EVALUATIONS, _NUM_EPISODES = 10, 200
# Steps of training in a run that is not timed, and the least in one that is.
_UNTIMED, _LEAST_TIMED = 40_000, 160_000


def _cpu_seconds() -> float:
  used = resource.getrusage(resource.RUSAGE_SELF)
  return used.ru_utime + used.ru_stime


class _Hidden:
  """CartPole with position and angle alone, which needs a memory."""

  def __init__(self, environment: Any):
    self._environment = environment

  def __getattr__(self, name: str) -> Any:
    return getattr(self._environment, name)

  def reset_env(self, key: Any, params: Any) -> Any:
    observation, state = self._environment.reset_env(key, params)
    return observation[::2], state

  def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
    observation, *rest = self._environment.step_env(key, state, action, params)
    return observation[::2], *rest


def make_environment(task: str) -> functional.FunctionalEnvironment:
  """Returns a task, as `rivals/memorax_r2d2.py` makes it."""
  import gymnax  # The one thing here that is no dependency.

  if task == 'chain_15':
    environment, params = gymnax.make('MemoryChain-bsuite')
    params = params.replace(memory_length=15)
  else:
    environment, params = gymnax.make('CartPole-v1')
  if task == 'cart_pole_hidden':
    environment = _Hidden(environment)
  return jax_adapters.from_gymnax(environment, params)


def make_experiment(
  task: str, num_steps: int, seed: int
) -> ftwax.ExperimentConfig:
  """Returns an experiment of R2D2."""
  options = {'sequence_length': 34} if task == 'chain_15' else {}
  return ftwax.ExperimentConfig(
    agent=r2d2.R2D2Config(core=cores.GRU(64), **options),
    environment=make_environment(task),
    max_num_actor_steps=num_steps,
    num_environments=16,
    checkpointing=None,
    seed=seed,
    name='r2d2_rival',
  )


def _train(task: str, num_steps: int, seed: int, every: int | None) -> Any:
  """Trains; returns rows of evaluations, and CPU seconds of the process."""
  before = _cpu_seconds()
  with tempfile.TemporaryDirectory() as directory:
    run_dir = pathlib.Path(directory) / 'run'
    with contextlib.redirect_stdout(io.StringIO()):
      ftwax.run(
        make_experiment(task, num_steps, seed),
        run_dir=run_dir,
        eval_every=every,
        num_eval_episodes=_NUM_EPISODES,
      )
    path = loggers.log_path(run_dir, 'evaluation')
    rows = loggers.read_jsonl(path) if every else []
  return rows, _cpu_seconds() - before


def run_ours(
  task: str, num_steps: int, seed: int, is_timed: bool
) -> dict[str, Any]:
  """Trains ours with evaluations, and twice more for its seconds if timed."""
  rows, _ = _train(task, num_steps, seed, num_steps // _NUM_EVALUATIONS)
  curve = [(row['actor_steps'], row['episode_return']) for row in rows]
  result = {'score': curve[-1][1], 'curve': curve}
  if not is_timed:
    return result
  # Both compile, so that the difference is training alone.
  num_timed = max(num_steps, _LEAST_TIMED)
  (_, shorter), (_, longer) = (
    _train(task, _UNTIMED + steps, seed, None) for steps in (0, num_timed)
  )
  return {**result, 'steps_per_cpu_second': num_timed / (longer - shorter)}


def run_rival(
  side: str, task: str, num_steps: int, seed: int, stoix: str | None
) -> dict[str, Any]:
  """Runs another library's agent in its own environment."""
  arguments = [f'--task={task}', f'--seed={seed}', f'--num_steps={num_steps}']
  if side == 'stoix':
    arguments.append(f'--stoix={stoix}')
  return common.run_rival(
    f'{side}_r2d2.py',
    *arguments,
    JAX_PLATFORMS='cpu',
    XLA_FLAGS=os.environ.get('XLA_FLAGS', ''),
  )


def main() -> None:
  """Does the runs that are missing in turn, and prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--tasks', nargs='+', choices=_TASKS, default=[*_TASKS])
  parser.add_argument('--sides', nargs='+', choices=_SIDES, default=[*_SIDES])
  parser.add_argument('--stoix', help="path of a clone of Stoix's repository")
  parser.add_argument('--num_steps', type=int, default=40_000)
  parser.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2])
  parser.add_argument('--directory', default='runs/r2d2_rival')
  args = parser.parse_args()
  sides = [side for side in args.sides if side != 'stoix' or args.stoix]
  print(common.machine_line())
  directory = pathlib.Path(args.directory)
  directory.mkdir(parents=True, exist_ok=True)
  rows, drawn = [], {task: {} for task in args.tasks}
  for task in args.tasks:
    for side in sides:
      found = []
      for seed in args.seeds:
        path = directory / f'{task}_{args.num_steps}_{side}_{seed}.json'
        if not path.exists():
          if side == 'ftwax':
            is_timed = seed == args.seeds[0]
            result = run_ours(task, args.num_steps, seed, is_timed)
          else:
            result = run_rival(side, task, args.num_steps, seed, args.stoix)
          path.write_text(json.dumps(result))
        found.append(json.loads(path.read_text()))
        print(path.name, found[-1], flush=True)
      scores = ', '.join(f'{run["score"]:.2f}' for run in found)
      best = max(run.get('steps_per_cpu_second', 0.0) for run in found)
      drawn[task][_SIDES[side]] = [run['curve'] for run in found]
      rows.append([task, _SIDES[side], scores, f'{best:,.0f}'])
  common.print_table(
    f'R2D2 after {args.num_steps:,} steps, seeds {args.seeds}',
    ['task', 'R2D2', 'returns', 'most steps a CPU second'],
    rows,
  )
  figures.draw_runs(directory / 'curves.png', drawn, 'return')


if __name__ == '__main__':
  main()
