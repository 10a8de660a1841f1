"""Strength of a population against fixed opponents, over a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ftwax.population import win_rates
from ftwax.records import files, loggers, run_directory
from ftwax.reporting import population_figures, words

if TYPE_CHECKING:
  from ftwax import types

# Label of the evaluation log.
LABEL = 'evaluation'

_SCORE = 'scores/'

# Of a 95% confidence interval.
_DEVIATIONS = 1.96


class Evaluations(NamedTuple):
  """Evaluations of `N` members against `K` opponents, at `n` times.

  Elo points are those of one fit to the games of all evaluations, in which
  opponents stay the same. They are above the first opponent.

  Attributes:
    steps: float64 [n], environment steps, ascending.
    elo: float64 [n, N], Elo points of each member.
    elo_errors: float64 [n, N], half widths of their 95% confidence intervals.
    opponents: [K], names.
    opponent_elo: float64 [K], Elo points of each opponent.
    scores: float64 [n, K], mean score of the members; 1 for a win, 0.5 for a
      draw.
    held_out: names of the opponents that training never meets.
    held_out_scores: float64 [3, n, N], score of each member against these, and
      the ends of its 95% confidence interval; NaN without any.
  """

  steps: types.Floats
  elo: types.Floats
  elo_errors: types.Floats
  opponents: tuple[str, ...]
  opponent_elo: types.Floats
  scores: types.Floats
  held_out: tuple[str, ...]
  held_out_scores: types.Floats


def read(run_dir: str | os.PathLike[str]) -> Evaluations | None:
  """Reads the evaluation log; None if there is none against opponents.

  Raises:
    ValueError: if it is damaged.
  """
  path = loggers.log_path(run_dir, LABEL)
  if not path.exists():
    return None
  read = loggers.read_jsonl(path)
  teams = files.read_or_warn(run_directory.read_game, run_dir, 'teams') or [0]
  with files.reading(path, 'evaluations against opponents'):
    config = path.parents[1] / run_directory.CONFIG_FILE
    recorded = files.read_or_warn(files.read_object, config) or {}
    held_out = recorded.get('held_out', ())
    return _from_rows(read, min(map(teams.count, set(teams))), tuple(held_out))


def _from_rows(
  read: Sequence[Mapping[str, Any]], team_size: int, held_out: tuple[str, ...]
) -> Evaluations | None:
  rows = loggers.drop_replaced(
    (row for row in read if 'member_games' in row),
    lambda row: float(row['actor_steps']),
  )
  if not rows:
    return None
  steps, scores, games = (
    np.array([row[name] for row in rows], np.float64)
    for name in ('actor_steps', 'member_scores', 'member_games')
  )
  names = [
    name.removeprefix(_SCORE) for name in rows[-1] if name.startswith(_SCORE)
  ]
  ends = scores.shape[::2]
  if scores.shape != games.shape or ends != (len(rows), len(names)):
    raise ValueError('its rows must have scores and games of each member')
  members, opponents = win_rates.fit_to_opponents(
    scores.reshape(-1, len(names)), games.reshape(-1, len(names)), team_size
  )
  errors = _DEVIATIONS * np.asarray(members.standard_errors)
  held_out = tuple(name for name in names if name in held_out)
  met = np.where([name in held_out for name in names], games, 0.0)
  wins = (np.nan_to_num(scores) * met).sum(axis=2)  # [n, N]
  met = met.sum(axis=2)
  shares = wins / np.where(met > 0, met, np.nan)
  return Evaluations(
    steps,
    np.asarray(members.ratings).reshape(scores.shape[:2]),
    errors.reshape(scores.shape[:2]),
    tuple(names),
    np.asarray(opponents.ratings),
    np.nanmean(scores, axis=1),
    held_out,
    np.stack([shares, *win_rates.wilson_interval(wins, met, _DEVIATIONS)]),
  )


def held_out_figure(evaluations: Evaluations) -> dict[str, Any]:
  """Returns the score of members against opponents that they never train on."""
  mean = evaluations.held_out_scores[0, -1].mean()
  return {
    'kind': 'lines',
    'title': f'Score against {list_names(evaluations.held_out)}, evaluations',
    'x': 'steps',
    'range': [0, 1],
    'lines': _member_lines(evaluations.steps, *evaluations.held_out_scores),
    'alt': 'Line chart of scores against held-out opponents over steps. At the'
    f' end the mean of members is {mean:.2f}.',
  }


def _member_lines(
  steps: types.Floats, means: types.Floats, lows: Any, highs: Any
) -> list[dict[str, Any]]:
  """Returns a line for each member with its band, of arrays [n, N]."""
  return [
    population_figures.line(
      steps, mean, (low, high), name=f'member {member}', color=member
    )
    for member, (mean, low, high) in enumerate(
      zip(means.T, lows.T, highs.T, strict=True)
    )
  ]


def list_names(names: Sequence[str]) -> str:
  """Returns names of players as words; of a path, those of its last part."""
  return ' and '.join(words.readable(name.rpartition('/')[2]) for name in names)


def figures(evaluations: Evaluations) -> list[dict[str, Any]]:
  """Returns the Elo of members, and their score against each opponent."""
  opponents = [words.readable(name) for name in evaluations.opponents]
  elo, errors, steps = (
    evaluations.elo, evaluations.elo_errors, evaluations.steps
  )  # fmt: skip
  last = dict(zip(opponents, evaluations.scores[-1], strict=True))
  return [
    {
      'kind': 'lines',
      'title': f'Elo above {opponents[0]}, evaluations',
      'x': 'steps',
      'lines': _member_lines(steps, elo, elo - errors, elo + errors),
      'marks': [
        {'name': name, 'y': float(rating)}
        for name, rating in zip(
          opponents, evaluations.opponent_elo, strict=True
        )
      ],
      'alt': f'Line chart of Elo over steps. At the end the mean is'
      f' {elo[-1].mean():.0f} above {opponents[0]}.',
    },
    {
      'kind': 'lines',
      'title': 'Mean score of members, evaluations',
      'x': 'steps',
      'range': [0, 1],
      'lines': [
        population_figures.line(steps, column, name=name, color=index)
        for index, (name, column) in enumerate(
          zip(opponents, evaluations.scores.T, strict=True)
        )
      ],
      'alt': 'Line chart of scores over steps. Mean scores of members are '
      + ', '.join(f'{score:.2f} against {name}' for name, score in last.items())
      + '.',
    },
  ]
