"""Differences in how members play: the events of each member per game."""

from collections.abc import Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from ftwax import types
from ftwax.reporting import drawing
from ftwax.reporting import history as history_lib

# Fraction of the run, at its end, over which rates are averaged.
_SHARE = 0.2

# With more members than this, there is no space for numbers.
_MAX_NUMBERS = 16


def mean_rates(history: history_lib.History) -> types.Floats | None:
  """Returns events of each member per game at the end, [N, num_events]."""
  if history.event_rates is None:
    return None
  num_rows = max(round(_SHARE * len(history.event_rates)), 1)
  return history.event_rates[-num_rows:].mean(axis=0)


def plot_play_styles(
  rates: types.Floats, event_names: Sequence[str]
) -> matplotlib.figure.Figure:
  """Plots events by member; colours compare each member with the mean.

  Args:
    rates: float64 [N, num_events], from `mean_rates`.
    event_names: [num_events].
  """
  num_members, num_events = rates.shape
  mean = rates.mean(axis=0)
  # In [-1, 1]: 0 at the mean, -1 if the event never happens to the member.
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


def describe(rates: types.Floats, event_names: Sequence[str]) -> str:
  """Returns a sentence on the event in which members differ most."""
  spread = np.ptp(rates, axis=0) / np.maximum(rates.mean(axis=0), 1e-9)
  # Ignore rare events, whose rates differ by chance.
  spread = np.where(rates.mean(axis=0) > 0.05, spread, 0.0)
  event = int(spread.argmax())
  low, high = int(rates[:, event].argmin()), int(rates[:, event].argmax())
  return (
    f'Members differ most in "{drawing.readable(event_names[event])}": from'
    f' {rates[low, event]:.2g} a game (member {low}) to'
    f' {rates[high, event]:.2g} (member {high}).'
  )
