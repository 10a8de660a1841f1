"""Capture the flag: a team game on generated maps, in JAX."""

from ftwax.environments.capture_the_flag.events import EVENT_NAMES
from ftwax.environments.capture_the_flag.game import make
from ftwax.environments.capture_the_flag.game_config import CaptureTheFlagConfig
from ftwax.environments.capture_the_flag.rendering import render

__all__ = ('EVENT_NAMES', 'CaptureTheFlagConfig', 'make', 'render')
