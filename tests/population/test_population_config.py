import pytest

from ftwax.population import exploring, matchmaking, selection
from ftwax.population import population_config as config_lib


def test_defaults_are_those_of_the_paper():
  assert config_lib.PopulationConfig(num_members=30).burn_in_games == 1000
  assert selection.WinProbability().threshold == 0.7
  rule = exploring.Perturb()
  assert (rule.probability, rule.factors) == (0.05, (0.8, 1.2))
  assert matchmaking.ByStrength().deviation == 1 / 6


def test_replace_checks_again():
  config = config_lib.PopulationConfig(num_members=2)
  assert config.replace(num_members=3).num_members == 3
  with pytest.raises(ValueError, match='num_members'):
    config.replace(num_members=0)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'num_members': 1}, r'num_members \(1\) must be at least 2.*exploits='),
    ({'num_members': 0}, r'num_members \(0\) must be at least 1'),
    ({'burn_in_games': -1}, r'burn_in_games \(-1\) must be at least 0'),
    ({'num_returns': 0}, r'num_returns \(0\) must be at least 1'),
    ({'k_factor': float('nan')}, r'k_factor \(nan\) must be above 0'),
    (
      {'crossover_probability': -0.1},
      r'probability \(-0.1\) must be at least 0',
    ),
    ({'own_team_fraction': 1.5}, r'own_team_fraction \(1.5\) must'),
    (
      {'min_decided_fraction': 1.1},
      r'fraction \(1.1\) must be at .* at most 1',
    ),
  ],
)
def test_bad_options(options, message):
  with pytest.raises(ValueError, match=message):
    config_lib.PopulationConfig(**{'num_members': 4, **options})


@pytest.mark.parametrize(
  ('make', 'options', 'message'),
  [
    (
      selection.WinProbability,
      {'threshold': 0.5},
      r'threshold \(0.5\) of WinProbability must be above 0.5 and below 1',
    ),
    (selection.WinProbability, {'threshold': 1.0}, r'\(1.0\) of WinProb'),
    (selection.WinProbability, {'confidence': 1.0}, r'confidence \(1.0\) of'),
    (
      selection.Truncation,
      {'fraction': 0.6},
      r'fraction \(0.6\) .* at most 0.5',
    ),
    (
      matchmaking.ByStrength,
      {'deviation': 0.0},
      r'deviation \(0.0\) .* above 0',
    ),
    (
      exploring.Perturb,
      {'probability': 1.5},
      r'probability \(1.5\) of Perturb',
    ),
    (exploring.Perturb, {'factors': (0.0, 1.2)}, r'factors .* must be above 0'),
    (exploring.Resample, {'probability': -0.1}, r'probability \(-0.1\) of Res'),
  ],
)
def test_bad_options_of_rules(make, options, message):
  with pytest.raises(ValueError, match=message):
    make(**options)


def test_one_alone_may_play_without_copying():
  config = config_lib.PopulationConfig(num_members=1, exploits=False)
  assert config.num_members == 1
