"""Figures of a population: curves over steps, win rates, play styles, descent.

They are plain data for `page.charts`; see the script `charts.js`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ftwax.records import tournament_files
from ftwax.reporting import history as history_lib
from ftwax.reporting import page, words

if TYPE_CHECKING:
  from ftwax import types

# More points than this would only make the page larger.
_MAX_POINTS = 200

# With more lines than this, curves are the mean of members and their range.
_MAX_LINES = 12

# Players beyond whom an equilibrium takes more than some seconds.
_MAX_NASH_PLAYERS = 100

# Fraction of the run, at its end, over which event rates are averaged.
_LAST_PART = 0.2

Founders = npt.NDArray[np.int64]
Figure = dict[str, Any]


def line(
  steps: types.Floats,
  values: types.Floats,
  band: tuple[types.Floats, types.Floats] | None = None,
  **more: Any,
) -> Figure:
  """Returns a line of a figure, [K] values over steps, with its band if any."""
  places = np.linspace(0, len(steps) - 1, min(len(steps), _MAX_POINTS))
  kept = np.unique(places.round().astype(int))
  bands = {} if band is None else dict(zip(('low', 'high'), band, strict=True))
  return {
    'x': steps[kept].tolist(),
    **{
      name: [
        float(f'{value:.5g}') if np.isfinite(value) else None
        for value in part[kept]
      ]
      for name, part in {'y': values, **bands}.items()
    },
    **more,
  }


def member_lines(
  steps: types.Floats, values: types.Floats, log: bool = False
) -> list[Figure]:
  """Returns a line for each member, or the mean of many with their range.

  Args:
    steps: float64 [K].
    values: float64 [K, N].
    log: whether the mean is that of logarithms.
  """
  if values.shape[1] > _MAX_LINES:
    return [mean_and_range(steps, values, log)]
  return [
    line(steps, column, name=f'member {member}', color=member)
    for member, column in enumerate(values.T)
  ]


def mean_and_range(
  steps: types.Floats, values: types.Floats, log: bool = False
) -> Figure:
  """Returns a line of the mean over members with their range."""
  mean = np.mean(np.log(values) if log else values, axis=1)
  ends = values.min(axis=1), values.max(axis=1)
  return line(steps, np.exp(mean) if log else mean, ends, color=0)


def ratings(history: history_lib.History) -> Figure:
  """Returns the rating of each member in training."""
  first, last = history.ratings[0], history.ratings[-1]
  return {
    'kind': 'lines',
    'x': history.axis,
    'lines': member_lines(history.steps, history.ratings),
    'alt': f'Line chart of the Elo of {last.size} members: at first'
    f' {first.mean():.0f} on average; at the end from {last.min():.0f} to'
    f' {last.max():.0f}, {last.mean():.0f} on average.',
  }


def returns(history: history_lib.History) -> Figure:
  """Returns the mean return of each member's last episodes."""
  first, last = history.mean_returns[0], history.mean_returns[-1]
  return {
    'kind': 'lines',
    'x': history.axis,
    'lines': member_lines(history.steps, history.mean_returns),
    'alt': f'Line chart of the return of {last.size} members:'
    f' {_mean(first)} on average at first, {_mean(last)} at the end.',
  }


def _mean(values: types.Floats) -> str:
  """Returns the mean of the finite values as text."""
  known = values[np.isfinite(values)]
  return f'{known.mean():.4g}' if known.size else 'unknown'


def hyperparameters(
  history: history_lib.History, log_scaled: Collection[str] = ()
) -> list[Figure]:
  """Returns a figure of each hyperparameter that is not constant.

  Args:
    history: history of the population.
    log_scaled: names of hyperparameters with a log-uniform prior.
  """
  return [
    _small(
      history,
      words.readable(name),
      member_lines(history.steps, values, name in log_scaled),
      log=name in log_scaled,
    )
    for name, values in history.hyperparameters.items()
    if np.isfinite(values).all() and np.ptp(values) > 0.0
  ]


def internal_rewards(
  history: history_lib.History, event_names: Sequence[str]
) -> list[Figure]:
  """Returns a figure of the weight of each event; none if no weight changes."""
  weights = history.internal_rewards
  if np.ptp(weights) == 0.0:
    return []
  # The same scale for all events, so that they can be compared.
  ends = [float(weights.min()), float(weights.max())]
  return _by_event(history, event_names, weights, ends)


def event_rates(
  history: history_lib.History, event_names: Sequence[str]
) -> list[Figure]:
  """Returns a figure of the rate of each event, if there are several."""
  rates = history.event_rates
  if rates is None or len(event_names) == 1:
    return []  # The rate of a single one is the return.
  return _by_event(history, event_names, rates, [0.0])


def _by_event(
  history: history_lib.History,
  event_names: Sequence[str],
  values: types.Floats,
  ends: list[float],
) -> list[Figure]:
  """Returns a figure of the values [K, N, num_events] of each event."""
  return [
    _small(
      history,
      words.readable(name),
      [mean_and_range(history.steps, values[:, :, event])],
      range=ends,
    )
    for event, name in enumerate(event_names)
  ]


def _small(
  history: history_lib.History, title: str, lines: list[Figure], **more: Any
) -> Figure:
  """Returns one of many small figures."""
  alt = f'Line chart of {title} over {history.axis}.'
  return {
    'kind': 'lines', 'small': True, 'x': history.axis, 'title': title,
    'lines': lines, 'alt': alt, **more,
  }  # fmt: skip


def mean_rates(history: history_lib.History) -> types.Floats | None:
  """Returns events of each member per game at the end, [N, num_events]."""
  if history.event_rates is None:
    return None
  num_rows = max(round(_LAST_PART * len(history.event_rates)), 1)
  return history.event_rates[-num_rows:].mean(axis=0)


def play_styles(rates: types.Floats, event_names: Sequence[str]) -> str:
  """Returns a table of events by member, shaded by the distance to the mean.

  Args:
    rates: float64 [N, num_events], from `mean_rates`.
    event_names: [num_events].
  """
  mean = rates.mean(axis=0)
  # In [-1, 1]: 0 at the mean, -1 if the event never happens to the member.
  relative = (rates - mean) / np.maximum(rates + mean, 1e-9)
  return page.shaded(
    ['events in a game', *(f'member {member}' for member in range(len(rates)))],
    [
      [words.readable(name), *(f'{rate:.2g}' for rate in column)]
      for name, column in zip(event_names, rates.T, strict=True)
    ],
    relative.T.tolist(),
  )


def describe(rates: types.Floats, event_names: Sequence[str]) -> str:
  """Returns a sentence on the event in which members differ most."""
  spread = np.ptp(rates, axis=0) / np.maximum(rates.mean(axis=0), 1e-9)
  # Ignore rare events, whose rates differ by chance.
  spread = np.where(rates.mean(axis=0) > 0.05, spread, 0.0)
  event = int(spread.argmax())
  low, high = int(rates[:, event].argmin()), int(rates[:, event].argmax())
  return (
    f'Members differ most in "{words.readable(event_names[event])}": from'
    f' {rates[low, event]:.2g} a game (member {low}) to'
    f' {rates[high, event]:.2g} (member {high}).'
  )


def payoff(
  win_rates: types.Floats,
  names: Sequence[str],
  notes: types.Floats,
  note: str,
) -> str:
  """Returns a table of the win rates of rows against columns.

  Args:
    win_rates: float64 [N, N], in [0, 1] or NaN.
    names: [N].
    notes: float64 [N, N], a number to write behind each.
    note: how to write it, such as '±{:.0%}'.
  """
  names = [words.readable(name) for name in names]

  def text(rate: float, number: float) -> str:
    return f'{rate:.0%} {note.format(number)}' if np.isfinite(rate) else ''

  return page.shaded(
    ['', *names],
    [
      [name, *map(text, *row)]
      for name, *row in zip(names, win_rates, notes, strict=True)
    ],
    (2.0 * win_rates - 1.0).tolist(),
  )


def tournament(results: tournament_files.Results) -> Figure:
  """Returns the rating of each player with its interval, the best on top."""
  order = np.argsort(-results.ratings).tolist()
  anchor = words.readable(results.players[results.anchor])
  rows = [
    {
      'name': words.readable(results.players[player]),
      'value': float(results.ratings[player]),
      'low': float(results.lows[player]),
      'high': float(results.highs[player]),
      **({'color': player} if player < results.num_members else {}),
    }
    for player in order
  ]
  return {
    'kind': 'intervals',
    'x': f'Elo above {anchor}',
    'rows': rows,
    'alt': f'Elo above {anchor} of {len(order)} players, from'
    f' {results.ratings.min():.0f} to {results.ratings.max():.0f}; the best is'
    f' {rows[0]["name"]}.',
  }


def tabulate_tournament(
  results: tournament_files.Results,
) -> tuple[list[str], list[list[str]]]:
  """Returns the header and a row for each player, the best by Elo first."""
  anchor = words.readable(results.players[results.anchor])
  head = ['player', f'Elo above {anchor}', '95%']
  order = np.argsort(-results.ratings)
  rows = [
    [
      words.readable(results.players[player]),
      f'{results.ratings[player]:.0f}',
      f'{results.lows[player]:.0f} to {results.highs[player]:.0f}',
    ]
    for player in order
  ]
  return head, rows


def tabulate_nash(
  results: tournament_files.Results,
) -> tuple[list[str], list[list[str]]]:
  """Returns the header and a row for each player, the best by Elo first."""
  from ftwax.population import rankings  # Slow import.

  nash = rankings.nash_average(results.win_rates)
  return ['player', 'score against Nash', 'weight in Nash'], [
    [
      words.readable(results.players[player]),
      f'{nash.scores[player]:.2f}',
      f'{nash.weights[player]:.2f}',
    ]
    for player in np.argsort(-results.ratings)
  ]


def has_nash(results: tournament_files.Results) -> bool:
  """Returns whether the Nash equilibrium is known, and found in seconds."""
  num_players = len(results.players)
  others = ~np.eye(num_players, dtype=bool)
  is_known = bool(np.isfinite(results.win_rates[others]).all())
  return is_known and num_players <= _MAX_NASH_PLAYERS


def founders(rows: Sequence[Mapping[str, Any]], num_members: int) -> Founders:
  """Returns the founder of each member at the end, int64 [N]."""
  founder = np.arange(num_members)
  generation, before = None, founder
  for row in rows:
    if 'parent' not in row:
      continue
    if row['generation'] != generation:
      # Members copy others as they were before the generation.
      generation, before = row['generation'], founder.copy()
    founder[row['member']] = before[row['parent']]
  return founder


def descent(
  rows: Sequence[Mapping[str, Any]], history: history_lib.History
) -> Figure:
  """Returns the tree of descent: a lane for each member, a dot for each copy.

  Args:
    rows: rows of a lineage file; see `ftwax.population.lineage`.
    history: history of the population.
  """
  changes = [row for row in rows if 'parent' in row]
  num_members = history.ratings.shape[1]
  games = [row['games'] for row in changes]
  places = np.interp(games, history.games, history.steps)
  kept = ('generation', 'member', 'parent', 'changed')
  return {
    'kind': 'descent',
    'x': history.axis,
    'members': num_members,
    'end': float(history.steps[-1]),
    'rows': [
      {name: row[name] for name in kept if name in row} | {'at': float(place)}
      for row, place in zip(changes, places, strict=True)
    ],
    'alt': f'Tree of the {len(changes)} copies among {num_members} members.',
  }
