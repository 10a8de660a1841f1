"""What comes after training: agents that act, play, are filmed and shared."""

from typing import TYPE_CHECKING

from ftwax import submodules

if TYPE_CHECKING:
  from ftwax.inference import live_game, playable, recording
  from ftwax.inference.loaded_agent import LoadedAgent
  from ftwax.inference.loading import export, load
else:
  __getattr__, __dir__ = submodules.on_first_use(
    __name__,
    {
      'LoadedAgent': 'loaded_agent.LoadedAgent',
      'export': 'loading.export',
      'load': 'loading.load',
    },
  )

__all__ = (
  'LoadedAgent',
  'export',
  'live_game',
  'load',
  'playable',
  'recording',
)
