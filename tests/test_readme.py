"""README's example runs as it stands, for fewer steps, and learns for all."""

import pathlib

import documented_code
import pytest

README = pathlib.Path(__file__).parents[1] / 'README.md'


@pytest.fixture(scope='module')
def example():
  (block,) = documented_code.read_blocks(README)
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
  output = documented_code.run(example, tmp_path, timeout_s=900)
  mean_return = float(output.splitlines()[-1].split()[0])
  assert mean_return > 400  # The best is 500.
