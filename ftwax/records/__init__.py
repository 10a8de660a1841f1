"""Records of a run: its directory, logs, checkpoints and progress."""

from typing import TYPE_CHECKING

from ftwax import submodules

if TYPE_CHECKING:
  from ftwax.records import recorded_episodes
  from ftwax.records.checkpoints import Checkpointer, CheckpointingConfig
  from ftwax.records.loggers import Logger, LoggerFactory, read_jsonl
else:
  __getattr__, __dir__ = submodules.on_first_use(
    __name__,
    {
      'Checkpointer': 'checkpoints.Checkpointer',
      'CheckpointingConfig': 'checkpoints.CheckpointingConfig',
      'Logger': 'loggers.Logger',
      'LoggerFactory': 'loggers.LoggerFactory',
      'read_jsonl': 'loggers.read_jsonl',
    },
  )

__all__ = (
  'Checkpointer',
  'CheckpointingConfig',
  'Logger',
  'LoggerFactory',
  'read_jsonl',
  'recorded_episodes',
)
