"""Sweeps: cells and seeds are trained together, and written as rows."""

import csv

import functional_fakes
import numpy as np
import pytest
import run_helpers

from ftwax import PopulationConfig, hyperparameters
from ftwax.runtime import sweeps

pytestmark = pytest.mark.usefixtures('compiles_once')

EXPERIMENT = run_helpers.make_experiment(
  run_helpers.FEED_FORWARD,
  functional_fakes.make_matching(),
  max_num_actor_steps=128,
)
RATE, SIZES = 'agent.learning_rate', 'agent.torso.hidden_sizes'


def test_cells_and_seeds_train_together(tmp_path, capsys):
  cells = [{RATE: 1e-2}, {RATE: 0.0}, {RATE: 1e-2}]
  first, still, again = sweeps.run(EXPERIMENT, cells, (3, 4), tmp_path / 'run')
  np.testing.assert_array_equal(first.returns, again.returns)
  assert not np.array_equal(first.returns, still.returns, equal_nan=True)
  assert not np.array_equal(*first.returns, equal_nan=True)
  # Three episodes of ten steps in each of four environments.
  assert first.steps[-1] == still.steps[-1] <= 128
  assert first.num_episodes.sum(axis=1).tolist() == [12, 12]
  printed = capsys.readouterr().out
  assert 'cells: 3, seeds of each: 2, programs to compile: 1' in printed
  assert 'No best cell is named with fewer than 3 seeds.' in printed
  with (tmp_path / 'run' / 'sweep.csv').open() as file:
    rows = list(csv.DictReader(file))
  assert [float(row[RATE]) for row in rows] == [1e-2, 0.0, 1e-2]
  np.testing.assert_allclose(float(rows[1]['seed_4']), still.last[1])
  np.testing.assert_allclose(float(rows[1]['return']), still.last.mean())
  ends = float(rows[1]['low']), float(rows[1]['high'])
  np.testing.assert_allclose(ends, sorted(still.last))
  page = (tmp_path / 'run' / 'sweep.html').read_text('utf-8')
  assert 'agent.learning_rate=0, 2 seeds' in page


@pytest.mark.slow  # Compiles twice.
def test_fields_that_change_the_program_are_compiled_each(tmp_path, capsys):
  cells = sweeps.grid({SIZES: [(4,), (8,)], RATE: [0.0, 1e-2]})
  results = sweeps.run(EXPERIMENT, cells, [0], tmp_path / 'run')
  assert [result.values for result in results] == cells
  assert 'programs to compile: 2' in capsys.readouterr().out


def test_cells_are_combined_or_drawn():
  assert sweeps.grid({'a': [1, 2], 'b': ['x']}) == [
    {'a': 1, 'b': 'x'},
    {'a': 2, 'b': 'x'},
  ]
  assert sweeps.grid({}) == [{}]
  priors = {RATE: hyperparameters.LogUniform(1e-4, 1e-2)}
  drawn = [cell[RATE] for cell in sweeps.draw(priors, 20)]
  assert len(set(drawn)) == 20
  assert 1e-4 <= min(drawn) < 1e-3 < max(drawn) <= 1e-2
  assert drawn != [cell[RATE] for cell in sweeps.draw(priors, 20, seed=1)]


@pytest.mark.parametrize(
  ('experiment', 'cells', 'error', 'text'),
  [
    (EXPERIMENT, [], ValueError, r'cells \(0\)'),
    (EXPERIMENT, [{RATE: 1.0}, {}], ValueError, 'cell 1'),
    (
      EXPERIMENT,
      [{RATE: hyperparameters.Uniform(0.0, 1.0)}],
      ValueError,
      r'sweeps\.draw',
    ),
    (EXPERIMENT, [{'agent.lerning_rate': 1.0}], TypeError, 'learning_rate'),
    (EXPERIMENT, [{'agnt.learning_rate': 1.0}], TypeError, 'agent'),
    (
      EXPERIMENT.replace(population=PopulationConfig(2)),
      [{}],
      ValueError,
      r'num_members \(2\)',
    ),
  ],
)
def test_errors_name_the_value(tmp_path, experiment, cells, error, text):
  with pytest.raises(error, match=text):
    sweeps.run(experiment, cells, [0], tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
