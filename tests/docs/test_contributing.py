"""The changes that CONTRIBUTING prints are made as printed, in a copy."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BLOCKS = re.findall(
  r'^```(python|diff) title="(.*?)"\n(.*?)^```$',
  (ROOT / 'CONTRIBUTING.md').read_text('utf-8'),
  re.DOTALL | re.MULTILINE,
)
# Tests read the page of the internals.
COPIED = ('ftwax', 'pyproject.toml', 'tests', 'docs/internals.md')

# What uses the changes as the page says.
USE = """
import jax

import ftwax
from ftwax.agents import ppo
from ftwax.agents.actor_critic import tasks
from ftwax.environments import catch
from ftwax.networks import cores

assert ppo.PPOConfig(tasks=('small_features',)).priors.tasks.small_features
config = ppo.PPOConfig(
  core=cores.Leaky(8), tasks=(tasks.SmallFeatures(power=1.0),)
)
experiment = ftwax.ExperimentConfig(config, catch.make(), 600)
result = ftwax.run(experiment, runtime='device')
ftwax.load(result.run_dir)
log = (result.run_dir / 'logs' / 'learner.jsonl').read_text()
assert 'small_features_size' in log
"""


def change(text, diff):
  """Returns a text with the lines that a diff adds, at their one place."""
  for hunk in diff.split('\n...\n'):
    lines = hunk.rstrip('\n').split('\n')
    old = '\n'.join(line[1:] for line in lines if line[:1] != '+')
    assert text.count(f'\n{old}\n') == 1, f'{old!r} must be there once'
    text = text.replace(
      f'\n{old}\n', '\n' + '\n'.join(line[1:] for line in lines) + '\n'
    )
  return text


@pytest.fixture(scope='module')
def clone(tmp_path_factory):
  """A copy of the library and its tests with the printed changes."""
  directory = tmp_path_factory.mktemp('clone')
  for name in COPIED:
    (directory / name).parent.mkdir(exist_ok=True)
    copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
    copy(ROOT / name, directory / name)
  assert [kind for kind, *_ in BLOCKS] == ['python', *['diff'] * 3]
  for kind, name, code in BLOCKS:
    path = directory / name
    assert path.exists() == (kind == 'diff'), name
    path.write_text(
      change(path.read_text('utf-8'), code) if kind == 'diff' else code, 'utf-8'
    )
  return directory


def run(clone, *words):
  """Runs Python in the copy; returns what it printed."""
  ended = subprocess.run(
    [sys.executable, *words],
    cwd=clone,
    env={**os.environ, 'PYTHONPATH': str(clone)},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert ended.returncode == 0, ended.stdout[-5_000:] + ended.stderr[-5_000:]
  return ended.stdout


def run_tests(clone, names, *files):
  """Runs tests of the copy that are not slow; returns how many passed."""
  files = [f'tests/{file}' for file in files]
  options = '-q', '-n0', '-m', 'not slow', '-k', names
  printed = run(clone, '-m', 'pytest', *options, *files)
  return int(re.search(r'(\d+) passed', printed)[1])


@pytest.mark.ci
def test_a_core_meets_what_all_cores_must_do(clone):
  assert run_tests(clone, 'leaky', 'networks/test_every_core.py') >= 5
  assert run_tests(clone, 'traced and ppo', 'runtime/test_pairs.py') == 2


@pytest.mark.ci
def test_a_task_meets_what_all_tasks_must_do(clone):
  names = 'small_features or the_cases'
  assert run_tests(clone, names, 'runtime/test_pairs.py') == 2


@pytest.mark.slow
def test_agents_take_the_core_and_the_task(clone, tmp_path):
  run(clone, '-c', f'import os; os.chdir({str(tmp_path)!r})\n{USE}')


@pytest.mark.slow
def test_the_changes_keep_the_rules(clone):
  pytest.importorskip('ruff', reason='the extra dev is not there')
  run(clone, '-m', 'ruff', 'check', 'ftwax')
  run(clone, '-m', 'ruff', 'format', '--check', 'ftwax')
  files = 'test_imports.py', 'test_registry.py', 'docs/test_docstrings.py'
  names = 'arrows or re_export or modules_are or parts or name or docstrings'
  assert run_tests(clone, names, *files) > 300
