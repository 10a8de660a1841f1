"""One agent that goes through the schedule of a population."""

import json

import numpy as np
import population_helpers
import pytest

import ftwax
from ftwax.cli import commands
from ftwax.experiments import pbt_catch  # noqa: TID251
from ftwax.population import selection
from ftwax.records import loggers
from ftwax.reporting import history
from ftwax.runtime import replaying

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def population_run(tmp_path_factory):
  run_dir = tmp_path_factory.mktemp('population') / 'run'
  experiment = population_helpers.make_experiment(
    pbt_catch.ENVIRONMENT,
    max_num_actor_steps=3_000,
    steps_per_round=18,
    num_environments=16,
    select=selection.truncation,
    population=ftwax.PopulationConfig(
      4, burn_in_games=4, truncation_fraction=0.5, perturb_probability=1.0
    ),
  )
  ftwax.run(experiment, runtime='device', run_dir=run_dir)
  return experiment, run_dir


def _read(run_dir):
  return loggers.read_jsonl(loggers.log_path(run_dir, history.LABEL))


@pytest.mark.parametrize('runtime', ['device', 'local'])
def test_one_command_goes_through_the_values_of_the_best(
  population_run, tmp_path, runtime
):
  experiment, run_dir = population_run
  rows = _read(run_dir)
  member = int(np.argmax(rows[-1]['mean_returns']))
  arguments = [str(run_dir), f'--runtime={runtime}', '--seed=7']
  assert not commands.main(['replay', *arguments, f'--run_dir={tmp_path}/new'])
  # The ancestor of the best member in each row of the log.
  copies = {
    (row['generation'], row['member']): row['parent']
    for row in history.read_lineage(run_dir)[1:]
  }
  expected = {}
  for row in reversed(rows):
    # After the last row, a further generation may have followed.
    member = copies.get((row['generation'] + 1, member), member)
    expected[row['learner_steps']] = row['hyperparameters/learning_rate'][
      member
    ]
  assert len(set(expected.values())) > 2
  replayed = _read(tmp_path / 'new')
  assert len(replayed) > 4
  for row in replayed:
    # These rows have the values of the next update.
    if row['learner_steps'] not in expected:
      continue
    later = [step for step in expected if step > row['learner_steps']]
    if later:
      assert row['hyperparameters/learning_rate'] == [expected[min(later)]]
  config = json.loads((tmp_path / 'new' / 'config.json').read_text('utf-8'))
  assert config['schedule']['updates'][0] == 0
  assert config['max_num_actor_steps'] == 750


def test_records_without_a_generation_are_named(population_run, tmp_path):
  experiment, run_dir = population_run
  with pytest.raises(ValueError, match=r'member \(4\) must be from 0 to 3'):
    replaying.make(experiment, run_dir, 4)
  alone = ftwax.PopulationConfig(num_members=1, exploits=False)
  with pytest.raises(ValueError, match='must be of a population'):
    replaying.make(experiment.replace(population=alone), run_dir)
  (tmp_path / 'logs').mkdir()
  log = loggers.log_path(run_dir, history.LABEL).read_text('utf-8')
  loggers.log_path(tmp_path, history.LABEL).write_text(
    log.splitlines()[0] + '\n', 'utf-8'
  )
  path = tmp_path / history.LINEAGE_FILE
  path.write_text((run_dir / path.name).read_text('utf-8'), 'utf-8')
  with pytest.raises(ValueError, match='must have a row before generation'):
    replaying.make(experiment, tmp_path)
