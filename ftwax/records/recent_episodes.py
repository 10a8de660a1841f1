"""Which episodes of a run are its last ones, over which returns are averaged.

They are those of the last tenth of its steps, so that the mean of long episodes
does not look back to half of the run; but at most the last 100, and at least
the last 20.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
  from ftwax import types


MOST = 100
_FEWEST = 20
_SHARE = 0.1


def count(steps: types.Floats, num_episodes: types.Floats) -> int:
  """Returns the number of last episodes.

  Args:
    steps: float64 [n], ascending, steps of the run at the rows of a log.
    num_episodes: float64 [n], number of episodes that ended in each row.
  """
  recent = num_episodes[steps > (1.0 - _SHARE) * steps[-1]].sum()
  return int(np.clip(recent, _FEWEST, MOST))
