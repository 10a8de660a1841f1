"""README's example runs as it stands, and learns."""

import pathlib
import re

import documented_code
import numpy as np
import pytest

from ftwax.runtime import prepare, runs

README = pathlib.Path(__file__).parents[1] / 'README.md'


def test_it_is_short():
  assert len(README.read_text('utf-8').splitlines()) <= 110


@pytest.mark.ci
def test_the_example_learns(tmp_path):
  run, *_ = documented_code.read_blocks(README)
  output = documented_code.run(run, tmp_path, timeout_s=600)
  assert 'runs/ppo_CartPole-v1' in output
  assert output.count('evaluation after') == 4
  mean_return = float(output.splitlines()[-2])
  assert mean_return > 400  # The best is 500.


@pytest.mark.ci
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


def test_a_population_is_one_more_field(monkeypatch):
  """Its run is prepared; the main job's own test trains one."""
  run, _, population = documented_code.read_blocks(README)
  prepared = []
  monkeypatch.setattr(
    runs, 'run_experiment', lambda made: prepared.append(prepare.prepare(made))
  )
  exec(run.partition('result = ')[0] + population, {})
  (parts,) = prepared
  assert parts.experiment.population.num_members == 4
  assert parts.seating.seats_per_member == 32 and parts.game is not None


def test_sentences_have_two_numbers_at_most():
  """Below the title and outside of code and the table."""
  text = re.sub(r'```.*?```|^\|.*?$|^    .*?$|`[^`]*`|\([^)]*\)', '',
                README.read_text('utf-8'), flags=re.S | re.M)  # fmt: skip
  for sentence in re.split(r'(?<=[.:])\s', text):
    assert len(re.findall(r'(?<![\w.])\d[\d,.]*', sentence)) <= 2, sentence
