"""Evaluations: members play episodes, or games against opponents.

In a task of one seat every member plays alone. In a game of two teams a team of
copies of a member meets a team of copies of each opponent, on either side;
without opponents it meets itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftwax import types
from ftwax.environments import functional, games
from ftwax.population import players, seating, tournament
from ftwax.records import log_values, tournament_files
from ftwax.runtime import experiment as experiment_lib


class GameResult(NamedTuple):
  """A game that has ended.

  Attributes:
    place: of the game among those played side by side.
    seats: int32 [P], the player on each seat: members from zero, opponents
      from N on.
    outcome: float32 [num_teams], 1 for a team that has won, 0 for a draw, -1
      for one that has lost.
    returns: float32 [P, num_events], sums of the rewards of each player.
    length: steps.
  """

  place: int
  seats: types.NumpyArray
  outcome: types.NumpyArray
  returns: types.NumpyArray
  length: int


class Plan(NamedTuple):
  """The games of an evaluation.

  Attributes:
    seating: seats of members and opponents.
    seats: int32 [G, P], the player on each seat.
    games_per_place: games on each place that count; the first ones, since to
      stop at the first to end would favour short episodes.
    opponents: players that do not learn, in the order of their numbers.
  """

  seating: seating.Seating
  seats: types.NumpyArray
  games_per_place: int
  opponents: Mapping[str, players.Player]


class Outcome(NamedTuple):
  """The games that counted in an evaluation.

  Attributes:
    plan: of the evaluation.
    results: of the games.
  """

  plan: Plan
  results: Sequence[GameResult]


def make_plan(
  experiment: experiment_lib.ExperimentConfig,
  spec: games.GameSpec,
  scripts: Mapping[str, functional.Script],
  num_episodes: int,
) -> Plan:
  """Plans the games of an evaluation.

  Args:
    experiment: has the members and opponents.
    spec: of the game.
    scripts: scripted players that the game has.
    num_episodes: episodes of each member, at the least.
  """
  opponents = make_opponents(experiment, spec, scripts)
  num_games, games_per_place = num_episodes, 1
  if spec.num_players == 1:
    num_games = min(num_episodes, experiment.num_environments)
    games_per_place = -(-num_episodes // num_games)
  elif opponents:
    num_games = -(-num_episodes // len(opponents))
  made, seats = seating.make_evaluation_seating(
    spec.teams, experiment.population.num_members, len(opponents), num_games
  )
  return Plan(made, seats, games_per_place, opponents)


def next_step(num_steps: int, eval_every: int) -> int:
  """Returns the step of the first evaluation after `num_steps`.

  It is a multiple of the period, so that a run that was resumed evaluates where
  one that was not would.
  """
  return (num_steps // eval_every + 1) * eval_every


def make_opponents(
  experiment: experiment_lib.ExperimentConfig,
  spec: games.GameSpec,
  scripts: Mapping[str, functional.Script],
) -> dict[str, players.Player]:
  """Returns the opponents of evaluations, the anchor of ratings first.

  A game with scripts has a player that draws actions uniformly as the anchor.
  """
  if spec.num_players == 1:
    return {}
  named: dict[str, players.Player] = {}
  if scripts:
    named['random'] = players.uniform(spec.environment.actions)
  named.update(
    {name: players.scripted(script) for name, script in scripts.items()}
  )
  return {**named, **experiment.opponents}


def check_spec(spec: games.GameSpec, training_spec: games.GameSpec) -> None:
  """Raises a ValueError unless evaluations have the specs of training."""
  if spec != training_spec:
    raise ValueError(
      f'evaluation_environment_factory must make a game with the specs of'
      f' training ({training_spec}), and made one with {spec}; choose one that'
      ' differs in its levels alone.'
    )


def count_results(
  results: Sequence[GameResult], plan: Plan
) -> list[GameResult]:
  """Returns the results that count, the first ones of each place."""
  num_played = np.zeros(len(plan.seats), np.int64)
  counted = []
  for result in results:
    if num_played[result.place] < plan.games_per_place:
      num_played[result.place] += 1
      counted.append(result)
  return counted


def is_complete(results: Sequence[GameResult], plan: Plan) -> bool:
  """Returns whether enough games have ended on each place."""
  num_needed = plan.games_per_place * len(plan.seats)
  return len(count_results(results, plan)) == num_needed


def make_row(outcome: Outcome) -> dict[str, Any]:
  """Returns a row for the log of evaluations.

  `member_returns` [N] are the means of each member. With opponents there are
  `scores/<opponent>`, the members' mean score, 1 for a win and 0.5 for a draw,
  `member_scores` [N, K], and `elo` with `member_elo` [N]: Elo points above the
  first opponent.
  """
  plan, results = outcome
  num_members = plan.seating.num_members
  seats = np.stack([result.seats for result in results])  # [G, P]
  is_member = seats < num_members
  returns = np.stack([result.returns.sum(axis=1) for result in results])
  lengths = np.array([result.length for result in results])
  row: dict[str, Any] = {
    'episode_return': float(np.mean(returns[is_member])),
    'episode_return_std': float(np.std(returns[is_member])),
    'episode_length': float(np.mean(lengths)),
    'num_episodes': int(is_member.sum()),
  }
  if num_members > 1:
    row['member_returns'] = [
      float(np.mean(returns[seats == member])) for member in range(num_members)
    ]
  if plan.opponents:
    row.update(_rate(outcome))
  return row


def describe(row: Mapping[str, Any], num_steps: int) -> str:
  """Returns the numbers of one evaluation as a line for the terminal.

  Args:
    row: of `make_row`.
    num_steps: of training so far.
  """
  names = [name for name in row if name.startswith('scores/') or name == 'elo']
  numbers = {name: row[name] for name in ['episode_return', *names]}
  return (
    f'evaluation after {num_steps:,} steps, {row["num_episodes"]} episodes:'
    f' {log_values.format_values(numbers)}'
  )


def summarize(
  results: Sequence[GameResult],
  teams: Sequence[int],
  num_players: int,
  anchor: int = 0,
) -> tournament.Tournament:
  """Returns win rates and ratings of games between teams of copies.

  Args:
    results: of the games.
    teams: the team of each seat.
    num_players: members and opponents.
    anchor: player whose rating is fixed.
  """
  seats = np.stack([result.seats for result in results])  # [G, P]
  return tournament.summarize(
    seating.as_teams(seats, teams),
    np.array([0.5 * (1.0 + result.outcome[0]) for result in results]),
    num_players,
    anchor,
  )


def summarize_for_report(
  results: Sequence[GameResult],
  teams: Sequence[int],
  names: Sequence[str],
  num_members: int,
) -> tournament_files.Results:
  """Returns what `summarize` tells, ratings above the first opponent's.

  Args:
    results: of the games.
    teams: the team of each seat.
    names: of members and opponents.
    num_members: of the population.
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
  """Returns scores and ratings against opponents."""
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
  return {
    **{
      f'scores/{name}': float(np.mean(scores[:, index]))
      for index, name in enumerate(plan.opponents)
    },
    'member_scores': scores.tolist(),
    'elo': float(np.mean(elo)),
    'member_elo': elo.tolist(),
  }
