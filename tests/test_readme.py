"""README's example runs as it stands, and learns."""

import pathlib

import documented_code

README = pathlib.Path(__file__).parents[1] / 'README.md'


def test_it_is_short():
  assert len(README.read_text('utf-8').splitlines()) <= 180


def test_the_example_learns(tmp_path):
  (example,) = documented_code.read_blocks(README)
  output = documented_code.run(example, tmp_path, timeout_s=900)
  assert 'runs/ppo_CartPole-v1' in output
  assert output.count('evaluation after') == 4
  mean_return = float(output.splitlines()[-1].split()[0])
  assert mean_return > 400  # The best is 500.
