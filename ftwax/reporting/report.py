"""The report of a population: one HTML page without scripts or other files.

Tables of results stand at the top, then figures, each with a line on how to
read it.
"""

import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftwax.records import files
from ftwax.reporting import (
  curves,
  drawing,
  evaluation_curves,
  event_rates,
  lineage_tree,
  page,
  payoff_table,
  population_curves,
  run_facts,
)
from ftwax.reporting import history as history_lib

REPORT_FILE = 'report.html'

# Holds the GIFs of a run, of which the last ones are shown.
VIDEOS_DIRECTORY = 'videos'
_MAX_VIDEOS = 2


class ReportOptions(NamedTuple):
  """Additions to what a report reads from the directory of a run.

  Attributes:
    title: of the page.
    results: values by name, at the top of the first table.
    event_names: [num_events]; by default numbers.
    log_scaled: names of hyperparameters with a log-uniform prior; see
      `population_curves.log_uniform_names`.
    anchors: ratings of other players by name.
    member_ratings: [N], ratings of the members on the scale of `anchors`, e.g.
      in a tournament. None if that is the scale of the ratings in training.
    player_names: [P], the players of a tournament.
    win_rates: [P, P], of a tournament.
    half_widths: [P, P], of the confidence intervals of `win_rates`.
  """

  title: str = 'Population'
  results: Mapping[str, Any] = {}
  event_names: Sequence[str] | None = None
  log_scaled: Collection[str] = ()
  anchors: Mapping[str, float] = {}
  member_ratings: drawing.Floats | None = None
  player_names: Sequence[str] | None = None
  win_rates: drawing.Floats | None = None
  half_widths: drawing.Floats | None = None


def make_report(
  run_dir: str | os.PathLike[str], options: ReportOptions | None = None
) -> pathlib.Path:
  """Writes the report of a run, finished or not.

  Reads the log with label `population` and, if they exist, that of evaluations,
  `lineage.jsonl`, `curves.png`, the GIFs in `videos` and the facts of the run.

  Args:
    run_dir: directory of the run.
    options: additions to these.

  Returns:
    The path of the page, `report.html` in `run_dir`.

  Raises:
    FileNotFoundError: if the run has no log of a population.
    ValueError: if that log has no row, or there is not one name an event.
  """
  run_dir = pathlib.Path(run_dir)
  options = ReportOptions() if options is None else options
  history = history_lib.read(run_dir)
  lineage = history_lib.read_lineage(run_dir)
  options = options._replace(event_names=_event_names(history, options))
  path = run_dir / REPORT_FILE
  body = [
    page.table(_results(history, lineage, options)),
    page.heading('Members'),
    page.columns(*_members(history)),
    *_videos(run_dir),
    *_games(history, options),
    *_evaluations(run_dir),
    *_evolution(history, lineage, options),
    *_curves(run_dir),
    page.heading('Run'),
    page.table(run_facts.read(run_dir, history)),
  ]
  files.write_atomically(path, page.render(options.title, body))
  return path


def _event_names(
  history: history_lib.History, options: ReportOptions
) -> Sequence[str]:
  num_events = history.internal_rewards.shape[-1]
  if options.event_names is None:
    return [f'event {i}' for i in range(num_events)]
  if len(options.event_names) != num_events:
    raise ValueError(
      f'event_names ({len(options.event_names)} names) must be one for each of'
      f' the {num_events} events; give those of the environment.'
    )
  return [drawing.readable(name) for name in options.event_names]


def _results(
  history: history_lib.History,
  lineage: Sequence[Mapping[str, Any]],
  options: ReportOptions,
) -> dict[str, Any]:
  """Returns the values of the first table by name."""
  results = dict(options.results)
  num_members = history.ratings.shape[1]
  results['members'] = num_members
  results['games per member'] = f'{history.games[-1]:,.0f}'
  if _has_games(history):
    first, last = history.ratings[0], history.ratings[-1]
    best = int(last.argmax())
    results['mean rating in training'] = (
      f'{last.mean():.0f} (at first {first.mean():.0f})'
    )
    results['best member'] = f'member {best}, rated {last[best]:.0f}'
  if _has_returns(history):
    returns = history.mean_returns[-1]
    results['mean return'] = f'{np.nanmean(returns):.4g}'
    results['best return'] = f'{np.nanmax(returns):.4g}'
  if lineage:
    num_copies = sum('parent' in row for row in lineage)
    lines = set(lineage_tree.founders(lineage, num_members))
    results['copies'] = f'{num_copies:,}'
    results['surviving founders'] = f'{len(lines)} of {num_members}'
  return results


def _members(
  history: history_lib.History,
) -> tuple[list[str], list[list[str]]]:
  """Returns head and rows of the table of members, the strongest first."""
  has_games, has_returns = _has_games(history), _has_returns(history)
  columns: dict[str, drawing.Floats] = {}
  if has_games:
    columns['rating'] = history.ratings[-1]
  if has_returns:
    columns['mean return'] = history.mean_returns[-1]
  for name, values in history.hyperparameters.items():
    # Constants are in the configuration.
    if np.isfinite(values).all() and np.ptp(values) > 0.0:
      columns[drawing.readable(name)] = values[-1]
  strength = (history.ratings if has_games else history.mean_returns)[-1]
  head = ['member', *columns]
  rows = [
    [
      str(member),
      *(
        page.number(values[member], 0 if name == 'rating' else None)
        for name, values in columns.items()
      ),
    ]
    for member in np.argsort(-strength)
  ]
  return head, rows


def _has_games(history: history_lib.History) -> bool:
  return bool(history.payoff_games.any() or np.ptp(history.ratings) > 0.0)


def _has_returns(history: history_lib.History) -> bool:
  return bool(np.isfinite(history.mean_returns[-1]).any())


def _videos(run_dir: pathlib.Path) -> list[str]:
  gifs = sorted((run_dir / VIDEOS_DIRECTORY).glob('*.gif'))[-_MAX_VIDEOS:]
  if not gifs:
    return []
  names = [drawing.readable(gif.stem) for gif in gifs]
  return [
    page.heading('Games'),
    *(
      page.gif(gif.read_bytes(), name, f'Film of a game of members: {name}.')
      for gif, name in zip(gifs, names, strict=True)
    ),
  ]


def _games(history: history_lib.History, options: ReportOptions) -> list[str]:
  """Returns the sections on ratings, returns and win rates."""
  body = []
  if _has_games(history):
    body += _ratings(history, options)
  if _has_returns(history):
    first, last = history.mean_returns[0], history.mean_returns[-1]
    body += page.section(
      'Returns',
      "Mean return of each member's last episodes.",
      population_curves.plot_returns(history),
      f'Line chart of the return of {last.size} members over games: at first'
      f' {_mean(first)} in the mean, {_mean(last)} at the end.',
    )
  if options.win_rates is not None:
    body += page.section(
      'Tournament',
      'Every player met every other one. The second number of a cell is half'
      ' the width of the 95% confidence interval of its win rate, in percent.',
      payoff_table.plot_payoff(
        options.win_rates, options.player_names, None, options.half_widths
      ),
      f'Heat map of the win rates between {len(options.win_rates)} players.',
    )
  if history.payoff_games.any():
    games = history.payoff_games
    rates = np.where(
      games > 0, history.payoff_scores / np.maximum(games, 1), np.nan
    )
    body += page.section(
      'Win rates in training',
      'Counted since a member last copied another one. The second number of a'
      ' cell is the number of games. Gray: no game yet.',
      payoff_table.plot_payoff(rates, games=games),
      f'Heat map of the win rates between {len(games)} members, from'
      f' {100 * np.nanmin(rates):.0f}% to {100 * np.nanmax(rates):.0f}%.',
    )
  return body


def _ratings(history: history_lib.History, options: ReportOptions) -> list[str]:
  first, last = history.ratings[0], history.ratings[-1]
  caption = (
    'Elo rating of each member in the games of training, and the mean. Only'
    ' differences count: a player rated 100 points more wins 64% of games.'
  )
  anchors = dict(options.anchors)
  if anchors and options.member_ratings is not None:
    # Scales of Elo differ by a constant, here that of the members' mean.
    shift = last.mean() - np.mean(options.member_ratings)
    anchors = {name: rating + shift for name, rating in anchors.items()}
    caption += (
      ' Dashed lines are players rated after training, at their distance to the'
      " members' mean at the end."
    )
  return page.section(
    'Ratings',
    caption,
    population_curves.plot_ratings(history, anchors),
    f'Line chart of the Elo of {last.size} members over games: at first'
    f' {first.mean():.0f} in the mean; at the end from {last.min():.0f} to'
    f' {last.max():.0f}, {last.mean():.0f} in the mean.',
  )


def _mean(values: drawing.Floats) -> str:
  """Returns the mean of what is known as text."""
  known = values[np.isfinite(values)]
  return f'{known.mean():.4g}' if known.size else 'unknown'


def _evaluations(run_dir: pathlib.Path) -> list[str]:
  evaluations = evaluation_curves.read(run_dir)
  if evaluations is None:
    return []
  scores = ', '.join(
    f'{100 * score:.0f}% against {drawing.readable(name)}'
    for name, score in zip(
      evaluations.opponents, evaluations.scores[-1], strict=True
    )
  )
  return page.section(
    'Evaluation',
    'Games against fixed opponents, from which nobody learns. Left, the Elo of'
    ' each member and the mean; right, the mean score of members: 1 for a win,'
    ' 0.5 for a draw.',
    evaluation_curves.plot_evaluations(evaluations),
    f'Line charts of Elo and scores over steps. At the end the mean Elo is'
    f' {evaluations.elo[-1].mean():.0f} above the first opponent, and scores'
    f' are {scores}.',
  )


def _evolution(
  history: history_lib.History,
  lineage: Sequence[Mapping[str, Any]],
  options: ReportOptions,
) -> list[str]:
  """Returns the sections on copies and on what evolution changes."""
  names = options.event_names or ()
  num_members = history.ratings.shape[1]
  body = []
  num_copies = sum('parent' in row for row in lineage)
  if num_copies:
    body += page.section(
      'Descent',
      'A lane for each member. At a dot it copied the parent at the other end'
      ' of the thin line. Colours are those of the founders.',
      lineage_tree.plot_lineage(lineage, num_members, history.games[-1]),
      f'Tree of the {num_copies} copies among {num_members} members.',
    )
  figures = {
    'Hyperparameters': population_curves.plot_hyperparameters(
      history, options.log_scaled
    ),
    'Internal rewards': population_curves.plot_internal_rewards(history, names),
    'Events in a game': event_rates.plot_event_rates(history, names),
  }
  for title, figure in figures.items():
    if figure is not None:
      panels = [axes.get_title(loc='left') for axes in figure.axes]
      body += page.section(
        title,
        'The line is the mean of members, the dark band one standard deviation,'
        ' the light band the range.',
        figure,
        'Line charts over games of ' + ', '.join(filter(None, panels)) + '.',
      )
  return body


def _curves(run_dir: pathlib.Path) -> list[str]:
  path = run_dir / curves.CURVES_FILE
  if not path.exists():
    return []
  caption = 'Returns of episodes over steps of the environment.'
  alt = 'Learning curve: the return of episodes and its moving mean.'
  return [
    page.heading('Learning curve'),
    page.png(path.read_bytes(), caption, alt),
  ]
