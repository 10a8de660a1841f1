"""The report of a population: one HTML page that needs nothing else.

Results stand in tables at the top, pictures below, each with a line that tells
how to read it. Pictures are inside the page, and there are no scripts.
"""

import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftwax.records import files
from ftwax.reporting import (
  curves,
  event_rates,
  lineage_tree,
  page,
  payoff_table,
  population_curves,
)
from ftwax.reporting import history as history_lib

REPORT_FILE = 'report.html'

# Where a run leaves the GIFs of its games; the last ones are shown.
VIDEOS_DIRECTORY = 'videos'
_MAX_VIDEOS = 2


class ReportOptions(NamedTuple):
  """What a report tells beside the logs of a run.

  Attributes:
    title: of the page.
    results: values by name, at the top of the first table.
    event_names: [num_events]; by default numbers.
    log_scaled: names of hyperparameters whose prior is log-uniform; see
      `population_curves.log_uniform_names`.
    anchors: ratings of other players by name.
    player_names: [P], those of a tournament.
    win_rates: [P, P], of a tournament.
    half_widths: [P, P], of the confidence intervals of `win_rates`.
  """

  title: str = 'Population'
  results: Mapping[str, Any] = {}
  event_names: Sequence[str] | None = None
  log_scaled: Collection[str] = ()
  anchors: Mapping[str, float] = {}
  player_names: Sequence[str] | None = None
  win_rates: np.ndarray | None = None
  half_widths: np.ndarray | None = None


def make_report(
  run_dir: str | os.PathLike, options: ReportOptions | None = None
) -> pathlib.Path:
  """Writes the report of a run, finished or not.

  It reads the log with label `population`, and where they are `lineage.jsonl`,
  `curves.png` and the GIFs in `videos`.

  Args:
    run_dir: directory of the run.
    options: what the report tells beside these.

  Returns:
    The path of the page, `report.html` in `run_dir`.

  Raises:
    FileNotFoundError: if the run has no log of a population.
    ValueError: if that has no row, or names do not fit the events.
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
    *_evolution(history, lineage, options),
    *_curves(run_dir),
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
  return options.event_names


def _results(
  history: history_lib.History,
  lineage: Sequence[Mapping[str, Any]],
  options: ReportOptions,
) -> dict[str, Any]:
  """Returns the first table, values by name."""
  results = dict(options.results)
  num_members = history.ratings.shape[1]
  results['members'] = num_members
  results['games per member'] = f'{history.games[-1]:,.0f}'
  if _has_games(history):
    first, last = history.ratings[0], history.ratings[-1]
    best = int(last.argmax())
    results['mean rating'] = f'{last.mean():.0f} (at first {first.mean():.0f})'
    results['best member'] = f'member {best}, rated {last[best]:.0f}'
  if _has_returns(history):
    returns = history.mean_returns[-1]
    results['mean return'] = f'{np.nanmean(returns):.4g}'
    results['best return'] = f'{np.nanmax(returns):.4g}'
  if lineage:
    num_copies = sum('donor' in row for row in lineage)
    lines = set(lineage_tree.founders(lineage, num_members))
    results['copies'] = f'{num_copies:,}'
    results['lines that live on'] = f'{len(lines)} of {num_members}'
  return results


def _members(
  history: history_lib.History,
) -> tuple[list[str], list[list[str]]]:
  """Returns head and rows of a table of members, the strongest first."""
  has_games, has_returns = _has_games(history), _has_returns(history)
  columns: dict[str, np.ndarray] = {}
  if has_games:
    columns['rating'] = history.ratings[-1]
  if has_returns:
    columns['mean return'] = history.mean_returns[-1]
  for name, values in history.hyperparameters.items():
    # Constants would only fill the page.
    if np.isfinite(values).all() and np.ptp(values) > 0.0:
      columns[name.replace('_', ' ')] = values[-1]
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
  return [
    page.heading('Games'),
    *(page.gif(gif.read_bytes(), gif.stem.replace('_', ' ')) for gif in gifs),
  ]


def _games(history: history_lib.History, options: ReportOptions) -> list[str]:
  """Returns the sections on strength: ratings, returns, who beats whom."""
  body = []
  if _has_games(history):
    body += page.section(
      'Ratings',
      'Elo rating of each member as games came in, and the mean of all. Only'
      ' differences count: 100 points more win 64% of games one against one.'
      ' Members exchange points among themselves, so the mean moves only where'
      ' one copied another.',
      population_curves.plot_ratings(history, options.anchors),
    )
  if _has_returns(history):
    body += page.section(
      'Returns',
      "Mean return of each member's last episodes.",
      population_curves.plot_returns(history),
    )
  if options.win_rates is not None:
    body += page.section(
      'Tournament',
      'Every player met every other one. Beneath each win rate stands the half'
      ' width of its 95% confidence interval, in percent points.',
      payoff_table.plot_payoff(
        options.win_rates, options.player_names, None, options.half_widths
      ),
    )
  if history.payoff_games.any():
    games = history.payoff_games
    rates = np.where(
      games > 0, history.payoff_scores / np.maximum(games, 1), np.nan
    )
    body += page.section(
      'Who beats whom',
      'Win rates in training, since a member last copied another; beneath'
      ' stands how often the two met. Gray: not yet.',
      payoff_table.plot_payoff(rates, games=games),
    )
  return body


def _evolution(
  history: history_lib.History,
  lineage: Sequence[Mapping[str, Any]],
  options: ReportOptions,
) -> list[str]:
  """Returns the sections on what changed, from whom."""
  spread = (
    'The line is the mean of members, the dark band one standard deviation,'
    ' the light band the lowest and highest.'
  )
  names = options.event_names or ()
  body = []
  if any('donor' in row for row in lineage):
    figure = lineage_tree.plot_lineage(
      lineage, history.ratings.shape[1], history.games[-1]
    )
    body += page.section(
      'Descent',
      'A lane for each member. At a dot it copied the member where the thin'
      " line comes from; the colour tells the founder of a lane's line.",
      figure,
    )
  pictures = {
    'Hyperparameters': population_curves.plot_hyperparameters(
      history, options.log_scaled
    ),
    'Internal rewards': population_curves.plot_internal_rewards(history, names),
    'Events in a game': event_rates.plot_event_rates(history, names),
  }
  for title, picture in pictures.items():
    if picture is not None:
      body += page.section(title, spread, picture)
  return body


def _curves(run_dir: pathlib.Path) -> list[str]:
  path = run_dir / curves.CURVES_FILE
  if not path.exists():
    return []
  return [
    page.heading('Learning curve'),
    page.png(path.read_bytes(), 'Returns of episodes over steps.'),
  ]
