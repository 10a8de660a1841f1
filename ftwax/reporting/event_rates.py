"""Event rates in a game, over the games of a run."""

from collections.abc import Sequence

import matplotlib.figure

from ftwax.reporting import drawing
from ftwax.reporting import history as history_lib


def plot_event_rates(
  history: history_lib.History, event_names: Sequence[str]
) -> matplotlib.figure.Figure | None:
  """Plots mean and spread of each event's rate; None if none are logged."""
  if history.event_rates is None:
    return None
  figure, panels = drawing.make_panels(history.event_rates.shape[-1])
  for event, axes in enumerate(panels):
    rates = history.event_rates[:, :, event]
    drawing.plot_mean_and_spread(axes, history.games, rates)
    drawing.style_games(axes)
    axes.set_ylim(bottom=0.0)
    axes.set_title(drawing.readable(event_names[event]), loc='left', fontsize=9)
  return figure
