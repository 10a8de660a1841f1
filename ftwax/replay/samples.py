"""Batches in the form in which every replay yields them to a learner."""

from typing import Any, NamedTuple

import numpy.typing as npt

from ftwax import types


class ReplaySample(NamedTuple):
  """A batch and the origin of its fresh trajectories.

  Attributes:
    batch: on the device; leaves [T + 1, B, ...] or [T, B, ...], and [B, ...] in
      the recurrent state.
    variables_steps: int64 [B], learner steps of the behaviour policies.
    written_at: float64 [B], seconds since the epoch.
  """

  batch: types.LearnerBatch
  variables_steps: npt.NDArray[Any]
  written_at: npt.NDArray[Any]
