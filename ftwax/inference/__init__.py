"""What comes after training: agents that act, play, are filmed and shared."""

from ftwax.inference.loaded_agent import LoadedAgent
from ftwax.inference.loading import export, load

__all__ = (
  'LoadedAgent',
  'export',
  'live_game',
  'load',
  'playable',
)
