"""The report of a population: a self-contained HTML page.

It begins with tables of results, followed by games, which can be played back in
the page, and by figures with an explanation each.
"""

import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ftwax import types
from ftwax.records import files, loggers, tournament_files
from ftwax.reporting import (
  curves,
  drawing,
  evaluation_curves,
  page,
  population_figures,
  run_facts,
  saved_games,
)
from ftwax.reporting import history as history_lib

REPORT_FILE = 'report.html'

# Directory of the GIFs of a run, of which the last ones are shown.
VIDEOS_DIRECTORY = 'videos'
_MAX_VIDEOS = 2

# The last saved games are embedded in the page, about 30 kB each.
_MAX_GAMES = 8


def make_report(
  run_dir: str | os.PathLike[str], title: str | None = None
) -> pathlib.Path:
  """Writes the report of a run, finished or not.

  It reads the log with label `population` and, if they exist, the specs of the
  game, the configuration, the evaluation log, the results of a tournament (see
  `tournament_files`), `lineage.jsonl`, `curves.png`, the games in `games` and
  the GIFs in `videos`.

  Args:
    run_dir: directory of the run.
    title: title of the page; by default the name of the experiment.

  Files that are damaged are left out, with a warning.

  Returns:
    The path of the page, `report.html` in `run_dir`.

  Raises:
    FileNotFoundError: if the run has no log of a population.
    ValueError: if that log has no rows, or is damaged.
  """
  run_dir = pathlib.Path(run_dir)
  history = history_lib.read(run_dir)
  lineage = (
    files.read_or_warn(
      history_lib.read_lineage, run_dir, history.ratings.shape[1]
    )
    or []
  )
  names = run_facts.read_event_names(run_dir, history)
  tournament = files.read_or_warn(tournament_files.read, run_dir)
  title = title or run_facts.read_title(run_dir)
  path = run_dir / REPORT_FILE
  body = [
    page.table(_results(history, lineage, tournament)),
    page.heading('Members'),
    page.columns(*_members(history)),
    *_matches(run_dir),
    *_tournament(tournament),
    *_evaluations(run_dir),
    *_cross_play(run_dir),
    *_games(history),
    *_play_styles(history, names),
    *_evolution(history, lineage, names, run_facts.read_log_scaled(run_dir)),
    *_curves(run_dir),
    page.heading('Run'),
    page.table(run_facts.read(run_dir, history)),
  ]
  files.write_atomically(path, page.render(title, body))
  return path


def _results(
  history: history_lib.History,
  lineage: Sequence[Mapping[str, Any]],
  tournament: tournament_files.Results | None,
) -> dict[str, Any]:
  """Returns the values of the first table, by name."""
  results: dict[str, Any] = {}
  if tournament is not None:
    anchor = drawing.readable(tournament.players[tournament.anchor])
    rating = tournament.ratings[: tournament.num_members].mean()
    results[f'mean Elo above {anchor}, in the tournament'] = f'{rating:.0f}'
    for name, score in tournament_files.member_scores(tournament).items():
      label = f'mean score against {drawing.readable(name)}'
      results[label] = f'{score:.2f}'
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
    num_copies, num_redrawn = _count_changes(lineage)
    lines = set(population_figures.founders(lineage, num_members))
    results['copies'] = f'{num_copies:,}'
    if num_redrawn:
      results['new draws of traits, as nobody won'] = f'{num_redrawn:,}'
    results['surviving founders'] = f'{len(lines)} of {num_members}'
  return results


def _members(
  history: history_lib.History,
) -> tuple[list[str], list[list[str]]]:
  """Returns header and rows of the table of members, the strongest first."""
  has_games, has_returns = _has_games(history), _has_returns(history)
  columns: dict[str, types.Floats] = {}
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


def _matches(run_dir: pathlib.Path) -> list[str]:
  """Returns games to play back in the page, and films of games."""
  saved = saved_games.SavedGames(run_dir / saved_games.GAMES_DIRECTORY)
  played = [game for _, game in reversed(saved.readable()[:_MAX_GAMES])]
  films = filter(
    pathlib.Path.is_file, (run_dir / VIDEOS_DIRECTORY).glob('*.gif')
  )
  gifs = sorted(films)[-_MAX_VIDEOS:]
  if not played and not gifs:
    return []
  names = [drawing.readable(gif.stem) for gif in gifs]
  return [
    page.heading('Games'),
    *([saved_games.make_player(played)] if played else []),
    *(
      page.gif(
        gif.read_bytes(),
        name,
        'Film of a game between members, with players and score at the top:'
        f' {name}.',
      )
      for gif, name in zip(gifs, names, strict=True)
    ),
  ]


def _tournament(results: tournament_files.Results | None) -> list[str]:
  if results is None:
    return []
  anchor = drawing.readable(results.players[results.anchor])
  best = int(results.ratings.argmax())
  return [
    *page.section(
      'Tournament',
      'After training, every player played against every other,'
      f' {results.num_games:,} games in all. Lines are 95% confidence'
      ' intervals. A player rated 100 points higher wins 64% of games.',
      population_figures.plot_tournament(results),
      f'Elo above {anchor} of {len(results.players)} players, from'
      f' {results.ratings.min():.0f} to {results.ratings.max():.0f}; the best'
      f' is {drawing.readable(results.players[best])}.',
    ),
    page.paragraph(
      'Elo assumes that strength is transitive. The Nash equilibrium of the'
      ' win rates does not: it mixes the players that no mixture beats, and a'
      ' player is as good as its score against that mixture. Alpha-rank is how'
      ' long a population that evolves stays with each player.'
    ),
    page.columns(*population_figures.tabulate_tournament(results)),
    page.paragraph(
      'The second number in a cell is half the width of the 95% confidence'
      ' interval of its win rate, in percent.'
    ),
    page.plot(
      population_figures.plot_payoff(
        results.win_rates, results.players, None, results.half_widths
      ),
      f'Heat map of the win rates between {len(results.players)} players. '
      + _describe_scores(tournament_files.member_scores(results)),
    ),
  ]


def _describe_scores(scores: Mapping[str, float]) -> str:
  return 'Mean scores of members are ' + ', '.join(
    f'{100 * score:.0f}% against {drawing.readable(name)}'
    for name, score in scores.items()
  ) + '.'  # fmt: skip


def _games(history: history_lib.History) -> list[str]:
  """Returns the sections on ratings, returns and win rates in training."""
  body = []
  if _has_games(history):
    first, last = history.ratings[0], history.ratings[-1]
    body += page.section(
      'Ratings in training',
      'Elo rating of each member in training games, and the mean. It only'
      ' compares members with each other at the same time and does not measure'
      ' strength over time: a copy takes the rating of its parent, and the mean'
      ' drifts.',
      population_figures.plot_ratings(history),
      f'Line chart of the Elo of {last.size} members over games: at first'
      f' {first.mean():.0f} on average; at the end from {last.min():.0f} to'
      f' {last.max():.0f}, {last.mean():.0f} on average.',
    )
  if _has_returns(history):
    first, last = history.mean_returns[0], history.mean_returns[-1]
    body += page.section(
      'Returns',
      "Mean return of each member's last episodes.",
      population_figures.plot_returns(history),
      f'Line chart of the return of {last.size} members over games: at first'
      f' {_mean(first)} on average, {_mean(last)} at the end.',
    )
  if history.payoff_games.any():
    games = history.payoff_games
    rates = np.where(
      games > 0, history.payoff_scores / np.maximum(games, 1), np.nan
    )
    body += page.section(
      'Win rates in training',
      'Counted since a member last copied another one. The second number in a'
      ' cell is the number of games. Gray: no games yet.',
      population_figures.plot_payoff(rates, games=games),
      f'Heat map of the win rates between {len(games)} members, from'
      f' {100 * np.nanmin(rates):.0f}% to {100 * np.nanmax(rates):.0f}%.',
    )
  return body


def _play_styles(
  history: history_lib.History, names: Sequence[str]
) -> list[str]:
  rates = population_figures.mean_rates(history)
  if rates is None or rates.shape[0] < 2:
    return []
  sentence = population_figures.describe(rates, names)
  return page.section(
    'Diversity',
    'Events per game of each member, at the end of training. Orange is above'
    f' the mean of all members, purple below. {sentence}',
    population_figures.plot_play_styles(rates, names),
    f'Heat map of {rates.shape[1]} events by {rates.shape[0]} members.'
    f' {sentence}',
  )


def _mean(values: types.Floats) -> str:
  """Returns the mean of the finite values as text."""
  known = values[np.isfinite(values)]
  return f'{known.mean():.4g}' if known.size else 'unknown'


def _evaluations(run_dir: pathlib.Path) -> list[str]:
  evaluations = files.read_or_warn(evaluation_curves.read, run_dir)
  if evaluations is None:
    return []
  scores = dict(zip(evaluations.opponents, evaluations.scores[-1], strict=True))
  return page.section(
    'Strength in training',
    'Games against fixed opponents, which are not used for learning. Left, the'
    ' Elo of each member, by one fit to the games of all evaluations, with 95%'
    ' confidence intervals, and of the opponents; right, the mean score of'
    ' members: 1 for a win, 0.5 for a draw.',
    evaluation_curves.plot_evaluations(evaluations),
    f'Line charts of Elo and scores over steps. At the end the mean Elo is'
    f' {evaluations.elo[-1].mean():.0f} above'
    f' {drawing.readable(evaluations.opponents[0])}.'
    f' {_describe_scores(scores)}',
  )


def _cross_play(run_dir: pathlib.Path) -> list[str]:
  """Returns the section of members who play in one team, if they do."""
  path = loggers.log_path(run_dir, evaluation_curves.LABEL)
  rows = None
  if path.exists():
    rows = files.read_or_warn(loggers.read_jsonl, path)
  if not rows or 'cross_returns' not in rows[-1]:
    return []
  returns = rows[-1]['cross_returns']
  return [
    page.heading('Cross-play'),
    page.paragraph(
      'Mean returns of teams in the last evaluation: the member of the row on'
      ' one seat, and copies of that of the column on all others.'
    ),
    page.columns(
      ['member', *(f'beside {other}' for other in range(len(returns)))],
      [
        [str(member), *map(page.number, row)]
        for member, row in enumerate(returns)
      ],
    ),
  ]


def _count_changes(lineage: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
  """Returns the numbers of copies and of new draws of traits in a lineage."""
  changes = [row for row in lineage if 'parent' in row]
  num_copies = sum(row['parent'] != row['member'] for row in changes)
  return num_copies, len(changes) - num_copies


def _evolution(
  history: history_lib.History,
  lineage: Sequence[Mapping[str, Any]],
  names: Sequence[str],
  log_scaled: Collection[str],
) -> list[str]:
  """Returns the sections on copies and on the traits that evolve."""
  num_members = history.ratings.shape[1]
  body = []
  num_copies, num_redrawn = _count_changes(lineage)
  if num_copies or num_redrawn:
    body += page.section(
      'Descent',
      'One lane per member. Each dot is a copy; the thin line leads to the'
      ' parent. A dot without a line is a new draw of traits. Colors show which'
      ' founder a member descends from.',
      population_figures.plot_lineage(lineage, num_members, history.games[-1]),
      f'Tree of the {num_copies} copies among {num_members} members.',
    )
  figures = {
    'Hyperparameters': population_figures.plot_hyperparameters(
      history, log_scaled
    ),
    'Internal rewards': population_figures.plot_internal_rewards(
      history, names
    ),
    'Events in a game': population_figures.plot_event_rates(history, names),
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
  if not path.is_file():
    return []
  caption = 'Returns of episodes over environment steps.'
  alt = 'Learning curve: the return of episodes and its moving mean.'
  return [
    page.heading('Learning curve'),
    page.png(path.read_bytes(), caption, alt),
  ]
