"""Strength of a population against fixed opponents, over a run."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.figure
import numpy as np

from ftwax import types
from ftwax.records import files, loggers
from ftwax.reporting import drawing

# Label of the evaluation log.
LABEL = 'evaluation'

_SCORE = 'scores/'


class Evaluations(NamedTuple):
  """Evaluations against `K` opponents, at `n` times.

  Attributes:
    steps: float64 [n], environment steps, ascending.
    seconds: float64 [n], seconds of training until then.
    elo: float64 [n, N], Elo points of each member above the first opponent.
    opponents: [K], names.
    scores: float64 [n, K], mean score of the members; 1 for a win, 0.5 for a
      draw.
  """

  steps: types.Floats
  seconds: types.Floats
  elo: types.Floats
  opponents: tuple[str, ...]
  scores: types.Floats


def read(run_dir: str | os.PathLike[str]) -> Evaluations | None:
  """Reads the evaluation log; None if there is none against opponents.

  Raises:
    ValueError: if it is damaged.
  """
  path = loggers.log_path(run_dir, LABEL)
  if not path.exists():
    return None
  read = loggers.read_jsonl(path)
  with files.reading(path, 'evaluations against opponents'):
    return _from_rows(read)


def _from_rows(read: Sequence[Mapping[str, Any]]) -> Evaluations | None:
  rows: list[Mapping[str, Any]] = []
  for row in read:
    if 'member_elo' not in row:
      continue
    # A resumed run repeats the steps after its checkpoint.
    while rows and rows[-1]['actor_steps'] >= row['actor_steps']:
      rows.pop()
    rows.append(row)
  if not rows:
    return None
  names = [name for name in rows[-1] if name.startswith(_SCORE)]
  made = Evaluations(
    np.array([row['actor_steps'] for row in rows], np.float64),
    np.array([row['seconds'] for row in rows], np.float64),
    np.array([row['member_elo'] for row in rows], np.float64),
    tuple(name.removeprefix(_SCORE) for name in names),
    np.array([[row.get(name) for name in names] for row in rows], np.float64),
  )
  num_rows = len(rows)
  if (
    made.elo.ndim != 2
    or made.seconds.shape != (num_rows,)
    or made.scores.shape != (num_rows, len(names) or 1)
  ):
    raise ValueError('its rows must have Elo, seconds and scores')
  return made


def plot_evaluations(evaluations: Evaluations) -> matplotlib.figure.Figure:
  """Plots the Elo of members, and their score against each opponent."""
  figure = drawing.make_figure(9.0, 3.4)
  elo, score = figure.subplots(1, 2)
  for member, values in enumerate(evaluations.elo.T):
    color = drawing.member_color(member)
    elo.plot(evaluations.steps, values, color=color, linewidth=1.0, alpha=0.8)
  mean = evaluations.elo.mean(axis=1)
  elo.plot(evaluations.steps, mean, color=drawing.INK, linewidth=2.2)
  for name, values in zip(
    evaluations.opponents, evaluations.scores.T, strict=True
  ):
    label = f'against {drawing.readable(name)}'
    score.plot(evaluations.steps, values, linewidth=1.6, label=label)
  score.set_ylim(0.0, 1.0)
  score.legend(fontsize=8, frameon=False)
  first = drawing.readable(evaluations.opponents[0])
  for axes, label in ((elo, f'Elo above {first}'), (score, 'score')):
    drawing.style_games(axes)
    axes.set_xlabel('environment steps', fontsize=9)
    axes.set_ylabel(label, fontsize=9)
  return figure
