"""Replay: Reverb tables across processes, and pure functions on the device."""

from ftwax.replay import functional
from ftwax.replay.level_replay import LevelReplayConfig

__all__ = (
  'LevelReplayConfig',
  'functional',
  'reverb',
)
