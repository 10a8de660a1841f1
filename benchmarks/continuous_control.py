r"""PPO on continuous control, compared with Stable-Baselines3's PPO.

    uv run --with 'gymnasium[mujoco]' benchmarks/continuous_control.py \
      --rival_python=PATH

Ours is `ftwax train TASK`. The rival runs with its defaults,
and with the settings that its authors tuned for the task, by an interpreter
that needs the packages listed at the top of `rivals/sb3_continuous.py`. Scores
are those of 20 greedy episodes after the last step. Seconds are those of the
whole process, from its start to the end of that evaluation; runs take turns.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import common
from absl import app, flags

from ftwax.records import loggers

_RIVAL_PYTHON = flags.DEFINE_string(
  'rival_python', None, 'Interpreter of the rival, which is not run without.'
)
_TASKS = flags.DEFINE_list('tasks', ['Pendulum-v1', 'Hopper-v5'], 'Tasks.')
_STEPS = flags.DEFINE_list('steps', ['100000', '200000'], 'Steps of each task.')
_SEEDS = flags.DEFINE_list('seeds', ['0', '1', '2'], 'Seeds.')
_RIVALS = flags.DEFINE_list('rivals', ['defaults', 'zoo'], 'Their settings.')

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_RIVAL = _ROOT / 'benchmarks' / 'rivals' / 'sb3_continuous.py'


class _Result(NamedTuple):
  """Final score, and seconds of the process."""

  score: float
  seconds: float


def _timed(command: list[str]) -> tuple[str, float]:
  start = time.perf_counter()
  ended = subprocess.run(command, capture_output=True, text=True, check=False)
  if ended.returncode:
    raise RuntimeError(f'{command} failed: {ended.stderr[-2000:]}')
  return ended.stdout, time.perf_counter() - start


def _run_ours(task: str, steps: str, seed: str) -> _Result:
  with tempfile.TemporaryDirectory() as directory:
    run_dir = pathlib.Path(directory) / 'run'
    command = [sys.executable, '-m', 'ftwax', 'train', task, f'--seed={seed}']
    command += [f'--max_num_actor_steps={steps}', f'--run_dir={run_dir}']
    _, seconds = _timed([*command, f'--eval_every={steps}'])
    rows = loggers.read_jsonl(loggers.log_path(run_dir, 'evaluation'))
  return _Result(rows[-1]['episode_return'], seconds)


def _run_rival(settings: str, task: str, steps: str, seed: str) -> _Result:
  command = [_RIVAL_PYTHON.value or '', str(_RIVAL), f'--task={task}']
  command += [f'--settings={settings}', f'--seed={seed}']
  said, seconds = _timed([*command, f'--num_steps={steps}'])
  return _Result(json.loads(said.splitlines()[-1])['score'], seconds)


def main(argv: list[str]) -> None:
  """Does all runs in turn and prints the table."""
  del argv
  print(common.machine_line())
  sides = ['ftwax', *(_RIVALS.value if _RIVAL_PYTHON.value else [])]
  rows = []
  for task, steps in zip(_TASKS.value, _STEPS.value, strict=True):
    results: dict[str, list[_Result]] = {side: [] for side in sides}
    for seed in _SEEDS.value:
      for side in sides:
        result = (
          _run_ours(task, steps, seed)
          if side == 'ftwax'
          else _run_rival(side, task, steps, seed)
        )
        results[side].append(result)
        print(task, side, seed, *result, flush=True)
    rows += [
      [
        task,
        steps,
        side if side == 'ftwax' else f'SB3, {side}',
        ', '.join(f'{result.score:.0f}' for result in done),
        ', '.join(f'{result.seconds:.0f}' for result in done),
      ]
      for side, done in results.items()
    ]
  common.print_table(
    f'Greedy returns after the last step, seeds {", ".join(_SEEDS.value)}',
    ['task', 'steps', 'PPO', 'return', 'seconds'],
    rows,
  )


if __name__ == '__main__':
  app.run(main)
