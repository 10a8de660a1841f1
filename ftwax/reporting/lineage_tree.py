"""The tree of descent: exploits, and the founders whose descendants survive.

Each member has a lane. When the member copies a parent, its lane takes the
colour of the founder from which the parent descends.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.collections
import matplotlib.figure
import numpy as np
import numpy.typing as npt

from ftwax.reporting import drawing

Founders = npt.NDArray[np.int64]


def founders(rows: Sequence[Mapping[str, Any]], num_members: int) -> Founders:
  """Returns the founder of each member at the end, int64 [N]."""
  return _walk(rows, num_members)[0]


def plot_lineage(
  rows: Sequence[Mapping[str, Any]], num_members: int, last_game: float
) -> matplotlib.figure.Figure:
  """Plots the tree of descent.

  Args:
    rows: rows of a lineage file; see `ftwax.population.lineage`.
    num_members: N, the number of lanes.
    last_game: games per member at which the lanes end.
  """
  _, lanes, arrows = _walk(rows, num_members, last_game)
  figure = drawing.make_figure(9.0, 1.2 + 0.28 * num_members)
  axes = figure.subplots()
  axes.add_collection(
    matplotlib.collections.LineCollection(
      [[(begin, member), (end, member)] for member, _, begin, end in lanes],
      colors=[drawing.member_color(founder) for _, founder, _, _ in lanes],
      linewidths=4.0,
      capstyle='butt',
    )
  )
  axes.add_collection(
    matplotlib.collections.LineCollection(
      [[(game, parent), (game, member)] for member, parent, _, game in arrows],
      colors=[drawing.member_color(founder) for _, _, founder, _ in arrows],
      linewidths=1.0,
      alpha=0.7,
    )
  )
  axes.scatter(
    [game for *_, game in arrows],
    [member for member, *_ in arrows],
    s=22,
    color=[drawing.member_color(founder) for _, _, founder, _ in arrows],
    edgecolor='white',
    linewidth=0.8,
    zorder=3,
  )
  drawing.style_games(axes)
  axes.grid(axis='y', visible=False)
  axes.set_yticks(
    range(num_members), [f'member {i}' for i in range(num_members)]
  )
  axes.set_ylim(num_members - 0.5, -0.5)
  axes.set_xlim(0.0, last_game)
  axes.set_xlabel('games per member', fontsize=9)
  return figure


def _walk(
  rows: Sequence[Mapping[str, Any]], num_members: int, last_game: float = 0.0
) -> tuple[Founders, list[Any], list[Any]]:
  """Follows the copies in a lineage.

  Returns:
    The founders [N] at the end; lanes as (member, founder, begin, end); and
    copies as (member, parent, founder, game).
  """
  founder = np.arange(num_members)
  since = np.zeros((num_members,))
  lanes, arrows = [], []
  generations: dict[int, list[Mapping[str, Any]]] = {}
  for row in rows:
    if 'parent' in row:
      generations.setdefault(row['generation'], []).append(row)
  for group in generations.values():
    # Members copy others as they were before the generation.
    before = founder.copy()
    for row in group:
      member, parent, game = row['member'], row['parent'], row['games']
      lanes.append((member, before[member], since[member], game))
      founder[member], since[member] = before[parent], game
      arrows.append((member, parent, before[parent], game))
  for member in range(num_members):
    lanes.append((member, founder[member], since[member], last_game))
  return founder, lanes, arrows
