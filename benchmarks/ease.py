"""Lines of user code and CPU seconds for common tasks, compared with rivals.

    uv run --with rlax --with gymnax --with mpe2 benchmarks/ease.py
        --sb3_python=PATH --rejax_python=PATH --cleanrl=PATH --acme_python=PATH

The programs are in `ease_tasks/`, formatted in the same way; blank lines and
comments are not counted. Programs take turns, each in its own process.
`rivals/README.md` tells how to install the rivals, of which those without a
path are not run: Stable-Baselines3 and sb3-contrib, rejax, CleanRL's `ppo.py`,
and acme 0.4.0. For a custom core, which Stable-Baselines3 does not support, its
program is written by hand with rlax, and runs with our packages.

Not every side has a program of every task. rejax has no recurrent agents, films
of Gymnasium or way to go on from saved parameters; CleanRL's `ppo.py` neither
evaluates nor saves; none of them has populations. acme's programs are those of
the first eight tasks. acme's and CleanRL's print the returns of training where
the others evaluate, which would take some six lines more.

CPU seconds are those of the whole process, and its duration on an idle core.
JAX compiles anew, except what an earlier program of the same side has compiled.
The first program ends when a mean return of 475 in CartPole is seen; the others
train for 10,000 steps, or use the agent that the first one saved.
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

_SB3_PYTHON = flags.DEFINE_string(
  'sb3_python', None, 'Interpreter with Stable-Baselines3.'
)
_REJAX_PYTHON = flags.DEFINE_string(
  'rejax_python', None, 'Interpreter with rejax.'
)
_CLEANRL = flags.DEFINE_string(
  'cleanrl', None, 'Directory with CleanRL and its environment, `.venv`.'
)
_ACME_PYTHON = flags.DEFINE_string(
  'acme_python', None, 'Interpreter with acme.'
)
_TASKS = flags.DEFINE_list('tasks', None, 'Names; all by default.')

_HERE = pathlib.Path(__file__).resolve().parent
_SIDES = ('ours', 'sb3', 'rejax', 'cleanrl', 'acme')
_COLUMNS = ('lines', 'CPU s')

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
  'network': 'a network of your own',
  'deploy': 'act in a loop of your own',
  'sweep': 'three learning rates, three seeds each, and a plot',
  'population': 'a population on a PettingZoo game',
}


def program(task: str, side: str) -> pathlib.Path:
  """Returns the path of a program; `side` is one of `_SIDES`."""
  return _HERE / 'ease_tasks' / f'{task}_{side}.py'


def count_lines(path: pathlib.Path) -> int:
  """Returns the number of lines that are neither blank nor comments."""
  lines = [line.strip() for line in path.read_text('utf-8').splitlines()]
  return sum(bool(line) and not line.startswith('#') for line in lines)


def _python(task: str, side: str) -> str | None:
  """Returns the interpreter of a program, if there is one."""
  if side == 'ours' or (side, task) == ('sb3', 'core'):
    return sys.executable
  if side == 'cleanrl':
    return _CLEANRL.value and f'{_CLEANRL.value}/.venv/bin/python'
  paths = {'sb3': _SB3_PYTHON, 'rejax': _REJAX_PYTHON, 'acme': _ACME_PYTHON}
  return paths[side].value


def _environment(side: str, directory: pathlib.Path) -> dict[str, str]:
  """Returns the variables of a program's environment."""
  # No program finds what another run has compiled.
  variables = {
    **os.environ,
    'XDG_CACHE_HOME': str(directory),
    'SDL_VIDEODRIVER': 'dummy',
    'MPLBACKEND': 'agg',
  }
  if side == 'cleanrl':
    variables['PYTHONPATH'] = f'{_CLEANRL.value}/cleanrl'
  if side == 'acme':
    # acme writes its logs to ~/acme, and needs names that JAX has removed.
    variables['HOME'] = str(directory)
    variables['PYTHONPATH'] = str(_HERE / 'rivals' / 'acme_names')
  return variables


def _run(task: str, side: str, directory: pathlib.Path) -> list[str]:
  """Runs a program; returns its lines and CPU seconds."""
  path, python = program(task, side), _python(task, side)
  if not path.exists():
    return ['', '']
  lines = str(count_lines(path))
  if python is None:
    return [lines, 'not run']
  directory.mkdir(exist_ok=True)
  start, before = time.perf_counter(), _processor_seconds()
  ended = subprocess.run(
    [python, str(path)],
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
    f'{task}, {side}: {seconds:.1f} s, {processor:.1f} CPU s:'
    f' {"".join(said)[:60]}',
    flush=True,
  )
  if ended.returncode:
    return [lines, 'failed']
  return [lines, f'{processor:.0f}']


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
        cells += _run(task, side, pathlib.Path(directory, side))
      rows.append(cells)
  common.print_table(
    'Lines of user code, and CPU seconds of the whole process',
    ['task', *(f'{name}, {side}' for side in _SIDES for name in _COLUMNS)],
    rows,
  )


if __name__ == '__main__':
  app.run(main)
