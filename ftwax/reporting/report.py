"""The report of a run: a self-contained HTML page.

It begins with what happened, in three sentences, and a table of members. Games
follow, which can be played back in the page, and figures with an explanation
each.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ftwax.records import files, log_values, loggers, tournament_files
from ftwax.reporting import (
  curves,
  evaluation_curves,
  health,
  outcome,
  page,
  population_figures,
  run_facts,
  saved_games,
  words,
)
from ftwax.reporting import history as history_lib

if TYPE_CHECKING:
  from ftwax import types

REPORT_FILE = 'report.html'

# Directory of the GIFs of a run, of which the last ones are shown.
VIDEOS_DIRECTORY = 'videos'
_MAX_VIDEOS = 2

# The last saved games are embedded in the page, about 30 kB each.
_MAX_GAMES = 8

_NASH = (
  'Elo assumes that strength is transitive. The Nash equilibrium of the win'
  ' rates does not: it mixes the players that no mixture beats, and a player is'
  ' as good as its score against that mixture.'
)

# The column of scores against opponents that training never meets.
_HELD_OUT = 'held-out score, last evaluation'


def make_report(
  run_dir: str | os.PathLike[str],
  title: str | None = None,
  scripts: Sequence[pathlib.Path] = (),
) -> pathlib.Path:
  """Writes the report of a run, finished or not.

  It reads the log with label `population` and, if they exist, the specs of the
  game, the configuration, the logs of training and evaluation, the results of a
  tournament (see `tournament_files`), `lineage.jsonl`, the games in `games` and
  the GIFs in `videos`.

  Args:
    run_dir: directory of the run.
    title: title of the page; by default the name of the experiment.
    scripts: scripts that draw games of your own; see
      `saved_games.own_scripts`.

  Files that are damaged are left out, with a warning.

  Returns:
    The path of the page, `report.html` in `run_dir`.

  Raises:
    FileNotFoundError: if the run has no log of a population.
    ValueError: if that log has no rows, or is damaged.
  """
  path = pathlib.Path(run_dir) / REPORT_FILE
  files.write_atomically(path, to_html(run_dir, title, scripts))
  return path


def to_html(
  run_dir: str | os.PathLike[str],
  title: str | None = None,
  scripts: Sequence[pathlib.Path] = (),
) -> str:
  """Returns the page of a report; see `make_report`."""
  run_dir = pathlib.Path(run_dir)
  history = history_lib.read(run_dir)
  num_members = history.ratings.shape[1]
  read_lineage = history_lib.read_lineage
  lineage = files.read_or_warn(read_lineage, run_dir, num_members) or []
  names = run_facts.read_event_names(run_dir, history)
  tournament = files.read_or_warn(tournament_files.read, run_dir)
  title = title or run_facts.read_title(run_dir)
  evaluations = files.read_or_warn(evaluation_curves.read, run_dir)
  strength = outcome.find_strength(tournament, evaluations)
  summary = _summary(run_dir, history, lineage, strength)
  matches, used = _matches(run_dir, scripts)
  body = [
    page.paragraph(' '.join(summary)),
    *_health(run_dir),
    *_held_out(evaluations),
    *_members(history, strength),
    *_curves(run_dir),
    *matches,
    *_tournament(tournament),
    *_evaluations(evaluations),
    *_cross_play(run_dir),
    *_games(history),
    *_play_styles(history, names),
    *_evolution(history, lineage, names, run_facts.read_log_scaled(run_dir)),
    page.heading('Run'),
    page.table(run_facts.read(run_dir, history)),
  ]
  return page.render(title, body, used)


def _health(run_dir: pathlib.Path) -> list[str]:
  """Returns what is wrong with the agents, if anything is."""
  found = files.read_or_warn(health.read, run_dir)
  if not found:
    return []
  return [page.heading('Health'), *(page.paragraph(str(one)) for one in found)]


def _summary(
  run_dir: pathlib.Path,
  history: history_lib.History,
  lineage: Sequence[Mapping[str, Any]],
  strength: outcome.Strength | None,
) -> list[str]:
  """Returns sentences on what was trained, how strong it is, what evolved."""
  num_members = history.ratings.shape[1]
  who = 'One agent' if num_members == 1 else f'{num_members} members'
  steps = f'{history.num_steps:,} steps' if history.num_steps else (
    f'{history.games[-1]:,.0f} games each'
  )  # fmt: skip
  time = log_values.format_seconds(history.seconds) if history.seconds else ''
  sentences = [f'{who} trained for {steps}{time and f", in {time}"}.']
  if strength is not None:
    sentences += outcome.describe_strength(strength)
  elif curves.can_plot(run_dir):
    sentences += _describe_returns(run_dir)
  num_copies = sum(
    row.get('parent', row.get('member')) != row.get('member') for row in lineage
  )
  if num_copies:
    lines = set(population_figures.founders(lineage, num_members).tolist())
    times = 'time' if num_copies == 1 else 'times'
    sentences.append(
      f'Members copied others {num_copies:,} {times}, and descend from'
      f' {len(lines)} of {num_members} founders.'
    )
  return sentences


def _describe_returns(run_dir: pathlib.Path) -> list[str]:
  """Returns sentences on the return at the end and at the beginning."""
  episodes = files.read_or_warn(curves.read_returns, run_dir, 'train')
  if episodes is None or not len(episodes.steps):
    return []
  text = outcome.describe_episodes(run_dir)
  edges = np.linspace(0.0, episodes.steps[-1], 11)
  means = curves.mean_by_step(episodes, edges)
  return [
    f'{text[:1].upper()}{text[1:]}; in the first tenth of the steps it was'
    f' {means[np.isfinite(means)][0]:.4g}.'
  ]


def _members(
  history: history_lib.History,
  strength: outcome.Strength | None,
) -> list[str]:
  """Returns the table of members, the best first, if there are several.

  As in the summary, `outcome.Strength.best` says who that is, else training.
  """
  if history.ratings.shape[1] == 1:
    return []
  has_games, has_returns = _has_games(history), _has_returns(history)
  columns: dict[str, types.Floats] = {}
  if strength is not None and strength.held_out:
    columns[_HELD_OUT] = strength.held_out_scores[0]
  if strength is not None:
    columns[f'Elo, {strength.source}'] = strength.elo
  if has_games:
    columns['Elo in training games'] = history.ratings[-1]
  num_ratings = len(columns)
  if has_returns:
    columns['mean return'] = history.mean_returns[-1]
  order = next(iter(columns.values()), history.mean_returns[-1])
  for name, values in history.hyperparameters.items():
    # Constants are in the configuration.
    if np.isfinite(values).all() and np.ptp(values) > 0.0:
      columns[words.readable(name)] = values[-1]
  head = ['member', *columns]
  rows = [
    [
      str(member),
      *(
        page.number(
          values[member],
          2 if name == _HELD_OUT else 0 if place < num_ratings else None,
        )
        for place, (name, values) in enumerate(columns.items())
      ),
    ]
    for member in np.argsort(-order)
  ]
  return [page.heading('Members'), page.columns(head, rows)]


def _has_games(history: history_lib.History) -> bool:
  return bool(history.payoff_games.any() or np.ptp(history.ratings) > 0.0)


def _has_returns(history: history_lib.History) -> bool:
  return bool(np.isfinite(history.mean_returns[-1]).any())


def _matches(
  run_dir: pathlib.Path, scripts: Sequence[pathlib.Path]
) -> tuple[list[str], list[str]]:
  """Returns games to play back and films of games, and the former's scripts."""
  saved = saved_games.SavedGames(run_dir / saved_games.GAMES_DIRECTORY)
  played = [game for _, game in reversed(saved.readable()[:_MAX_GAMES])]
  gifs = sorted((run_dir / VIDEOS_DIRECTORY).glob('*.gif'))[-_MAX_VIDEOS:]
  if not played and not gifs:
    return [], []
  names = [words.readable(gif.stem) for gif in gifs]
  player, used = saved_games.make_player(
    played, saved_games.own_scripts(scripts)
  )
  parts = [
    page.heading('Games'),
    player,
    *(
      page.gif(
        film,
        name,
        'Film of a game between members, with players and score at the top:'
        f' {name}.',
      )
      for gif, name in zip(gifs, names, strict=True)
      if (film := files.read_or_warn(files.read_bytes, gif)) is not None
    ),
  ]
  return parts, used


def _tournament(results: tournament_files.Results | None) -> list[str]:
  if results is None:
    return []
  return [
    *page.charts(
      'Tournament',
      'After training, every player played against every other,'
      f' {results.num_games:,} games in all. Lines are 95% confidence'
      ' intervals. A player rated 100 points higher wins 64% of games.',
      [population_figures.tournament(results)],
    ),
    page.columns(*population_figures.tabulate_tournament(results)),
    page.paragraph(
      'Win rates of rows against columns, where a draw is half a win, with half'
      ' the width of their 95% confidence intervals.'
    ),
    population_figures.payoff(
      results.win_rates, results.players, results.half_widths, '±{:.0%}'
    ),
    *_nash(results),
  ]


def _nash(results: tournament_files.Results) -> list[str]:
  """Returns the equilibrium of a tournament, if it can be found."""
  if not population_figures.has_nash(results):
    return []
  table = population_figures.tabulate_nash(results)
  return [page.paragraph(_NASH), page.columns(*table)]


def _games(history: history_lib.History) -> list[str]:
  """Returns the sections on ratings, returns and win rates in training."""
  body = []
  if _has_games(history):
    body += page.charts(
      'Elo in training games',
      'Elo of each member in training games. It only compares members'
      ' with each other at the same time and does not measure strength over'
      ' time: a copy takes the rating of its parent, and the mean drifts.',
      [population_figures.ratings(history)],
    )
  if _has_returns(history) and history.ratings.shape[1] > 1:
    body += page.charts(
      'Returns',
      "Mean return of each member's last episodes.",
      [population_figures.returns(history)],
    )
  games = history.payoff_games
  if games.any():
    rates = np.where(
      games > 0, history.payoff_scores / np.maximum(games, 1), np.nan
    )
    names = [f'member {member}' for member in range(len(games))]
    body += [
      page.heading('Win rates in training'),
      page.paragraph(
        'Of rows against columns, where a draw is half a win, with the number'
        ' of games. Counted since a member last copied another one.'
      ),
      population_figures.payoff(rates, names, games, '({:,.0f})'),
    ]
  return body


def _play_styles(
  history: history_lib.History, names: Sequence[str]
) -> list[str]:
  rates = population_figures.mean_rates(history)
  if rates is None or rates.shape[0] < 2:
    return []
  return [
    page.heading('Diversity'),
    page.paragraph(
      'Events per game of each member, at the end of training. Blue is above'
      ' the mean of all members, red below. '
      + population_figures.describe(rates, names)
    ),
    population_figures.play_styles(rates, names),
  ]


def _evaluations(
  evaluations: evaluation_curves.Evaluations | None,
) -> list[str]:
  if evaluations is None:
    return []
  return page.charts(
    'Strength in training',
    'Games against fixed opponents, which are not used for learning. Elo is'
    ' from one fit to the games of all evaluations, with 95% confidence'
    ' intervals. In scores, a draw is half a win.',
    evaluation_curves.figures(evaluations),
  )


def _held_out(
  evaluations: evaluation_curves.Evaluations | None,
) -> list[str]:
  """Returns the section of opponents that training never meets, if any."""
  if evaluations is None or not evaluations.held_out:
    return []
  return page.charts(
    'Strength against held-out opponents',
    'Evaluations alone meet these opponents; no member has trained against'
    ' them. A draw is half a win; bands are 95% confidence intervals.',
    [evaluation_curves.held_out_figure(evaluations)],
  )


def _cross_play(run_dir: pathlib.Path) -> list[str]:
  """Returns the section of members who play in one team, if they do."""
  path = loggers.log_path(run_dir, evaluation_curves.LABEL)
  returns = files.read_or_warn(_cross_returns, path) if path.exists() else None
  if returns is None:
    return []
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


def _cross_returns(path: pathlib.Path) -> types.Floats | None:
  """Returns the last mean returns of teams, [N, N]; None without any."""
  rows = loggers.read_jsonl(path)
  if not rows or 'cross_returns' not in rows[-1]:
    return None
  with files.reading(path, 'returns of teams'):
    returns = np.array(rows[-1]['cross_returns'], np.float64)
    if returns.ndim != 2 or len(returns) != returns.shape[1]:
      raise ValueError(f'cross_returns has the shape {returns.shape}')
    return returns


def _evolution(
  history: history_lib.History,
  lineage: Sequence[Mapping[str, Any]],
  names: Sequence[str],
  log_scaled: Collection[str],
) -> list[str]:
  """Returns the sections on copies and on the traits that evolve."""
  body = []
  if any('parent' in row for row in lineage):
    body += page.charts(
      'Descent',
      'One lane per member, in the colour of its founder. A dot is a copy, and'
      ' the thin line leads to the parent; without one, it is a new draw of'
      ' traits. Point at a dot to see what changed.',
      [population_figures.descent(lineage, history)],
    )
  sections = {
    'Hyperparameters': population_figures.hyperparameters(history, log_scaled),
    'Internal rewards': population_figures.internal_rewards(history, names),
    'Events in a game': population_figures.event_rates(history, names),
  }
  for title, figures in sections.items():
    if figures:
      body += page.charts(
        title,
        'Each member, or the mean of members and their range.',
        figures,
        is_folded=title != 'Hyperparameters',  # One for each event.
      )
  return body


def _curves(run_dir: pathlib.Path) -> list[str]:
  """Returns the sections of returns, and of what the environment measures."""
  figure = curves.figure(run_dir)
  if figure is None:
    return []
  caption = 'Episode return (line: mean; band: range).'
  body = page.charts('Learning curve', caption, [figure])
  measured = {
    name: curves.figure(run_dir, name) for name in curves.metric_names(run_dir)
  }
  figures = [
    {**figure, 'title': name.removeprefix(curves.METRICS)}
    for name, figure in measured.items()
    if figure is not None
  ]
  if figures:
    caption = 'Means over episodes of what the environment measures.'
    body += page.charts('Metrics', caption, figures)
  return body
