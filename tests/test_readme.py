"""README's example runs as it stands, and learns."""

import pathlib
import re

import documented_code
import numpy as np

README = pathlib.Path(__file__).parents[1] / 'README.md'


def test_it_is_short():
  assert len(README.read_text('utf-8').splitlines()) <= 110


def test_the_example_learns(tmp_path):
  run, *_ = documented_code.read_blocks(README)
  output = documented_code.run(run, tmp_path, timeout_s=600)
  assert 'runs/ppo_CartPole-v1' in output
  assert output.count('evaluation after') == 4
  mean_return = float(output.splitlines()[-2])
  assert mean_return > 400  # The best is 500.


def test_pure_functions_learn(tmp_path):
  run, pure, _ = documented_code.read_blocks(README)
  # Without the run: the next block only reads its experiment.
  setup = run.partition('result = ')[0]
  fewer = pure.replace('50_000', '20_000')
  assert fewer != pure
  output = documented_code.run(setup + fewer, tmp_path, timeout_s=600)
  returns = np.array(output.replace('[', '').replace(']', '').split(), float)
  assert returns.shape == (4,)
  assert (returns > 0.5).all()  # The best is 1.


def test_a_population_is_one_more_field(tmp_path):
  run, _, population = documented_code.read_blocks(README)
  setup = run.partition('result = ')[0].replace('80_000', '4_000')
  code = f'{setup}{population.replace("ftwax.run(", "print(ftwax.run(", 1)})'
  output = documented_code.run(code, tmp_path, timeout_s=600)
  assert output.splitlines()[0] == (
    'Runtime: device, compiled with the environment.'
  )
  assert 'RunResult(' in output.splitlines()[-1]


def test_sentences_have_two_numbers_at_most():
  """Below the title and outside of code and the table."""
  text = re.sub(r'```.*?```|^\|.*?$|^    .*?$|`[^`]*`|\([^)]*\)', '',
                README.read_text('utf-8'), flags=re.S | re.M)  # fmt: skip
  for sentence in re.split(r'(?<=[.:])\s', text):
    assert len(re.findall(r'(?<![\w.])\d[\d,.]*', sentence)) <= 2, sentence
