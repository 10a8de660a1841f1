"""Packs the results of games into a few arrays for another process."""

from collections.abc import Sequence

import numpy as np

from ftwax import types
from ftwax.runtime import evaluation


def pack(results: Sequence[evaluation.GameResult]) -> list[types.NumpyArray]:
  """Returns an array for each field of the results, [K, ...]."""
  return [np.stack(column) for column in zip(*results, strict=True)]


def unpack(columns: Sequence[types.NumpyArray]) -> list[evaluation.GameResult]:
  """Returns the results that were packed by `pack`."""
  return [
    evaluation.GameResult(
      int(place), np.asarray(seats), outcome, returns, int(length)
    )
    for place, seats, outcome, returns, length in zip(*columns, strict=True)
  ]
