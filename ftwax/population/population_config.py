"""Options of a population and their defaults."""

import dataclasses
import math

from ftwax import registry, types


@registry.register('rule.population')
@dataclasses.dataclass(frozen=True)
class PopulationConfig(types.Config):
  """Options of a population.

  Defaults for games are those of Jaderberg et al., 2019 (arXiv:1807.01281),
  except for the K-factor of online ratings, which the paper does not give.
  Defaults of truncation selection and of the t-test are those of Jaderberg et
  al., 2017 (arXiv:1711.09846), section 4.1.1.

  Attributes:
    num_members: N, number of agents that learn.
    exploits: whether members copy each other.
    burn_in_games: number of games, or episodes of a single-agent task, that a
      member plays before its first exploit and between exploits.
    win_probability_threshold: a member copies another one if a team of the
      other's copies beats a team of its own with a probability above this.
    truncation_fraction: fraction of the population in the top, and in the
      bottom, of truncation selection.
    t_test_level: p-value below which a difference of returns is significant.
    copy_confidence: confidence that a member has in the other's advantage when
      it copies; 0.5 is to trust the estimate. The win probability has to be
      above its threshold even if ratings are off by the noise of online updates
      at this one-sided confidence, and in truncation selection the p-value of a
      t-test has to be below one minus this.
    min_lineages: least number of founders, members of the first generation,
      that have descendants. A copy that would end a lineage below this is left
      out.
    periods: burn-ins between two exploits in each of several subpopulations of
      equal size, for the rule of multiple frequencies.
    num_returns: number of last returns that determine a member's fitness.
    min_decided_fraction: a member past its burn-in draws new hyperparameters
      and internal rewards from their priors if less than this fraction of its
      games since its last change had a winner. Where nobody wins, ratings do
      not tell members apart, so that none would ever be copied. 0 turns this
      off.
    crossover_probability: probability that a copy keeps each of its own
      hyperparameters and internal rewards instead of the parent's. Scaling
      never changes the sign of an internal reward; this does, as long as
      members differ.
    perturb_probability: probability of perturbing each value, independently of
      the others.
    perturb_factors: a perturbed value is scaled by one of the two.
    flip_probability: probability of changing the sign of each value that
      `perturb` scales, if the bounds of its prior allow that.
    resample_probability: probability of resampling each value, with that rule.
    initial_rating: initial rating of every member, in Elo points.
    k_factor: maximum change of a rating per game and seat, in Elo points.
    matchmaking_deviation: standard deviation, in win probability, of the normal
      density from which the other players of a game are sampled.
    num_past: number of snapshots of members that are kept as opponents; 0 for
      none. They play in the share of games of `opponents`, in turn with these.
    past_period: rounds between two snapshots.
    num_past_at_once: number of snapshots that play in the same round.
    past_exponent: how much a member prefers snapshots that it does not beat,
      k in (1 - p)^k for its win rate p. 0 is plain fictitious self-play.
    prefers_equal_past: whether it prefers its equals instead, by p (1 - p).
    own_team_fraction: fraction of the games in which each team consists of
      copies of one member, as in evaluations. In the others teams are mixed, so
      that a member can win by what its teammates do.
  """

  num_members: int

  # Exploit.
  exploits: bool = True
  burn_in_games: int = 1000
  win_probability_threshold: float = 0.7
  truncation_fraction: float = 0.2
  t_test_level: float = 0.05
  copy_confidence: float = 0.5
  min_lineages: int = 1
  periods: tuple[int, ...] = (1, 4)
  num_returns: int = 10

  # Explore.
  min_decided_fraction: float = 0.0
  crossover_probability: float = 0.0
  perturb_probability: float = 0.05
  perturb_factors: tuple[float, float] = (0.8, 1.2)
  flip_probability: float = 0.0
  resample_probability: float = 0.25

  # Ratings and matchmaking.
  initial_rating: float = 1000.0
  k_factor: float = 4.0
  matchmaking_deviation: float = 1.0 / 6.0
  own_team_fraction: float = 0.0

  # Past selves.
  num_past: int = 0
  past_period: int = 10
  num_past_at_once: int = 2
  past_exponent: float = 2.0
  prefers_equal_past: bool = False

  @property
  def num_past_players(self) -> int:
    """The number of past selves that play at once; 0 if none are kept."""
    return self.num_past_at_once if self.num_past else 0

  def __post_init__(self) -> None:
    """Checks each option and the combinations of options."""
    self.check_types()
    for name, low in (
      ('num_members', 1),
      ('burn_in_games', 0),
      ('num_returns', 1),
      ('min_lineages', 1),
      ('num_past', 0),
      ('past_period', 1),
      ('num_past_at_once', 1),
    ):
      value = getattr(self, name)
      if value < low:
        raise ValueError(
          f'{name} ({value}) must be at least {low}; choose {low}.'
        )
    if self.min_lineages > self.num_members:
      raise ValueError(
        f'min_lineages ({self.min_lineages}) must be at most num_members'
        f' ({self.num_members}); choose 1.'
      )
    if not self.periods or min(self.periods) < 1:
      raise ValueError(
        f'periods ({self.periods}) must be at least 1, each; choose (1, 4).'
      )
    self._check_numbers()
    if self.exploits and self.num_members == 1:
      raise ValueError(
        'num_members (1) must be at least 2, since a member cannot copy itself;'
        ' choose 2 or pass exploits=False.'
      )

  def _check_numbers(self) -> None:
    for name, low, high, remedy in (
      ('win_probability_threshold', 0.5, 1.0, 0.7),
      ('t_test_level', 0.0, 1.0, 0.05),
      ('k_factor', 0.0, math.inf, 4.0),
      ('matchmaking_deviation', 0.0, math.inf, 0.17),
    ):
      value = getattr(self, name)
      if not low < value < high:
        raise ValueError(
          f'{name} ({value}) must be above {low:g} and below {high:g}; choose'
          f' {remedy}.'
        )
    for name in (
      'min_decided_fraction',
      'own_team_fraction',
      'crossover_probability',
      'perturb_probability',
      'flip_probability',
      'resample_probability',
    ):
      value = getattr(self, name)
      if not 0.0 <= value <= 1.0:
        raise ValueError(f'{name} ({value}) must be in [0, 1]; choose 0.05.')
    if not 0.5 <= self.copy_confidence < 1.0:
      raise ValueError(
        f'copy_confidence ({self.copy_confidence}) must be at least 0.5 and'
        ' below 1; choose 0.95.'
      )
    if not 0.0 < self.truncation_fraction <= 0.5:
      raise ValueError(
        f'truncation_fraction ({self.truncation_fraction}) must be above 0 and'
        ' at most 0.5, so that no member is both at the top and at the bottom;'
        ' choose 0.2.'
      )
    if len(self.perturb_factors) != 2 or not all(
      0.0 < factor < math.inf for factor in self.perturb_factors
    ):
      raise ValueError(
        f'perturb_factors ({self.perturb_factors}) must be two positive'
        ' numbers; choose (0.8, 1.2).'
      )
    if not 0.0 <= self.past_exponent < math.inf:
      raise ValueError(
        f'past_exponent ({self.past_exponent}) must be finite and not negative;'
        ' choose 2.'
      )
    if not math.isfinite(self.initial_rating):
      raise ValueError(
        f'initial_rating ({self.initial_rating}) must be finite; choose 1000.'
      )
