"""Evaluations: members play episodes, or games against opponents.

In a single-seat task every member plays alone. In a game of teams, a team of
copies of each member plays against copies of each opponent, on every side.
Without opponents, each member plays against itself. In a game of one team, each
member takes each seat beside copies of each other one (cross-play).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftwax import types
from ftwax.environments import environment_faults, episode_metrics
from ftwax.population import players, seating, tournament
from ftwax.records import log_values, tournament_files
from ftwax.runtime import prepare

# Steps after which an evaluation ends a game that has no end of its own, unless
# `Evaluation.max_num_steps` says otherwise. An episode of Atari has at most
# 27,000.
MAX_STEPS = 30_000

# Metrics of the environment in the terminal's line, success first.
_MOST_METRICS = 3

# What periods may count, and the count of a run that it is.
UNITS = {'steps': 'actor_steps', 'episodes': 'episodes'}


class Period(NamedTuple):
  """The time from one evaluation to the next.

  Attributes:
    length: number of steps or episodes.
    unit: which of the two, a key of `UNITS`.
  """

  length: int
  unit: str = 'steps'

  def count(self, counts: Any) -> int:
    """Returns how many of the unit a run has taken, by its counts."""
    return getattr(counts, UNITS[self.unit])

  def next_due(self, counts: Any) -> int:
    """Returns the number of the unit at the first evaluation after `counts`.

    It is a multiple of the period, so a resumed run evaluates at the same times
    as an uninterrupted one.
    """
    return (self.count(counts) // self.length + 1) * self.length


def make_period(eval_every: int | str | None) -> Period | None:
  """Returns the period of evaluations; see `runs.run_experiment`."""
  types.check_type('eval_every', eval_every, int | str | None)
  if eval_every is None:
    return None
  number, _, unit = str(eval_every).partition(' ')
  if (
    not number.isdecimal() or int(number) < 1 or (unit or 'steps') not in UNITS
  ):
    raise ValueError(
      f'eval_every ({eval_every!r}) must be at least 1, in steps, or a number'
      f" with one of the units {tuple(UNITS)}, such as '100 episodes'; choose"
      ' None, 0 on the command line, for no evaluations.'
    )
  return Period(int(number), unit or 'steps')


class GameResult(NamedTuple):
  """The result of a game.

  Attributes:
    place: index of the game among the parallel games.
    seats: int32 [P], the player on each seat: members are 0 to N - 1, opponents
      start at N.
    outcome: float32 [num_teams], the score of each team.
    returns: float32 [P, num_events], summed rewards of each player.
    length: number of steps.
    metrics: what the environment measured; see `episode_metrics`.
    is_cut: whether it had not ended after as many steps as evaluations take.
  """

  place: int
  seats: types.NumpyArray
  outcome: types.NumpyArray
  returns: types.NumpyArray
  length: int
  metrics: Mapping[str, float] = {}
  is_cut: bool = False


class Plan(NamedTuple):
  """The games of an evaluation.

  Attributes:
    seating: assigns seats to members and opponents.
    seats: int32 [G, P], the player on each seat.
    games_per_place: number of games that count at each of the `G` indices. The
      first ones count, whenever they end; counting the first games to end
      overall would favor short episodes.
    opponents: players that do not learn, in the order of their indices.
    roles: the role of each seat; empty if there is one.
    headlines: returns what logs call the return; see `games.GameSpec`.
    held_out: names of the opponents that training never meets.
  """

  seating: seating.Seating
  seats: types.NumpyArray
  games_per_place: int
  opponents: Mapping[str, players.Player]
  roles: tuple[int, ...] = ()
  headlines: Callable[[types.NumpyArray], types.NumpyArray] = lambda returns: (
    returns.sum(axis=-1)
  )
  held_out: tuple[str, ...] = ()


class Outcome(NamedTuple):
  """The games that counted in an evaluation.

  Attributes:
    plan: plan of the evaluation.
    results: results of the games.
  """

  plan: Plan
  results: Sequence[GameResult]


def make_plan(parts: prepare.Prepared, num_episodes: int) -> Plan:
  """Plans the games of an evaluation.

  Args:
    parts: provide game, members and opponents.
    num_episodes: minimum number of episodes of each member.
  """
  spec = parts.spec
  opponents = make_opponents(parts)
  num_games, games_per_place = num_episodes, 1
  if spec.num_players == 1:
    num_games = min(num_episodes, parts.experiment.num_environments)
    games_per_place = -(-num_episodes // num_games)
  elif opponents:
    num_games = -(-num_episodes // len(opponents))
  elif not parts.seating.is_rated:
    num_games = -(-num_episodes // parts.experiment.population.num_members)
  places, seats = seating.make_evaluation_seating(
    spec.teams,
    parts.experiment.population.num_members,
    num_games,
    players.find_teams(opponents, spec.teams, spec.roles),
  )
  return Plan(
    places, seats, games_per_place, opponents, spec.roles, spec.headlines,
    tuple(parts.held_out),
  )  # fmt: skip


def make_opponents(parts: prepare.Prepared) -> dict[str, players.Player]:
  """Returns the opponents of evaluations; the first anchors the ratings.

  If the game has scripts, the anchor is a player that acts uniformly at random.
  """
  game = parts.evaluation_game
  if not parts.seating.is_rated:
    return {}
  named: dict[str, players.Player] = {}
  if game is not None and game.scripts:
    named['random'] = players.uniform(parts.spec.environment.actions)
    named.update(
      {name: players.scripted(script) for name, script in game.scripts.items()}
    )
  return {**named, **parts.opponents, **parts.held_out}


def count_results(
  results: Sequence[GameResult], plan: Plan
) -> list[GameResult]:
  """Returns the results that count: the first ones at each index."""
  num_played = np.zeros(len(plan.seats), np.int64)
  counted = []
  for result in results:
    if num_played[result.place] < plan.games_per_place:
      num_played[result.place] += 1
      counted.append(result)
  return counted


def is_complete(
  num_ended: types.NumpyArray,
  games_per_place: int,
  lengths: types.NumpyArray,
  name: str,
  max_steps: int | None = None,
) -> bool:
  """Returns whether no further game is needed.

  At each index, enough games must have ended, or the present one never ends.

  Args:
    num_ended: int [G], number of games that ended.
    games_per_place: see `Plan`.
    lengths: int [G], steps of the present games so far.
    name: name of the environment, for a warning.
    max_steps: steps after which a game is taken for endless; `MAX_STEPS` if
      None.
  """
  is_open = num_ended < games_per_place
  environment_faults.warn_of_endless(name, int((lengths * is_open).max()))
  return not np.any(is_open & (lengths < (max_steps or MAX_STEPS)))


def results_at(
  ended: types.NumpyArray,
  seats: types.NumpyArray,
  outcomes: types.NumpyArray,
  returns: types.NumpyArray,
  lengths: types.NumpyArray,
) -> list[GameResult]:
  """Returns the results of the games that ended, by arrays [G, ...] of all."""
  return [
    GameResult(
      place,
      seats[place],
      outcomes[place],
      returns[place].copy(),
      int(lengths[place]),
    )
    for place in np.flatnonzero(ended).tolist()
  ]


def endless_results(
  seats: types.NumpyArray,
  num_teams: int,
  returns: types.NumpyArray,
  lengths: types.NumpyArray,
  max_steps: int | None = None,
) -> list[GameResult]:
  """Returns the results of games that never end: draws.

  Args:
    seats: int32 [G, P], the player on each seat.
    num_teams: number of teams.
    returns: float32 [G, P, num_events], of the present games so far.
    lengths: int [G], steps of the present games so far.
    max_steps: see `is_complete`.
  """
  outcomes = np.zeros((len(seats), num_teams), np.float32)
  is_cut = lengths >= (max_steps or MAX_STEPS)
  results = results_at(is_cut, seats, outcomes, returns, lengths)
  return [result._replace(is_cut=True) for result in results]


def make_row(outcome: Outcome) -> dict[str, Any]:
  """Returns a row for the evaluation log.

  `num_cut_off` is the number of games that had not ended after
  `Evaluation.max_num_steps`, if any. Metrics of the environment are means over
  all games, as `metrics/NAME`. With several members, `member_returns` [N] holds
  the mean of each. In a game of one team, `cross_returns` [N, N] holds the mean
  of teams of one `i` and
  copies of `j`, and `self_play` and `cross_play` the means of its diagonal and
  of all others. With roles, `role_returns` holds the mean on the seats of each,
  NaN if members have none.
  With opponents, `scores/<opponent>` is the members' mean score
  (a win is 1, a draw 0.5), `member_scores` is [N, K] and `member_games` their
  number of games, `held_out_score` the mean of scores against opponents that
  training never meets, `member_payoffs` [N, K] is what `make_payoffs` returns,
  `member_payoff_errors` its standard error, and `elo` and `member_elo` [N] are
  Elo points above the first opponent, from the games of this evaluation alone.
  """
  plan, results = outcome
  num_members = plan.seating.num_members
  seats = np.stack([result.seats for result in results])  # [G, P]
  is_member = seats < num_members
  returns = plan.headlines(np.stack([result.returns for result in results]))
  lengths = np.array([result.length for result in results])
  row: dict[str, Any] = {
    'episode_return': float(np.mean(returns[is_member])),
    'episode_return_std': float(np.std(returns[is_member])),
    'episode_length': float(np.mean(lengths)),
    'num_episodes': int(is_member.sum()),
    **episode_metrics.average([result.metrics for result in results]),
  }
  if num_cut := sum(result.is_cut for result in results):
    row['num_cut_off'] = num_cut
  if num_members > 1:
    row['member_returns'] = [
      float(np.mean(returns[seats == member])) for member in range(num_members)
    ]
    if seats.shape[1] > 1 and not plan.seating.is_rated:
      row.update(_cross(seats, returns, num_members))
  if plan.roles:
    on_role = [
      returns[is_member & np.equal(plan.roles, role)]
      for role in range(max(plan.roles) + 1)
    ]
    row['role_returns'] = [
      float(np.mean(own)) if own.size else np.nan for own in on_role
    ]
  if plan.opponents:
    row.update(_rate(outcome))
  return row


def _cross(
  seats: types.NumpyArray, returns: types.NumpyArray, num_members: int
) -> dict[str, Any]:
  """Returns the cross-play of members; see `make_row`.

  Args:
    seats: int32 [G, P], a member on one seat and another one on all others.
    returns: float [G, P].
    num_members: N.
  """
  means = np.empty((num_members, num_members))
  for member, other in np.ndindex(means.shape):
    counts = (seats == member).sum(axis=1), (seats == other).sum(axis=1)
    num_others = seats.shape[1] - 1
    is_pair = (counts[0] == 1) & (counts[1] == num_others)
    if member == other:
      is_pair = counts[0] > num_others
    means[member, other] = np.mean(returns[is_pair])
  is_self = np.eye(num_members, dtype=bool)
  return {
    'self_play': float(np.mean(means[is_self])),
    'cross_play': float(np.mean(means[~is_self])),
    'cross_returns': means.tolist(),
  }


def describe(row: Mapping[str, Any], num_steps: int) -> str:
  """Formats the main values of an evaluation as a line for the terminal.

  Args:
    row: returned by `make_row`.
    num_steps: number of training steps so far.
  """
  main = 'held_out_score', 'elo', 'self_play', 'cross_play'
  names = [name for name in row if name.startswith('scores/') or name in main]
  success = [episode_metrics.PREFIX + name for name in episode_metrics.SUCCESS]
  measured = [name for name in row if name.startswith(episode_metrics.PREFIX)]
  measured.sort(key=lambda name: name not in success)
  names = [*(names or [episode_metrics.RETURN]), *measured[:_MOST_METRICS]]
  numbers = {name: row[name] for name in names}
  cut = ''
  if num_cut := row.get('num_cut_off'):
    cut = f' ({num_cut} cut off by Evaluation.max_num_steps)'
  return (
    f'evaluation after {num_steps:,} steps, {row["num_episodes"]}'
    f' episodes{cut}: {log_values.format_values(numbers)}'
  )


def summarize(
  results: Sequence[GameResult],
  teams: Sequence[int],
  num_players: int,
  anchor: int = 0,
) -> tournament.Tournament:
  """Returns win rates and ratings of games between teams of copies.

  They are those of members and opponents; see `tournament.summarize`.
  """
  seats = np.stack([result.seats for result in results])  # [G, P]
  return tournament.summarize(
    seats,
    np.stack([result.outcome for result in results]),
    teams,
    num_players,
    anchor,
  )


def make_payoffs(
  results: Sequence[GameResult], teams: Sequence[int]
) -> types.Floats:
  """Returns what each team gains from the others, float64 [G, num_teams].

  That is its return where rewards are scalars and sum to zero in every game,
  as in poker, and otherwise its wins less its losses against the other teams,
  on average.
  """
  outcomes = np.stack([result.outcome for result in results])
  returns = np.stack([result.returns for result in results])  # [G, P, E]
  if returns.shape[2] == 1:
    of_team = np.arange(outcomes.shape[1]) == np.array(teams)[:, None]
    payoffs: types.Floats = returns[..., 0].astype(np.float64) @ of_team
    if np.allclose(payoffs.sum(axis=1), 0.0, atol=1e-4):
      return payoffs
  wins = np.sign(outcomes[:, :, None] - outcomes[:, None]).astype(np.float64)
  return wins.sum(axis=2) / max(outcomes.shape[1] - 1, 1)


def summarize_for_report(
  results: Sequence[GameResult],
  teams: Sequence[int],
  names: Sequence[str],
  num_members: int,
) -> tournament_files.Results:
  """Summarizes games, with ratings relative to the first opponent.

  The names are those of members, then of opponents.
  """
  summary = summarize(results, teams, len(names), num_members)
  ratings = summary.ratings - summary.ratings[num_members]
  return tournament_files.Results(
    players=tuple(names),
    num_members=num_members,
    anchor=num_members,
    ratings=ratings,
    lows=ratings - summary.rating_errors,
    highs=ratings + summary.rating_errors,
    win_rates=summary.win_rates,
    half_widths=0.5 * (summary.highs - summary.lows),
    num_games=len(results),
  )


def _rate(outcome: Outcome) -> dict[str, Any]:
  """Returns scores and ratings against the opponents."""
  plan, results = outcome
  num_members = plan.seating.num_members
  summary = summarize(
    results,
    plan.seating.teams,
    num_members + len(plan.opponents),
    anchor=num_members,
  )
  scores = summary.win_rates[:num_members, num_members:]
  elo = summary.ratings[:num_members] - summary.ratings[num_members]
  held_out = scores[:, [name in plan.held_out for name in plan.opponents]]
  return {
    **({'held_out_score': float(np.mean(held_out))} if plan.held_out else {}),
    **{
      f'scores/{name}': float(np.mean(scores[:, index]))
      for index, name in enumerate(plan.opponents)
    },
    'member_scores': scores.tolist(),
    'member_games': summary.games[:num_members, num_members:].tolist(),
    **_average_payoffs(outcome),
    'elo': float(np.mean(elo)),
    'member_elo': elo.tolist(),
  }


def _average_payoffs(outcome: Outcome) -> dict[str, Any]:
  """Returns the mean payoffs of members against opponents, and errors."""
  plan, results = outcome
  num_members = plan.seating.num_members
  teams = np.array(plan.seating.teams)
  seats = np.stack([result.seats for result in results])  # [G, P]
  payoffs = make_payoffs(results, plan.seating.teams)
  means = np.full((num_members, len(plan.opponents)), np.nan)
  errors = means.copy()
  for member, opponent in np.ndindex(*means.shape):
    is_member = seats == member
    meets = (seats == num_members + opponent).any(axis=1)
    meets &= is_member.any(axis=1)
    if not meets.any():
      continue
    side = teams[is_member[meets].argmax(axis=1)]
    own = payoffs[meets][np.arange(len(side)), side]
    means[member, opponent] = own.mean()
    errors[member, opponent] = own.std() / np.sqrt(len(own))
  return {
    'member_payoffs': means.tolist(),
    'member_payoff_errors': errors.tolist(),
  }
