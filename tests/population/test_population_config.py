import pytest

from ftwax.population import population_config as config_lib


def test_defaults_are_those_of_the_paper():
  config = config_lib.PopulationConfig(num_members=30)
  assert config.win_probability_threshold == 0.7
  assert config.burn_in_games == 1000
  assert config.perturb_probability == 0.05
  assert config.perturb_factors == (0.8, 1.2)
  assert config.matchmaking_deviation == 1 / 6


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
    (
      {'win_probability_threshold': 0.5},
      r'win_probability_threshold \(0.5\) must be above 0.5 and below 1',
    ),
    ({'win_probability_threshold': 1.0}, r'threshold \(1.0\) must be above'),
    ({'burn_in_games': -1}, r'burn_in_games \(-1\) must be at least 0'),
    ({'num_returns': 0}, r'num_returns \(0\) must be at least 1'),
    ({'truncation_fraction': 0.6}, r'truncation_fraction \(0.6\) must be'),
    ({'t_test_level': 0.0}, r't_test_level \(0.0\) must be above 0'),
    ({'k_factor': float('nan')}, r'k_factor \(nan\) must be above 0'),
    ({'matchmaking_deviation': 0.0}, r'deviation \(0.0\) must be above 0'),
    (
      {'crossover_probability': -0.1},
      r'crossover_probability \(-0.1\) must be in',
    ),
    ({'perturb_probability': 1.5}, r'perturb_probability \(1.5\) must be in'),
    ({'resample_probability': -0.1}, r'resample_probability \(-0.1\) must'),
    ({'own_team_fraction': 1.5}, r'own_team_fraction \(1.5\) must'),
    ({'flip_probability': 1.5}, r'flip_probability \(1.5\) must be in'),
    ({'copy_confidence': 1.0}, r'copy_confidence \(1.0\) must be at least 0.5'),
    ({'periods': ()}, r'periods \(\(\)\) must be at least 1'),
    ({'periods': (0, 1)}, r'periods \(\(0, 1\)\) must be at least 1'),
    ({'min_lineages': 0}, r'min_lineages \(0\) must be at least 1'),
    ({'min_lineages': 5}, r'min_lineages \(5\) must be at most num_members'),
    ({'min_decided_fraction': 1.1}, r'min_decided_fraction \(1.1\) must be in'),
    ({'perturb_factors': (0.8,)}, r'perturb_factors .* must be two'),
    ({'perturb_factors': (0.0, 1.2)}, r'perturb_factors .* must be two'),
    ({'initial_rating': float('inf')}, r'initial_rating \(inf\) must be'),
  ],
)
def test_bad_options(options, message):
  with pytest.raises(ValueError, match=message):
    config_lib.PopulationConfig(**{'num_members': 4, **options})


def test_one_alone_may_play_without_copying():
  config = config_lib.PopulationConfig(num_members=1, exploits=False)
  assert config.num_members == 1
