"""Replay as pure functions over a single pytree of arrays."""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.replay.functional.buffer import Replay, make_replay
from ftwax.replay.functional.contents import ReplayState, Steps
from ftwax.replay.functional.replay_config import (
  ReplayConfig,
  ReplayHyperparameters,
)
from ftwax.replay.functional.sampling import Sample, SampleInfo

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

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
