"""Records of a run: its directory, logs, checkpoints and progress."""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.records.checkpoints import Checkpointer, CheckpointingConfig
from ftwax.records.loggers import Logger, LoggerFactory, read_jsonl

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = (
  'Checkpointer',
  'CheckpointingConfig',
  'Logger',
  'LoggerFactory',
  'read_jsonl',
)
