"""Capture the flag: a team game on generated maps, in JAX.

Two teams steal each other's flag and carry it home, as in Jaderberg et al.
(2019, "Human-level performance in 3D multiplayer games with population-based
reinforcement learning"), here on a grid. In reading order:

- `game_config`: sizes and options;
- `maps`: draws a map;
- `rules`: the state of a game and one step of it;
- `events`: the reward, counts of thirteen events for each player;
- `views`, `features`, `rendering`: observations from above, as vectors or as
  images; `rays`, `columns`: in first person;
- `painting`: the whole map, for films;
- `actions`: converts agents' actions;
- `opponents`: scripted players;
- `browser`: its page and keys in the browser;
- `game`: combines these into a `functional.FunctionalGame`.
"""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.environments.capture_the_flag.events import EVENT_NAMES
from ftwax.environments.capture_the_flag.game import make
from ftwax.environments.capture_the_flag.game_config import CaptureTheFlagConfig
from ftwax.environments.capture_the_flag.painting import render

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = ('EVENT_NAMES', 'CaptureTheFlagConfig', 'make', 'render')
