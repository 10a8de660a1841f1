"""Replay as pure functions: everything is an array in one pytree."""

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
