"""Evaluations in an environment of their own."""

import functional_fakes
import population_helpers
import pytest
import run_helpers

import ftwax
from ftwax.population import population_config
from ftwax.records import loggers

pytestmark = pytest.mark.usefixtures('compiles_once')

_LENGTHS = {'training': 5, 'evaluation': 7}


def _make_game(name, team_size=1):
  return lambda seed: functional_fakes.make_team_matching(
    team_size=team_size, episode_length=_LENGTHS[name]
  )


def _make_experiment(**options):
  return population_helpers.make_experiment(
    _make_game('training'),
    **{
      'population': population_config.PopulationConfig(1, exploits=False),
      'max_num_actor_steps': 160,
      **options,
    },
  )


@pytest.mark.parametrize(
  'runtime', ['local', pytest.param('device', marks=pytest.mark.slow)]
)
def test_evaluations_are_of_their_own_environment(tmp_path, runtime):
  run = run_helpers.make_run(runtime, tmp_path)
  for name, factory in (
    ('evaluation', _make_game('evaluation')),
    ('training', None),
  ):
    experiment = _make_experiment(evaluation=ftwax.Evaluation(factory))
    result = run(experiment, name, eval_every=160, num_eval_episodes=2)
    for label, length in (
      ('train', _LENGTHS['training']),
      ('evaluation', _LENGTHS[name]),
    ):
      rows = loggers.read_jsonl(loggers.log_path(result.run_dir, label))
      assert rows
      assert {row['episode_length'] for row in rows} == {length}


@pytest.mark.parametrize('runtime', ['local', 'device'])
def test_specs_of_evaluations_must_be_those_of_training(tmp_path, runtime):
  run = run_helpers.make_run(runtime, tmp_path)
  experiment = _make_experiment(
    evaluation=ftwax.Evaluation(_make_game('evaluation', team_size=2))
  )
  with pytest.raises(ValueError, match='evaluation.environment must'):
    run(experiment, eval_every=160, num_eval_episodes=2)
