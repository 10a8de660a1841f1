"""Experiments in runtimes other than their own, by the command line."""

import importlib.util
import subprocess
import sys

import cloudpickle
import own_environments
import pytest

from ftwax.cli import commands, launch, sources

# The package that each needs, whose environment is in Python.
IN_PYTHON = {
  ('atari',): 'ale_py',
  ('atari', '--vector'): 'ale_py',
  ('atari', '--agent=unreal'): 'ale_py',
  ('Pendulum-v1',): 'gymnasium',
  **{
    (f'{own_environments.__file__}:{function}',): 'gymnasium'
    for function in ('by_name', 'of_instance', 'of_dm_env', 'of_vectors')
  },
}


@pytest.mark.filterwarnings('ignore::DeprecationWarning')  # Of PettingZoo.
@pytest.mark.parametrize('arguments', IN_PYTHON)
def test_no_environment_in_python_is_compiled(tmp_path, arguments):
  if importlib.util.find_spec(IN_PYTHON[arguments]) is None:
    pytest.skip(f'{IN_PYTHON[arguments]} is not installed')
  argv = ['train', *arguments, '--runtime=device', f'--run_dir={tmp_path}/run']
  with pytest.raises(SystemExit) as end:
    commands.main(argv)
  message = str(end.value.code).removesuffix('\n(-v=1 prints the traceback.)')
  assert 'made one in Python' in message and "runtime='local'" in message
  assert '\n' not in message


_MAKE = """
import pickle, sys
for name, factory in pickle.load(sys.stdin.buffer).items():
  try:
    factory(0)
  except ImportError as error:
    print(name, 'needs', error)
"""


@pytest.mark.slow
def test_factories_of_experiments_work_in_other_processes():
  factories = {}
  for name in sources.experiments():
    found = launch.find(name)
    factories[name] = found.build().environment_factory
  done = subprocess.run(
    [sys.executable, '-c', _MAKE],
    input=cloudpickle.dumps(factories),
    capture_output=True,
    check=False,
    timeout=120,
  )
  assert done.returncode == 0, done.stderr.decode()
  # Of packages that are not installed, with a remedy.
  for line in done.stdout.decode().splitlines():
    assert 'install' in line, line
