"""Records of a run: its directory, logs, checkpoints and progress."""

from ftwax.records.checkpoints import Checkpointer, CheckpointingConfig
from ftwax.records.loggers import Logger, LoggerFactory, read_jsonl

__all__ = (
  'Checkpointer',
  'CheckpointingConfig',
  'Logger',
  'LoggerFactory',
  'read_jsonl',
)
