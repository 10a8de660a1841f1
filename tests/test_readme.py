"""README's example runs as it stands, and learns."""

import pathlib

import documented_code
import numpy as np

README = pathlib.Path(__file__).parents[1] / 'README.md'


def test_it_is_short():
  assert len(README.read_text('utf-8').splitlines()) <= 180


def test_the_example_learns(tmp_path):
  run, _ = documented_code.read_blocks(README)
  output = documented_code.run(run, tmp_path, timeout_s=600)
  assert 'runs/ppo_CartPole-v1' in output
  assert output.count('evaluation after') == 4
  mean_return = float(output.splitlines()[-1].split()[0])
  assert mean_return > 400  # The best is 500.


def test_pure_functions_learn(tmp_path):
  run, pure = documented_code.read_blocks(README)
  # Without the run: the next block only reads its experiment.
  setup = run.partition('result = ')[0]
  fewer = pure.replace('50_000', '20_000')
  assert fewer != pure
  output = documented_code.run(setup + fewer, tmp_path, timeout_s=600)
  returns = np.array(output.replace('[', '').replace(']', '').split(), float)
  assert returns.shape == (4,)
  assert (returns > 0.5).all()  # The best is 1.
