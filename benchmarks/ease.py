"""Lines of user code and seconds for eight tasks, compared with rivals.

    uv run --with rlax benchmarks/ease.py --rival_python=PATH --acme_python=PATH

The programs are in `ease_tasks/`, formatted in the same way; blank lines and
comments are not counted. Rivals are Stable-Baselines3 and sb3-contrib, run by
the interpreter `--rival_python`, which also needs moviepy and pygame; for a
custom core, which they do not support, the rival is written by hand with rlax.
The third side is acme 0.4.0, run by `--acme_python`; `rivals/README.md` tells
how to install it. Its programs print the returns of ten episodes of training
where the others evaluate, which would take some six lines more.

Programs take turns, each in its own process. Seconds are measured from the
start to the end of the process; processor seconds approximate the duration on
an otherwise idle core. The first program ends when ten greedy episodes of
CartPole reach a mean of 475; the others train for 10,000 steps, or use the
agent that the first one saved.
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import common
from absl import app, flags

_RIVAL_PYTHON = flags.DEFINE_string(
  'rival_python', None, 'Interpreter of the rivals, which are not run without.'
)
_ACME_PYTHON = flags.DEFINE_string(
  'acme_python', None, 'Interpreter of acme, which is not run without.'
)
_TASKS = flags.DEFINE_list('tasks', None, 'Names; all by default.')

_HERE = pathlib.Path(__file__).resolve().parent
_SIDES = ('ours', 'rival', 'acme')
_COLUMNS = ('lines', 'seconds', 'of the processor')

# Tasks that use the agent saved by the first one come after it.
TASKS = {
  'score': 'train to a score',
  'evaluate': 'evaluate what was saved',
  'film': 'film an episode of it',
  'go_on': 'go on from it with another learning rate',
  'recurrent': 'train a recurrent policy',
  'environment': 'an environment of your own',
  'core': 'a recurrent core of your own',
  'seeds': 'three seeds',
}
_BY_HAND = ('core',)  # Tasks whose `rival` only needs our packages.


def program(task: str, side: str) -> pathlib.Path:
  """Returns the path of a program; `side` is `ours`, `rival` or `acme`."""
  return _HERE / 'ease_tasks' / f'{task}_{side}.py'


def count_lines(path: pathlib.Path) -> int:
  """Returns the number of lines that are neither blank nor comments."""
  lines = [line.strip() for line in path.read_text('utf-8').splitlines()]
  return sum(bool(line) and not line.startswith('#') for line in lines)


def _python(task: str, side: str) -> str | None:
  """Returns the interpreter of a program, if there is one."""
  if side == 'acme':
    return _ACME_PYTHON.value
  if side == 'rival' and task not in _BY_HAND:
    return _RIVAL_PYTHON.value
  return sys.executable


def _environment(side: str, directory: pathlib.Path) -> dict[str, str]:
  """Returns the variables of a program's environment."""
  variables = {**os.environ, 'SDL_VIDEODRIVER': 'dummy'}
  if side == 'acme':
    # acme writes its logs to ~/acme, and needs names that JAX has removed.
    variables['HOME'] = str(directory)
    variables['PYTHONPATH'] = str(_HERE / 'rivals' / 'acme_names')
  return variables


def _run(task: str, side: str, directory: pathlib.Path) -> list[str]:
  """Runs a program; returns its seconds and processor seconds."""
  python = _python(task, side)
  if python is None:
    return ['not run', '']
  directory.mkdir(exist_ok=True)
  start, before = time.perf_counter(), _processor_seconds()
  ended = subprocess.run(
    [python, str(program(task, side))],
    cwd=directory,
    env=_environment(side, directory),
    capture_output=True,
    text=True,
    check=False,
  )
  seconds = time.perf_counter() - start
  processor = _processor_seconds() - before
  said = (ended.stdout or ended.stderr).strip().splitlines()[-1:]
  print(
    f'{task}, {side}: {seconds:.1f} s, {processor:.1f} s of the processor:'
    f' {"".join(said)[:60]}',
    flush=True,
  )
  if ended.returncode:
    return ['failed', '']
  return [f'{seconds:.0f}', f'{processor:.0f}']


def _processor_seconds() -> float:
  used = resource.getrusage(resource.RUSAGE_CHILDREN)
  return used.ru_utime + used.ru_stime


def main(argv: list[str]) -> None:
  """Runs the programs and prints the table."""
  del argv
  print(common.machine_line())
  rows = []
  with tempfile.TemporaryDirectory() as directory:
    for task in _TASKS.value or TASKS:
      cells = [TASKS[task]]
      for side in _SIDES:
        cells.append(str(count_lines(program(task, side))))
        cells += _run(task, side, pathlib.Path(directory, side))
      rows.append(cells)
  common.print_table(
    'Lines of user code, and seconds from the start of the process to its end',
    ['task', *(f'{name}, {side}' for side in _SIDES for name in _COLUMNS)],
    rows,
  )


if __name__ == '__main__':
  app.run(main)
