"""Replay as pure functions on the device."""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.replay import functional

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = ('functional',)
