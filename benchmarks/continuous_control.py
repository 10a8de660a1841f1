r"""PPO on continuous control, compared with that of other libraries.

    uv run --with 'gymnasium[mujoco]' benchmarks/continuous_control.py \
      --tasks=Hopper-v5 --steps=200000

Ours is `ftwax train TASK`. Rivals run with their defaults, by `uv run
--script`, which installs what a file of `rivals/` lists at its top; all have
one core. A task is an id of Gymnasium, or a function of
`rivals/hidden_velocities.py`, whose robots need memory:

    uv run --with 'gymnasium[mujoco]' benchmarks/continuous_control.py \
      --tasks=hopper,half_cheetah --sides=ftwax,ftwax_lstm,sb3_recurrent

For a task of MuJoCo Playground the rival is PPO of Brax with Playground's own
settings for it, which are made for 60M steps:

    uv run --with playground --with brax benchmarks/continuous_control.py \
      --tasks=playground:CheetahRun --sides=ftwax,playground --steps=5_000_000

A cell is a mean over seeds with a bootstrapped 95% interval. `training` is the
mean over the last 100 training episodes, in which actions are sampled;
`evaluation` is the mean over the greedy evaluations of the last quarter of the
steps, of ten episodes each: one policy of Hopper is one sample, however many of
its episodes are played, as they start nearly alike. CPU seconds are those of
the whole process, with its evaluations.

Each run is kept in `--directory` as one file: finished runs are not repeated,
so the table can be completed over days. `--noruns` prints the table of runs
that are there, and `--figure=FILE` draws their curves of training.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import common
import numpy as np
from absl import app, flags

from ftwax.records import loggers

_TASKS = flags.DEFINE_list('tasks', ['Hopper-v5'], 'Tasks.')
_STEPS = flags.DEFINE_integer('steps', 200_000, 'Steps of each run.')
_SEEDS = flags.DEFINE_list('seeds', ['0', '1', '2', '3', '4'], 'Seeds.')
_SIDES = flags.DEFINE_list(
  'sides', ['ftwax', 'sb3'], 'Whose PPO; `_NAMES` has the names.'
)
_SET = flags.DEFINE_multi_string('set', [], 'Fields of ours to change.')
_DIRECTORY = flags.DEFINE_string(
  'directory', 'runs/continuous_control', 'Directory in which runs are kept.'
)
_RUNS = flags.DEFINE_boolean('runs', True, 'Whether to run what is missing.')
_FIGURE = flags.DEFINE_string('figure', None, 'Image to draw curves into.')

_RIVALS = pathlib.Path(__file__).parent / 'rivals'

# Evaluations in a run, and episodes of each; and training episodes that count.
_NUM_EVALUATIONS, _NUM_EPISODES, _WINDOW = 8, 10, 100

_NAMES = {
  'ftwax': 'ftwax',
  'ftwax_lstm': 'ftwax, LSTM',
  'sb3': 'SB3, defaults',
  'sb3_normalized': 'SB3, normalized',
  'sb3_recurrent': 'sb3-contrib, LSTM, normalized',
  'playground': 'Brax, settings of Playground',
}

# More flags of a side's command.
_FLAGS = {
  'ftwax_lstm': ['--core=lstm'],
  'sb3_normalized': ['--normalize'],
  'sb3_recurrent': ['--normalize', '--recurrent'],
}

_Row = Mapping[str, Any]


def _run(command: Sequence[str]) -> tuple[str, float]:
  """Returns what a command printed, and its CPU seconds."""
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  threads = {'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1'}
  threads['XLA_FLAGS'] = '--xla_cpu_multi_thread_eigen=false'
  ended = subprocess.run(
    command,
    capture_output=True,
    text=True,
    check=False,
    env={**os.environ, **threads},
  )
  if ended.returncode:
    raise RuntimeError(f'{command} failed: {ended.stderr[-2000:]}')
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
  return ended.stdout, seconds


def last_episodes(rows: Sequence[_Row], steps: float) -> float:
  """Returns the mean return of the last training episodes, of at least 100.

  It is NaN if there are none.

  Args:
    rows: rows of the log of training, each the mean over some episodes.
    steps: rows after so many steps are left out.
  """
  total, count = 0.0, 0
  for row in reversed(rows):
    if row['actor_steps'] <= steps and count < _WINDOW:
      total += row['episode_return'] * row['num_episodes']
      count += row['num_episodes']
  return total / count if count else float('nan')


def last_quarter(rows: Sequence[_Row], steps: float) -> float:
  """Returns the mean return of the evaluations after 3/4 of the steps."""
  late = [row for row in rows if row['actor_steps'] > 0.75 * steps]
  return float(np.mean([row['episode_return'] for row in late]))


def _run_ours(task: str, side: str, seed: str) -> dict[str, Any]:
  steps = _STEPS.value
  if task.isidentifier():
    task = f'{_RIVALS / "hidden_velocities.py"}:{task}'
  with tempfile.TemporaryDirectory() as directory:
    run_dir = pathlib.Path(directory) / 'run'
    command = [sys.executable, '-m', 'ftwax', 'train', task, f'--seed={seed}']
    command += [f'--max_num_actor_steps={steps}', f'--run_dir={run_dir}']
    command += [f'--eval_every={steps // _NUM_EVALUATIONS}']
    command += [f'--num_eval_episodes={_NUM_EPISODES}']
    command += _FLAGS.get(side, [])
    command += [f'--set={change}' for change in _SET.value]
    _, seconds = _run(command)
    training, evaluation, learner = (
      loggers.read_jsonl(loggers.log_path(run_dir, name))
      for name in ('train', 'evaluation', 'learner')
    )
  points = np.linspace(0.0, 1.0, 41)[1:] * steps
  late = learner[-len(learner) // 10 :]
  return {
    'training': last_episodes(training, np.inf),
    'evaluation': last_quarter(evaluation, steps),
    'curve': [last_episodes(training, 1.005 * point) for point in points],
    'learner': {
      name: float(np.mean([row[name] for row in late]))
      for name in ('kl_old_new', 'clip_fraction', 'entropy')
    },
    'cpu_seconds': seconds,
  }


def _run_rival(task: str, side: str, seed: str) -> dict[str, Any]:
  steps = _STEPS.value
  name = 'playground_ppo' if side == 'playground' else 'sb3_continuous'
  script = str(_RIVALS / f'{name}.py')
  command = ['uv', 'run', '--script', script, f'--task={task}']
  command += _FLAGS.get(side, [])
  command += [f'--seed={seed}', f'--num_steps={steps}']
  command += [f'--num_evaluations={_NUM_EVALUATIONS}']
  said, seconds = _run([*command, f'--num_episodes={_NUM_EPISODES}'])
  found = json.loads(said.splitlines()[-1])
  return {
    'training': last_episodes(found['episodes'], np.inf),
    'evaluation': last_quarter(found['evaluations'], steps),
    'curve': [
      last_episodes(found['episodes'], point)
      for point in np.linspace(0.0, 1.0, 41)[1:] * steps
    ],
    'cpu_seconds': seconds,
  }


def _is_ours(side: str) -> bool:
  return side.startswith('ftwax')


def _path(task: str, side: str, seed: str) -> pathlib.Path:
  changes = ''.join(f'_{change}' for change in _SET.value if _is_ours(side))
  name = f'{task}_{_STEPS.value}_{side}{changes}_{seed}.json'
  return pathlib.Path(_DIRECTORY.value) / name.replace('/', '-')


def _read(task: str, side: str) -> list[dict[str, Any]]:
  """Returns the runs that are there, in the order of the seeds."""
  paths = (_path(task, side, seed) for seed in _SEEDS.value)
  return [json.loads(path.read_text()) for path in paths if path.exists()]


def _run_missing(task: str, side: str, seed: str) -> None:
  path = _path(task, side, seed)
  if path.exists():
    return
  run = _run_ours if _is_ours(side) else _run_rival
  result = run(task, side, seed)
  path.parent.mkdir(parents=True, exist_ok=True)
  unfinished = path.with_suffix('.tmp')
  unfinished.write_text(json.dumps(result))
  unfinished.rename(path)
  print(path.name, *(f'{result[key]:.0f}' for key in _CELLS), flush=True)


_CELLS = ('training', 'evaluation', 'cpu_seconds')


def _summarize(values: Sequence[float]) -> str:
  low, high = common.interval(values)
  return f'{np.mean(values):.0f} ({low:.0f} to {high:.0f})'


def _draw(path: str) -> None:
  """Draws the mean curve of training of each side, and its least and most."""
  import matplotlib  # Only for this.

  matplotlib.use('Agg')
  from matplotlib import pyplot

  tasks = _TASKS.value
  figure, axes = pyplot.subplots(
    1, len(tasks), figsize=(4.2 * len(tasks), 3.2), squeeze=False
  )
  steps = np.linspace(0.0, 1.0, 41)[1:] * _STEPS.value
  for task, axis in zip(tasks, axes[0], strict=True):
    for side in _SIDES.value:
      curves = np.array([run['curve'] for run in _read(task, side)])
      if curves.size:
        axis.plot(steps, curves.mean(axis=0), label=_NAMES[side])
        axis.fill_between(steps, curves.min(0), curves.max(0), alpha=0.2)
    axis.set_title(task)
    axis.set_xlabel('steps')
    axis.set_ylabel('return, last 100 episodes')
    axis.legend()
  figure.tight_layout()
  figure.savefig(path, dpi=120)


def main(argv: list[str]) -> None:
  """Does the runs that are missing in turn, and prints the table."""
  del argv
  print(common.machine_line())
  if _RUNS.value:
    for task in _TASKS.value:
      for seed in _SEEDS.value:
        for side in _SIDES.value:
          _run_missing(task, side, seed)
  rows = []
  for task in _TASKS.value:
    for side in _SIDES.value:
      if runs := _read(task, side):
        cells = [_summarize([run[key] for run in runs]) for key in _CELLS[:2]]
        seconds = np.mean([run['cpu_seconds'] for run in runs])
        rows.append([task, _NAMES[side], len(runs), *cells, f'{seconds:.0f}'])
  common.print_table(
    f'Returns after {_STEPS.value:,} steps',
    ['task', 'PPO', 'seeds', 'training', 'evaluation', 'CPU seconds'],
    rows,
  )
  if _FIGURE.value:
    _draw(_FIGURE.value)


if __name__ == '__main__':
  app.run(main)
