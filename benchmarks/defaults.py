r"""Tests whether one set of defaults learns every task, and in how many steps.

    uv run --with gymnax --with box2d benchmarks/defaults.py \
      --rival_python=PATH

Each agent of the family runs with its default config on each task, with three
seeds, each run in its own process on one core. Only seeds, tasks and the
runtime are set, and pixel control is disabled where there are no pixels. For
comparison, agents of Stable-Baselines3 run with their own defaults, by the
interpreter `--rival_python`, which needs the packages listed at the top of
`rivals/sb3_tasks.py`. `seeds.py` draws statistics over seeds and tasks.

All agents are evaluated in the same way: periodically, over 20 episodes of
greedy actions. The table shows the number of steps at the first evaluation that
reaches the score of the task, which ends the run.

Runs are kept in `--directory`: finished runs are not repeated and interrupted
runs are resumed, so the table can be completed over days. `--noruns` prints the
table of existing runs.
"""

import concurrent.futures
import functools
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import common
import numpy as np
from absl import app, flags

import ftwax
from ftwax.agents import ftw, named
from ftwax.environments import catch, jax_adapters, memory_chain, pixels
from ftwax.records import loggers
from ftwax.reporting import evaluation_curves
from ftwax.runtime import callbacks, experiment

_DIRECTORY = flags.DEFINE_string(
  'directory', 'runs/defaults', 'Directory in which runs are kept.'
)
_AGENTS = flags.DEFINE_list(
  'agents', ['ppo', 'impala', 'a2c', 'a3c', 'ftw', 'unreal'], 'Our agents.'
)
_RIVALS = flags.DEFINE_list(
  'rivals', ['sb3_ppo', 'sb3_a2c', 'sb3_recurrent_ppo'], 'Their agents.'
)
_TASKS = flags.DEFINE_list('tasks', None, 'Names; all by default.')
_FIRST_SEED = flags.DEFINE_integer('first_seed', 0, 'The first seed.')
_NUM_SEEDS = flags.DEFINE_integer('num_seeds', 3, 'Runs of each agent.')
_NUM_WORKERS = flags.DEFINE_integer('num_workers', 1, 'Runs at a time.')
_RIVAL_PYTHON = flags.DEFINE_string(
  'rival_python', None, 'Interpreter of the rivals, which are not run without.'
)
_RUNS = flags.DEFINE_bool('runs', True, 'Whether to do the missing runs.')
_RUN = flags.DEFINE_list(
  'run', None, 'Does one run of agent,task,seed,core and nothing else.'
)

_NUM_EPISODES = 20
_RIVAL_SCRIPT = pathlib.Path(__file__).parent / 'rivals' / 'sb3_tasks.py'


class _Task(NamedTuple):
  """A task.

  Attributes:
    make: the environment factory.
    runtime: `device` for JAX environments.
    score: mean return of an evaluation at which the task counts as solved.
    num_steps: number of steps of a run.
    eval_every: number of steps between evaluations.
    needs_memory: whether agents without memory are at chance level.
    has_pixels: whether observations are images, so that pixel control applies.
  """

  make: Callable[[int], Any]
  runtime: str
  score: float
  num_steps: int
  eval_every: int
  needs_memory: bool = False
  has_pixels: bool = False


def _make_gymnasium(name: str, seed: int) -> Any:
  import gymnasium

  from ftwax.environments import gymnasium_adapter

  return gymnasium_adapter.GymnasiumEnvironment(gymnasium.make(name), seed)


def _local(name: str, *numbers: Any) -> _Task:
  return _Task(functools.partial(_make_gymnasium, name), 'local', *numbers)


TASKS: Mapping[str, _Task] = {
  'cart_pole': _local('CartPole-v1', 475.0, 150_000, 5_000),
  'catch': _Task(lambda seed: catch.make(), 'device', 0.9, 200_000, 5_000),
  'memory': _Task(
    lambda seed: memory_chain.make(30),
    'device',
    0.9,
    500_000,
    10_000,
    needs_memory=True,
  ),
  'acrobot': _local('Acrobot-v1', -100.0, 300_000, 10_000),
  'lunar_lander': _local('LunarLander-v3', 200.0, 500_000, 25_000),
  'pixel_catch': _Task(
    lambda seed: pixels.make(catch.make(12, 12, miss_reward=0.0)),
    'device',
    0.9,
    100_000,
    5_000,
    has_pixels=True,
  ),
  'breakout': _Task(
    lambda seed: jax_adapters.make('gymnax:Breakout-MinAtar'),
    'device',
    10.0,
    1_000_000,
    50_000,
  ),
}


class _Run(NamedTuple):
  """One run of an agent, ours or a rival's."""

  agent: str
  task: str
  seed: int

  @property
  def is_rival(self) -> bool:
    """Whether the agent belongs to Stable-Baselines3."""
    return self.agent.startswith('sb3_')

  @property
  def path(self) -> pathlib.Path:
    """The file of its evaluations, written when the run has ended."""
    name = f'{self.agent}-{self.task}-seed{self.seed}.json'
    return pathlib.Path(_DIRECTORY.value) / name


class _Result(NamedTuple):
  """Evaluations of a run.

  Attributes:
    steps: number of steps at the first evaluation that reached the score; None
      if none did.
    score: score of the last evaluation.
    best: highest score of any evaluation.
    speed: training steps per second.
  """

  steps: int | None
  score: float
  best: float
  speed: float


def build_experiment(
  agent_name: str, task_name: str, seed: int
) -> experiment.ExperimentConfig:
  """Returns the experiment of an agent with its defaults on a task."""
  task, make = TASKS[task_name], named.AGENTS[agent_name]
  config = ftw.small() if agent_name == 'ftw' else make()
  if not task.has_pixels:
    tasks = [task for task in config.tasks if task.name != 'pixel_control']
    config = config.replace(tasks=tuple(tasks))
  return experiment.ExperimentConfig(
    name=f'{agent_name}_{task_name}',
    agent=config,
    environment=task.make,
    max_num_actor_steps=task.num_steps,
    seed=seed,
  )


def _do(run: _Run, core: int) -> None:
  """Does one of our runs, or the rest of it."""
  os.sched_setaffinity(0, {core})
  task, directory = TASKS[run.task], run.path.with_suffix('')
  made = build_experiment(*run)
  resume = any((directory / 'checkpoints').glob('*'))
  if directory.exists() and not resume:  # Interrupted before it saved.
    shutil.rmtree(directory)
  ftwax.run(
    made.replace(observers=[callbacks.EarlyStopping(task.score)]),
    task.eval_every,
    _NUM_EPISODES,
    runtime=task.runtime,
    run_dir=directory,
    resume=resume,
  )
  run.path.write_text(json.dumps({'evaluations': _evaluations(directory)}))


def _evaluations(directory: pathlib.Path) -> list[list[float]]:
  """Returns the steps, mean return and seconds of each evaluation."""
  path = loggers.log_path(directory, evaluation_curves.LABEL)
  if not path.exists():
    return []
  return [
    [row['actor_steps'], row['episode_return'], row['seconds']]
    for row in loggers.read_jsonl(path)
  ]


def _rival_command(run: _Run) -> list[str]:
  task = TASKS[run.task]
  return [
    _RIVAL_PYTHON.value or '',
    str(_RIVAL_SCRIPT),
    f'--agent={run.agent.removeprefix("sb3_")}',
    f'--task={run.task}',
    f'--seed={run.seed}',
    f'--num_steps={task.num_steps}',
    f'--eval_every={task.eval_every}',
    f'--num_eval_episodes={_NUM_EPISODES}',
    f'--target={task.score}',
  ]


def _run_all(runs: Sequence[_Run]) -> None:
  """Does the unfinished runs, some at a time, each on one core."""
  cores: queue.Queue[int] = queue.Queue()
  for core in sorted(os.sched_getaffinity(0))[: _NUM_WORKERS.value]:
    cores.put(core)

  def run_one(run: _Run) -> None:
    if run.path.exists() or (run.is_rival and not _RIVAL_PYTHON.value):
      return
    core = cores.get()
    run.path.parent.mkdir(parents=True, exist_ok=True)
    print(f'{run.path.stem}: started on core {core}', flush=True)
    values = ','.join(map(str, (*run, core)))
    command = [sys.executable, *sys.argv, f'--run={values}']
    if run.is_rival:
      command = ['taskset', '-c', str(core), *_rival_command(run)]
    try:
      with run.path.with_suffix('.log').open('w') as log:
        subprocess.run(
          command, stdout=log, stderr=subprocess.STDOUT, check=True
        )
    finally:
      cores.put(core)
    if run.is_rival:  # Its last line is the result.
      lines = run.path.with_suffix('.log').read_text().splitlines()
      run.path.write_text(lines[-1])

  with concurrent.futures.ThreadPoolExecutor(_NUM_WORKERS.value) as pool:
    for done in [pool.submit(run_one, run) for run in runs]:
      done.result()


def _read(run: _Run) -> _Result | None:
  """Reads a run; None if it has not ended."""
  if not run.path.exists():
    return None
  rows = json.loads(run.path.read_text())['evaluations']
  reached = [row[0] for row in rows if row[1] >= TASKS[run.task].score]
  return _Result(
    steps=reached[0] if reached else None,
    score=rows[-1][1],
    best=max(row[1] for row in rows),
    speed=rows[-1][0] / max(rows[-1][2], 1e-9),
  )


def _row(runs: Sequence[_Run]) -> list[str]:
  """Returns a row of the table, for one agent on one task."""
  results = [result for result in map(_read, runs) if result is not None]
  first = runs[0]
  cells = [first.task, f'{TASKS[first.task].score:g}', first.agent]
  if not results:
    return [*cells, 'not run', '', '', '']
  reached = [result.steps for result in results if result.steps is not None]
  return [
    *cells,
    f'{len(reached)} of {len(results)}',
    ', '.join(f'{r.steps:,}' if r.steps else 'no' for r in results),
    ', '.join(f'{r.score:.4g} [{r.best:.4g}]' for r in results),
    f'{np.median([r.speed for r in results]):,.0f}',
  ]


def main(argv: Sequence[str]) -> None:
  """Does one run, or all runs and the table."""
  del argv
  if _RUN.value is not None:
    agent, task, seed, core = _RUN.value
    _do(_Run(agent, task, int(seed)), int(core))
    return
  tasks = _TASKS.value or list(TASKS)
  unknown = set(tasks) - set(TASKS)
  if unknown:
    raise app.UsageError(
      f'--tasks {sorted(unknown)} must be among {list(TASKS)}.'
    )
  seeds = range(_FIRST_SEED.value, _FIRST_SEED.value + _NUM_SEEDS.value)
  rows = {
    (task, agent): [_Run(agent, task, seed) for seed in seeds]
    for task in tasks
    for agent in (*_AGENTS.value, *_RIVALS.value)
    if agent in _AGENTS.value or _suits(agent, task)
  }
  if _RUNS.value:
    in_turn = zip(*rows.values(), strict=True)  # The first seeds first.
    _run_all([run for runs in in_turn for run in runs])
  print(common.machine_line())
  common.print_table(
    f'Greedy returns over {_NUM_EPISODES} episodes',
    [
      'task',
      'score',
      'agent',
      'reached',
      'each seed',
      'last [best]',
      'steps/s',
    ],
    [_row(runs) for runs in rows.values()],
  )


def _suits(rival: str, task: str) -> bool:
  """Returns whether to run a rival on a task: only where it can learn."""
  return ('recurrent' in rival) == TASKS[task].needs_memory


if __name__ == '__main__':
  app.run(main)
