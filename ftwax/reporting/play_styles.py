"""How differently members play: the events of each in a game."""

from collections.abc import Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from ftwax.reporting import drawing
from ftwax.reporting import history as history_lib

# Part of the run, at its end, that rates are the mean of.
_SHARE = 0.2

# More members than this leave no room for numbers.
_MAX_NUMBERS = 16


def mean_rates(history: history_lib.History) -> drawing.Floats | None:
  """Returns events of each member in a game at the end, [N, num_events]."""
  if history.event_rates is None:
    return None
  num_rows = max(round(_SHARE * len(history.event_rates)), 1)
  return history.event_rates[-num_rows:].mean(axis=0)


def plot_play_styles(
  rates: drawing.Floats, event_names: Sequence[str]
) -> matplotlib.figure.Figure:
  """Draws events by members; colours compare a member with the mean of all.

  Args:
    rates: [N, num_events], of `mean_rates`.
    event_names: [num_events].
  """
  num_members, num_events = rates.shape
  mean = rates.mean(axis=0)
  # 1 where a member has all of the difference, 0 where it has none.
  relative = (rates - mean) / np.maximum(rates + mean, 1e-9)
  figure = drawing.make_figure(
    0.62 * num_members + 3.6, 0.34 * num_events + 0.8
  )
  axes: Any = figure.subplots()
  axes.imshow(relative.T, cmap='PuOr_r', vmin=-1.0, vmax=1.0, aspect='auto')
  axes.set_xticks(range(num_members), [str(i) for i in range(num_members)])
  axes.set_yticks(
    range(num_events), [drawing.readable(name) for name in event_names]
  )
  axes.set_xlabel('member', fontsize=9)
  axes.tick_params(labelsize=8, length=0)
  axes.spines[:].set_visible(False)
  if num_members <= _MAX_NUMBERS:
    for member, event in np.ndindex(rates.shape):
      is_dark = abs(relative[member, event]) > 0.6
      axes.text(
        member,
        event,
        f'{rates[member, event]:.2g}',
        ha='center',
        va='center',
        fontsize=7,
        color='white' if is_dark else drawing.INK,
      )
  return figure


def describe(rates: drawing.Floats, event_names: Sequence[str]) -> str:
  """Returns the event in which members differ most, as a sentence."""
  spread = np.ptp(rates, axis=0) / np.maximum(rates.mean(axis=0), 1e-9)
  # What hardly ever happens differs by chance.
  spread = np.where(rates.mean(axis=0) > 0.05, spread, 0.0)
  event = int(spread.argmax())
  low, high = int(rates[:, event].argmin()), int(rates[:, event].argmax())
  return (
    f'Members differ most in "{drawing.readable(event_names[event])}": from'
    f' {rates[low, event]:.2g} a game (member {low}) to'
    f' {rates[high, event]:.2g} (member {high}).'
  )
