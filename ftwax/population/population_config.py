"""Options of a population and their defaults."""

import dataclasses
from typing import ClassVar

from ftwax import parts, registry
from ftwax.population import exploring, matchmaking, selection

MAX_MEMBERS = 2**16


@registry.register('rule.population')
@dataclasses.dataclass(frozen=True)
class PopulationConfig(parts.Part):
  """Options of a population and its rules.

  Defaults are those of Jaderberg et al., 2019 (arXiv:1807.01281), except for
  the K-factor of online ratings, which the paper does not give.

  Attributes:
    num_members: N, number of agents that learn.
    exploits: whether members copy each other.
    select: selects the parents that members copy.
    explore: perturbs the values that a copy inherits.
    burn_in_games: number of games, or episodes of a single-agent task, that a
      member plays before its first exploit and between exploits.
    num_returns: number of last returns that determine a member's fitness.
    fitness: what takes the place of the returns where the environment measures
      it: a metric such as `metrics/is_success`, or `-metrics/distance` if less
      is better; see `environments.episode_metrics`.
    min_decided_fraction: a member past its burn-in draws new hyperparameters
      and internal rewards from their priors if less than this fraction of its
      games since its last change had a winner. Where nobody wins, ratings do
      not tell members apart, so that none would ever be copied. 0 turns this
      off.
    crossover_probability: probability that a copy keeps each of its own
      hyperparameters and internal rewards instead of the parent's. Scaling
      never changes the sign of an internal reward; this does, as long as
      members differ.
    k_factor: maximum change of a rating per game and seat, in Elo points.
    matchmake: decides which members meet.
    own_team_fraction: fraction of the games in which each team consists of
      copies of one member, as in evaluations. In the others teams are mixed, so
      that a member can win by what its teammates do.
  """

  is_nested: ClassVar[bool] = False

  num_members: int = parts.option(dataclasses.MISSING, low=1, high=MAX_MEMBERS)

  # Evolution.
  exploits: bool = True
  select: selection.SelectionRule = selection.WinProbability()  # noqa: RUF009
  explore: exploring.ExploreRule = exploring.Perturb()  # noqa: RUF009
  burn_in_games: int = parts.option(1000, low=0)
  num_returns: int = parts.option(10, low=1)
  fitness: str = 'episode_return'
  min_decided_fraction: float = parts.option(0.0, low=0, high=1)
  crossover_probability: float = parts.option(0.0, low=0, high=1)

  # Ratings and seats.
  k_factor: float = parts.option(4.0, above=0)
  matchmake: matchmaking.MatchmakingRule = matchmaking.ByStrength()  # noqa: RUF009
  own_team_fraction: float = parts.option(0.0, low=0, high=1)

  def __post_init__(self) -> None:
    """Checks each option and the combinations of options."""
    self.check_types()
    super().__post_init__()
    if self.exploits and self.num_members == 1:
      raise ValueError(
        'num_members (1) must be at least 2, since a member cannot copy itself;'
        ' choose 2 or pass exploits=False.'
      )
