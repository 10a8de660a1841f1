"""Replay as pure functions over a single pytree of arrays."""

from ftwax.replay.functional.buffer import Replay, make_replay
from ftwax.replay.functional.replay_config import (
  ReplayConfig,
  ReplayHyperparameters,
  ReplayState,
  Sample,
  SampleInfo,
  Steps,
)

__all__ = (
  'Replay',
  'ReplayConfig',
  'ReplayHyperparameters',
  'ReplayState',
  'Sample',
  'SampleInfo',
  'Steps',
  'make_replay',
)
