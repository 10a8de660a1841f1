"""Replay as pure functions on the device."""

from ftwax.replay import functional

__all__ = ('functional',)
