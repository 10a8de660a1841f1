"""What comes after training: agents that act, play, are filmed and shared."""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.inference.loaded_agent import LoadedAgent
from ftwax.inference.loading import export, load

if TYPE_CHECKING:
  from ftwax.inference import live_game, playable
else:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = (
  'LoadedAgent',
  'export',
  'live_game',
  'load',
  'playable',
)
