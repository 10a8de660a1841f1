"""Replay: Reverb tables for many processes, pure functions for the device."""

from ftwax.replay import functional

__all__ = (
  'functional',
  'reverb',
)
