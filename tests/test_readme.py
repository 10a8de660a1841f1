"""README's example runs as it stands, for fewer steps, and learns for all."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).parents[1] / 'README.md'


@pytest.fixture(scope='module')
def example():
  text = README.read_text('utf-8')
  (block,) = re.findall(r'```python\n(.*?)```', text, flags=re.DOTALL)
  return block


def test_it_is_short():
  assert len(README.read_text('utf-8').splitlines()) <= 180


def test_the_example_runs(example, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  code = example.replace('80_000', '1_200').replace('20_000', '600')
  assert code != example
  names: dict = {}
  exec(compile(code, 'README', 'exec'), names)
  assert names['result'].counts.actor_steps >= 1_200
  assert names['result'].counts.learner_steps > 0
  output = capsys.readouterr().out
  assert 'runs/cartpole' in output
  assert output.count('evaluation after') == 2


def test_the_example_learns(example, tmp_path):
  """In a process of its own, as users run it: tests compile unoptimized."""
  environment = {**os.environ, 'PYTHONPATH': str(README.parent)}
  environment.pop('XLA_FLAGS', None)
  (tmp_path / 'example.py').write_text(example, 'utf-8')
  ended = subprocess.run(
    [sys.executable, 'example.py'],
    cwd=tmp_path,
    env=environment,
    capture_output=True,
    text=True,
    timeout=900,
    check=False,
  )
  assert ended.returncode == 0, ended.stderr
  mean_return = float(ended.stdout.splitlines()[-1].split()[0])
  assert mean_return > 400  # The best is 500.
