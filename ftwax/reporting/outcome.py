"""What a run has reached: the numbers and words that all pages share.

Watch, the report, the comparison and the terminal take them from here, so that
a score of a run is the same everywhere, and says where it comes from: the
tournament or, without one, the last evaluation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ftwax.records import log_values, tournament_files
from ftwax.reporting import curves, evaluation_curves, run_facts, words

if TYPE_CHECKING:
  from ftwax import types

TOURNAMENT, EVALUATION = 'tournament', 'last evaluation'


class Strength(NamedTuple):
  """The strength of `N` members against fixed opponents.

  Attributes:
    source: `TOURNAMENT`, or else `EVALUATION`.
    anchor: opponent above which Elo points are given.
    elo: float64 [N].
    elo_errors: float64 [N], half widths of their 95% confidence intervals.
    scores: mean score of the members against each opponent; a draw is half a
      win.
    held_out: opponents that training never meets, of the last evaluation.
    held_out_scores: float64 [3, N], score of each member against these, and
      the ends of its 95% confidence interval; NaN without any.
    best: the best member: by the score against opponents that training never
      meets, else by Elo.
  """

  source: str
  anchor: str
  elo: types.Floats
  elo_errors: types.Floats
  scores: Mapping[str, float]
  held_out: tuple[str, ...]
  held_out_scores: types.Floats
  best: int


def find_strength(
  tournament: tournament_files.Results | None,
  evaluations: evaluation_curves.Evaluations | None,
) -> Strength | None:
  """Returns the strength of members; None if they met no opponents."""
  if tournament is not None:
    elo = tournament.ratings[: tournament.num_members]
    errors = tournament.highs[: len(elo)] - elo
    source, anchor = TOURNAMENT, tournament.players[tournament.anchor]
    scores = tournament_files.member_scores(tournament)
  elif evaluations is not None:
    elo, errors = evaluations.elo[-1], evaluations.elo_errors[-1]
    source, anchor = EVALUATION, evaluations.opponents[0]
    scores = dict(
      zip(evaluations.opponents, evaluations.scores[-1].tolist(), strict=True)
    )
  else:
    return None
  held_out = evaluations.held_out if evaluations is not None else ()
  held_out_scores: Any = np.full((3, len(elo)), np.nan)
  best = int(elo.argmax())
  if evaluations is not None and held_out:
    held_out_scores = evaluations.held_out_scores[:, -1]
    best = int(held_out_scores[0].argmax())
  return Strength(
    source, anchor, elo, errors, scores, held_out, held_out_scores, best
  )


def describe_strength(strength: Strength) -> list[str]:
  """Returns sentences on the best member, and the mean score of all."""
  sentences = []
  is_one, best = len(strength.elo) == 1, strength.best
  if strength.held_out:
    means, lows, highs = strength.held_out_scores
    mean = f'members score {means.mean():.2f} on average, and the best, member'
    whose = 'it scores' if is_one else f'{mean} {best},'
    sentences.append(
      f'Against {evaluation_curves.list_names(strength.held_out)}, never met in'
      f' training, {whose} {means[best]:.2f} ({lows[best]:.2f} to'
      f' {highs[best]:.2f}, {EVALUATION}).'
    )
  who = 'it has' if is_one else f'the best, member {best}, has'
  scores = ', '.join(
    f'{score:.2f} against {words.readable(name)}'
    for name, score in strength.scores.items()
  )
  whose = 'It scores' if is_one else 'Members score'
  return [
    *sentences,
    f'In the {strength.source}, {who} {strength.elo[best]:.0f} ±'
    f' {strength.elo_errors[best]:.0f} Elo above'
    f' {words.readable(strength.anchor)}. {whose} {scores} there, where a'
    ' draw is half a win.',
  ]


def describe_return(
  mean_return: float, num_recent: int, num_episodes: int, name: str = ''
) -> str:
  """Returns the mean return of the last episodes, with its name.

  Args:
    mean_return: mean over the last episodes; see `recent_episodes`.
    num_recent: number of these.
    num_episodes: number of all episodes.
    name: what the game calls its return, if it does.
  """
  named = f' ({words.readable(name)})' if name else ''
  return (
    f'mean return{named} {log_values.format_value(mean_return)} (last'
    f' {num_recent:,} of {num_episodes:,} episodes)'
  )


def describe_episodes(run_dir: str | os.PathLike[str]) -> str:
  """Returns `describe_return` of the episodes in a run's log; '' if none ended.

  Raises:
    ValueError: if the log is damaged.
  """
  episodes = curves.read_returns(run_dir, 'train')
  if not len(episodes.steps):
    return ''
  return describe_return(
    curves.last_mean(episodes),
    curves.num_recent(episodes),
    int(episodes.num_episodes.sum()),
    run_facts.read_headline(run_dir),
  )


def read(run_dir: str | os.PathLike[str]) -> list[str]:
  """Returns what a run has reached, in sentences; empty without an episode.

  Raises:
    ValueError: if a record is damaged.
  """
  text = describe_episodes(run_dir)
  sentences = [f'{text[:1].upper()}{text[1:]}.'] if text else []
  strength = find_strength(
    tournament_files.read(run_dir), evaluation_curves.read(run_dir)
  )
  if strength is not None:
    sentences += describe_strength(strength)
  return sentences
