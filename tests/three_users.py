"""Plays three new users, who type what README and three pages say.

python tests/three_users.py DIRECTORY [sb3] [purejaxrl] [paper]

Each starts from an empty environment, into which the clone is installed as the
wheel that users get. What they type is read from the pages, word for word; only
numbers of steps are smaller. Prints the packages and CPU seconds of each.
"""

import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys

import documented_code

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / 'docs'

# Flags and arguments that bound a run.
_STEPS = 2_000


def _shorten(code: str) -> str:
  """Returns code with fewer steps."""
  code = re.sub(
    r'max_num_actor_steps=[\d_]+', f'max_num_actor_steps={_STEPS}', code
  )
  code = re.sub(r'eval_every=[\d_]+', f'eval_every={_STEPS // 2}', code)
  # The third argument of an experiment.
  return re.sub(r'(ExperimentConfig\(.*), [\d_]+\)', rf'\1, {_STEPS})', code)


def _blocks(page: str, *wanted: int) -> str:
  """Returns blocks of Python of a page, as one program."""
  found = documented_code.read_blocks(ROOT / page)
  return '\n'.join(found[index] for index in wanted or range(len(found)))


def _cells(page: str, heading: str, *starts: str) -> list[str]:
  """Returns code in the right column of a table, by that in its left one."""
  section = (ROOT / page).read_text('utf-8').split(f'## {heading}\n')[1]
  rows = [line.split(' | ') for line in section.splitlines() if '|' in line]
  found = []
  for start in starts:
    (row,) = [row for row in rows if row[0].startswith(f'| `{start}')]
    found.append(re.findall('`([^`]*)`', row[1])[0])
  return found


def _command(page: str, start: str) -> str:
  """Returns a command line of a page, by its beginning."""
  (found,) = set(re.findall(rf'`?({start}[^`\n]*)', (ROOT / page).read_text()))
  return found.strip()


def from_stable_baselines3() -> list[str]:
  """Returns what somebody types who knows Stable-Baselines3."""
  learn, evaluate = _cells(
    'docs/coming_from.md', 'Stable-Baselines3', 'PPO(', 'evaluate_policy('
  )
  return [
    _blocks('README.md', 0),
    f'import ftwax\nresult = {learn}\n'
    f'agent = ftwax.inference.load(result.run_dir)\nprint({evaluate})',
    _command('README.md', 'ftwax train CartPole-v1'),
    _blocks('docs/tutorials/gymnasium.md', 0, 1),
  ]


def from_purejaxrl() -> list[str]:
  """Returns what somebody types who knows PureJaxRL."""
  section = (DOCS / 'coming_from.md').read_text().split('## PureJaxRL')[1]
  return [
    _blocks('README.md', 0, 1),
    re.findall(r'```python\n(.*?)```', section, re.DOTALL)[0],
    _blocks('docs/how_to/your_own_jax_environment.md', 0),
  ]


def from_the_paper() -> list[str]:
  """Returns what a reader of the FTW paper types."""
  page = 'docs/how_to/capture_the_flag.md'
  return [
    _blocks('README.md', 0, 2),
    _command(page, 'ftwax train capture_the_flag --team'),
    _blocks(page, 0),
    _command('README.md', 'uv run ftwax play').replace(
      'uv run ftwax play', 'ftwax film'
    ),
  ]


USERS = {
  'sb3': from_stable_baselines3,
  'purejaxrl': from_purejaxrl,
  'paper': from_the_paper,
}


def _install(folder: pathlib.Path) -> tuple[pathlib.Path, int]:
  """Makes an empty environment with ftwax; returns it and its packages."""
  venv = folder / 'venv'
  python = venv / 'bin' / 'python'
  subprocess.run(
    ['uv', 'venv', '-q', '--python', sys.executable, venv], check=True
  )
  subprocess.run(
    ['uv', 'build', '-q', '--wheel', '--out-dir', folder / 'dist', ROOT],
    check=True,
  )
  (wheel,) = (folder / 'dist').glob('*.whl')
  subprocess.run(
    ['uv', 'pip', 'install', '-q', '--python', python, '-c',
     ROOT / 'constraints.txt', wheel],
    check=True,
  )  # fmt: skip
  listed = subprocess.run(
    ['uv', 'pip', 'list', '-q', '--python', python, '--format=freeze'],
    check=True, capture_output=True, text=True,
  ).stdout  # fmt: skip
  return venv, len(listed.splitlines())


def _type(line: str, venv: pathlib.Path, folder: pathlib.Path) -> None:
  """Runs what a user types: a command, or a program."""
  # The test's own kept functions and settings are not there.
  environment = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(('JAX_', 'XLA_', 'PYTHON', 'VIRTUAL_ENV'))
  }
  environment |= {
    'PATH': f'{venv / "bin"}:{os.environ["PATH"]}',
    'HOME': str(folder),
    'XDG_CACHE_HOME': str(folder / 'cache'),
  }
  if line.startswith('ftwax '):
    words = line.split()
    if words[1] == 'train':
      words.append(f'--steps={_STEPS}')
    if words[1] == 'film':
      words += ['--out=film.gif', '--steps=5']
    words = [str(venv / 'bin' / 'ftwax'), *words[1:]]
  else:
    (folder / 'typed.py').write_text(_shorten(line), 'utf-8')
    words = [str(venv / 'bin' / 'python'), 'typed.py']
  subprocess.run(words, cwd=folder, env=environment, check=True)


def play(user: str, folder: pathlib.Path) -> tuple[int, float]:
  """Plays a user in a new folder; returns packages and CPU seconds.

  Raises:
    CalledProcessError: if anything that the user types fails.
  """
  folder.mkdir(parents=True)
  lines = USERS[user]()
  venv, num_packages = _install(folder)
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  for line in lines:
    _type(line, venv, folder)
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
  shutil.rmtree(venv)
  return num_packages, seconds


def main() -> None:
  """Plays the users that are named, by default all."""
  folder = pathlib.Path(sys.argv[1])
  for user in sys.argv[2:] or USERS:
    num_packages, seconds = play(user, folder / user)
    print(f'{user}: {num_packages} packages, {seconds:.0f} CPU seconds')


if __name__ == '__main__':
  main()
